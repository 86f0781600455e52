// Who was busy when, up to the chosen step.

import { el, section, select } from "./dom.js";
import { duration, number } from "./format.js";
import { niceTicks, tickText } from "./ticks.js";

const COUNTS = [["1", "1 step"], ["3", "3 steps"], ["10", "10 steps"], ["30", "30 steps"]];
const PHASES = ["generate", "score", "assemble", "train", "publish", "eval", "save"];
const LEAST_LABEL = 6; // per cent of the width that a phase's name needs
const NARROW = "(max-width: 900px)"; // as the style has it

export function timelinePanel(store, source) {
  const body = el("div", {});
  let count = 3;
  let asked = 0;
  const where = el("p", { class: "hint" });
  const step = (by) => store.set("step", Math.max(0, (store.get("step") ?? 1) + by * count));
  const bar = el(
    "div",
    { class: "controls" },
    select("Show", COUNTS, String(count), (value) => {
      count = Number(value);
      load();
    }),
    el("button", { type: "button", on: { click: () => step(-1) } }, "← earlier"),
    el("button", { type: "button", on: { click: () => step(1) } }, "later →"),
    where,
  );
  store.on(["step", "shown", "timeline"], load);
  return section("timeline", "Timeline", bar, body);

  async function load() {
    asked += 1;
    const mine = asked;
    const until = store.get("step") ?? 0;
    const from = Math.max(0, until - count + 1);
    const runs = store.get("runs").filter((run) => store.get("shown").has(run.index));
    const rows = await Promise.all(runs.map((run) => source.timeline(run.index, from, count)));
    if (mine !== asked) return; // a later question was asked meanwhile
    where.textContent = `Up to step ${until}; a click on a curve chooses another.`;
    body.replaceChildren(...runs.map((run, place) => ofRun(run, rows[place], runs.length > 1)));
  }
}

function ofRun(run, rows, several) {
  const spans = rows.flatMap((row) => row.spans.filter(({ start, end }) => end >= start));
  const title = several ? el("h3", { style: { color: `var(${run.colour})` } }, run.name) : null;
  if (!spans.length) return el("div", { class: "card" }, title, el("p", { class: "note" }, "Nothing is noted of these steps."));
  const low = spans.reduce((least, { start }) => Math.min(least, start), Infinity);
  const high = spans.reduce((most, { end }) => Math.max(most, end), -Infinity);
  const across = (time) => (100 * (time - low)) / (high - low || 1);
  const names = [...new Set(spans.map(({ who }) => who))].sort();
  const lanes = names.map((who) => lane(who, spans.filter((span) => span.who === who), across, high - low));
  const kinds = [...new Set(spans.map(({ phase }) => phase))];
  return el(
    "div",
    { class: "card" },
    title,
    el("div", { class: "lanes", role: "list" }, lanes, ruler(rows, low, high, across)),
    el("p", { class: "legend" }, kinds.map((phase) => el("span", {}, el("i", { class: phaseClass(phase) }), phase))),
  );
}

function lane(who, spans, across, total) {
  const busy = union(spans);
  const share = total ? Math.round((100 * busy) / total) : 0;
  const words = spans.slice(0, 20).map(({ phase, start, end }) => `${phase} ${number(end - start, 3)} s`);
  return el(
    "div",
    { class: "lane", role: "listitem", tabindex: 0, "aria-label": `${who}, busy ${share} %: ${words.join(", ")}` },
    el("span", { class: "who" }, who),
    el("div", { class: "track" }, spans.map((span) => block(span, across))),
    el("span", { class: "busy", title: `${duration(busy)} of ${duration(total)}` }, `${share} %`),
  );
}

function block({ phase, start, end }, across) {
  const width = across(end) - across(start);
  const words = `${phase}: ${number(start, 6)} to ${number(end, 6)} s, ${number(end - start, 3)} s`;
  const style = { left: `${across(start)}%`, width: `${width}%` };
  return el("div", { class: `block ${phaseClass(phase)}`, style, title: words }, width > LEAST_LABEL ? phase : null);
}

function phaseClass(phase) {
  return PHASES.includes(phase) ? `phase-${phase}` : "phase-other";
}

function union(spans) {
  let [total, reached] = [0, -Infinity];
  for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    total += Math.max(0, end - Math.max(start, reached));
    reached = Math.max(reached, end);
  }
  return total;
}

function ruler(rows, low, high, across) {
  const isNarrow = matchMedia(NARROW).matches;
  const ticks = niceTicks(low, high, isNarrow ? 2 : 8).map((time) =>
    el("span", { class: "tick", style: { left: `${across(time)}%` } }, `${tickText(time)} s`),
  );
  const starts = rows
    .filter((row) => row.spans.length)
    .map((row) => [row.step, row.spans.reduce((least, { start }) => Math.min(least, start), Infinity)])
    .map(([step, time]) =>
      el("span", { class: "start", style: { left: `${across(time)}%` } }, el("b", {}, isNarrow ? step : `step ${step}`)),
    );
  return el("div", { class: "ruler", "aria-hidden": true }, starts, ticks);
}
