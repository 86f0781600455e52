// The top of the page: its parts, the runs with their colours, the chosen step, dark or light.

import { el } from "./dom.js";
import { themeButton } from "./theme.js";

const PARTS = [
  ["overview", "Overview"],
  ["curves", "Curves"],
  ["timeline", "Timeline"],
  ["samples", "Samples"],
  ["settings", "Settings"],
];

export function fillHeader(header, store) {
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Runs shown" });
  const links = PARTS.map(([id, text]) => el("a", { href: `#${id}` }, text));
  header.append(
    el("strong", { class: "brand" }, "LightRFT-Ray"),
    el("nav", { "aria-label": "Parts of the page" }, links),
    chips,
    themeButton(),
  );
  store.on(["runs", "shown"], () => chips.replaceChildren(...store.get("runs").map(chip)));
  followScrolling(links);

  function chip(run) {
    const several = store.get("runs").length > 1;
    const box = el("input", {
      type: "checkbox",
      checked: store.get("shown").has(run.index),
      disabled: !several,
      on: { change: () => toggle(run.index, box) },
    });
    const mark = el("i", { style: { background: `var(${run.colour})` } });
    const name = el("span", {}, run.name);
    return el("label", { class: several ? "chip" : "chip single", title: run.name }, box, mark, name);
  }

  function toggle(index, box) {
    const shown = new Set(store.get("shown"));
    if (box.checked) shown.add(index);
    else shown.delete(index);
    store.set("shown", shown);
    chips.children[index].querySelector("input").focus();
  }
}

function followScrolling(links) {
  const mark = (id) =>
    links.forEach((link) => {
      if (link.getAttribute("href") === `#${id}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  const observer = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => mark(entry.target.id)),
    { rootMargin: "-20% 0px -70% 0px" },
  );
  document.addEventListener("viewer-ready", () =>
    PARTS.forEach(([id]) => observer.observe(document.getElementById(id))),
  );
}
