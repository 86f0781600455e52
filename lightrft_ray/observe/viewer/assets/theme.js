// Dark or light: as the system has it, or as chosen here.

import { el } from "./dom.js";

const KEY = "lightrft-viewer-theme";

export function themeButton() {
  const button = el("button", { type: "button", class: "theme", on: { click: toggle } });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", show);
  show();
  return button;

  function toggle() {
    remember(wanted() === "dark" ? "light" : "dark");
    show();
  }

  function wanted() {
    return remembered() ?? (system.matches ? "dark" : "light");
  }

  function show() {
    document.documentElement.dataset.theme = wanted();
    const isDark = wanted() === "dark";
    button.textContent = isDark ? "☀" : "☾";
    button.title = isDark ? "Light colours" : "Dark colours";
    button.setAttribute("aria-label", button.title);
    document.dispatchEvent(new Event("themechange"));
  }
}

let chosen = null; // where a browser refuses storage to a file, the choice lasts as long as the page

function remembered() {
  try {
    return localStorage.getItem(KEY) ?? chosen;
  } catch {
    return chosen;
  }
}

function remember(theme) {
  chosen = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // see above
  }
}
