// All curves of the runs, by the first word of the metric's name; the telling ones come first.

import { createChart } from "./chart.js";
import { el, later, section, select } from "./dom.js";
import { AXES, makeSeries } from "./series.js";

const FIRST = ["reward/mean", "eval/accuracy", "rollout/response_length_mean", "policy/entropy"];
const OPEN_GROUPS = ["reward", "policy"];

export function curvesPanel(store) {
  const charts = new Map();
  const groups = new Map();
  const highlights = el("div", { class: "charts highlights" });
  const rest = el("div", {});
  const nothing = el("p", { class: "note", hidden: true });
  const search = el("input", {
    type: "search",
    placeholder: "entropy, reward …",
    on: { input: later(filter, 80) },
  });
  const smoothing = el("input", {
    type: "range",
    min: 0,
    max: 100,
    value: store.get("smoothing"),
    on: { input: () => store.set("smoothing", Number(smoothing.value)) },
  });
  const unzoom = el(
    "button",
    { type: "button", hidden: true, on: { click: () => store.set("zoom", null) } },
    "Show all steps",
  );
  store.on(["zoom"], () => {
    unzoom.hidden = store.get("zoom") === null;
  });
  store.on(["smoothing", "axis", "shown", "metrics"], update);
  const bar = el(
    "div",
    { class: "controls" },
    el("label", { class: "field" }, el("span", {}, "Find a metric"), search),
    el("label", { class: "field" }, el("span", {}, "Smoothing"), smoothing),
    select("Across", AXES, store.get("axis"), setAxis),
    unzoom,
    el("p", { class: "hint" }, "Drag to zoom, click to choose a step for the sections below."),
  );
  return section("curves", "Curves", bar, nothing, highlights, rest);

  function setAxis(axis) {
    store.set("zoom", null); // a range of steps is no range of hours
    store.set("axis", axis);
  }

  function update() {
    const shown = store.get("runs").filter((run) => store.get("shown").has(run.index));
    const names = new Set(shown.flatMap((run) => measured(run.metrics)));
    for (const name of names) if (!charts.has(name)) add(name, shown);
    for (const [name, chart] of charts) {
      chart.update(shown.map((run) => seriesOf(run, name)), store.get("smoothing") > 0);
      chart.wanted = names.has(name);
    }
    filter();
  }

  function seriesOf(run, name) {
    const series = makeSeries(run.metrics, name, store.get("axis"), store.get("smoothing"));
    return { ...series, run: run.name, colour: run.colour };
  }

  function add(name, runs) {
    const info = runs.find((run) => run.metrics.info[name]).metrics.info[name];
    const isFirst = FIRST.includes(name);
    const chart = createChart(name, info, store, isFirst);
    charts.set(name, chart);
    if (isFirst) {
      const after = FIRST.slice(FIRST.indexOf(name) + 1).map((each) => charts.get(each));
      highlights.insertBefore(chart.element, after.find(Boolean)?.element ?? null);
    } else group(name.includes("/") ? name.split("/")[0] : "progress").append(chart.element);
  }

  function group(key) {
    if (!groups.has(key)) {
      const grid = el("div", { class: "charts" });
      const details = el("details", { class: "group", open: OPEN_GROUPS.includes(key) });
      const count = el("small", {});
      details.append(el("summary", {}, key, count), grid);
      rest.append(details);
      groups.set(key, { details, grid, count });
    }
    return groups.get(key).grid;
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const [name, chart] of charts) {
      const text = chart.element.querySelector("figcaption").textContent.toLowerCase();
      const fits = chart.wanted && words.every((word) => text.includes(word) || name.includes(word));
      chart.element.hidden = !fits;
      found += fits ? 1 : 0;
    }
    for (const { details, grid, count } of groups.values()) {
      const left = [...grid.children].filter((chart) => !chart.hidden).length;
      count.textContent = String(left);
      details.hidden = left === 0;
      if (words.length && !details.hidden) details.open = true;
    }
    nothing.hidden = found > 0;
    nothing.textContent = words.length ? `No metric holds “${search.value}”.` : "No step has been logged yet.";
  }
}

function measured(metrics) {
  return Object.keys(metrics.columns).filter((name) =>
    metrics.columns[name].some((value) => value !== null),
  );
}
