// The settings of the runs, and how they differ.

import { el, later, section } from "./dom.js";

export function settingsPanel(store) {
  const table = el("table", { class: "settings" });
  const search = el("input", { type: "search", placeholder: "num_steps …", on: { input: later(update, 80) } });
  const differing = el("input", { type: "checkbox", on: { change: update } });
  const onlyDiffering = el("label", { class: "check", hidden: true }, differing, "only what differs");
  const nothing = el("p", { class: "note", hidden: true });
  store.on(["runs", "shown"], update);
  const bar = el(
    "div",
    { class: "controls" },
    el("label", { class: "field" }, el("span", {}, "Find a setting"), search),
    onlyDiffering,
  );
  return section("settings", "Settings", bar, nothing, el("div", { class: "scroll", tabindex: 0 }, table));

  function update() {
    const runs = store.get("runs").filter((run) => store.get("shown").has(run.index));
    onlyDiffering.hidden = runs.length < 2;
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.about.config)))];
    const rows = names
      .map((name) => [name, runs.map((run) => run.about.config[name])])
      .filter(([name, values]) => [name, ...values].join(" ").toLowerCase().includes(search.value.toLowerCase()))
      .filter(([, values]) => runs.length < 2 || !differing.checked || differs(values));
    const head = el("tr", {}, el("th", { scope: "col" }, "setting"), runs.map((run) => el("th", { scope: "col" }, run.name)));
    table.replaceChildren(el("thead", {}, head), el("tbody", {}, rows.map(row)));
    nothing.hidden = rows.length > 0;
    nothing.textContent = names.length ? "No setting fits." : "There is no config.yaml.";
    table.hidden = rows.length === 0;
  }
}

function row([name, values]) {
  const mark = values.length > 1 && differs(values) ? "differs" : null;
  return el("tr", { class: mark }, el("th", { scope: "row" }, name), values.map((value) => el("td", {}, value ?? "–")));
}

function differs(values) {
  return new Set(values).size > 1;
}
