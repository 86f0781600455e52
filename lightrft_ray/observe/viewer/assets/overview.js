// What a person asks first: did it learn, how fast was it, what went wrong.

import { el, section } from "./dom.js";
import { duration, number } from "./format.js";

const STILL_WRITING_S = 120;
const PHASES = ["generate", "score", "assemble", "train", "publish", "eval", "save"];

export function overviewPanel(store) {
  const body = el("div", { class: "runs" });
  store.on(["runs", "shown", "metrics"], () => {
    const shown = store.get("runs").filter((run) => store.get("shown").has(run.index));
    body.replaceChildren(...shown.map(card));
  });
  return section("overview", "Overview", body);
}

function card(run) {
  const { metrics, about } = run;
  return el(
    "article",
    { class: "card run", style: { "--run": `var(${run.colour})` } },
    el("h3", {}, run.name, state(about, metrics)),
    el("p", { class: "sub" }, subtitle(about, metrics)),
    el("dl", { class: "tiles" }, tiles(about.summary, metrics).map(([label, value, note]) => tile(label, value, note))),
    phases(metrics),
    troubles(run),
  );
}

function state(about, metrics) {
  if (Object.keys(about.summary).length) return el("span", { class: "state done" }, "finished");
  if (!metrics.steps.length) return el("span", { class: "state" }, "no step yet");
  if (about.age_s !== null && about.age_s < STILL_WRITING_S) return el("span", { class: "state live" }, "running");
  return el("span", { class: "state" }, "not finished");
}

function subtitle(about, metrics) {
  const total = about.config["trainer.num_steps"];
  const last = metrics.steps[metrics.steps.length - 1] ?? 0;
  const words = [
    about.config["algorithm.advantage_estimator"],
    `step ${last}${total ? ` of ${total}` : ""}`,
    about.started ? `started ${about.started.slice(0, 16).replace("T", " ")}` : "",
  ];
  return words.filter(Boolean).join(" · ");
}

function tile(label, value, note) {
  return el("div", {}, el("dt", {}, label), el("dd", {}, value, note ? el("small", {}, note) : null));
}

function tiles(summary, metrics) {
  const accuracy = values(metrics, "eval/accuracy");
  const reward = values(metrics, "reward/mean");
  const recent = Math.max(1, Math.min(10, Math.floor(reward.length / 2)));
  const speeds = values(metrics, "speed/tokens_per_second");
  return [
    ["held-out accuracy", number(accuracy.at(-1) ?? null, 3), change(accuracy[0], accuracy.at(-1))],
    ["reward", number(mean(reward.slice(-recent)), 3), change(mean(reward.slice(0, recent)), mean(reward.slice(-recent)))],
    ["tokens a second", number(mean(speeds), 3), ""],
    ["a step takes", seconds(mean(values(metrics, "time/step"))), ""],
    ["time in all", duration(summary.seconds_total ?? sum(values(metrics, "time/step"))), ""],
    ["weights' largest gap", number(max(values(metrics, "publish/canary_max_abs_diff")), 2), "nats"],
  ];
}

function change(before, after) {
  if (before === undefined || before === null || after === undefined || after === null) return "";
  return `from ${number(before, 3)}`;
}

function seconds(value) {
  return value === null ? "–" : `${number(value, 3)} s`;
}

function phases(metrics) {
  const spent = PHASES.map((phase) => [phase, sum(values(metrics, `time/${phase}`))]).filter(([, time]) => time > 0);
  const total = sum(spent.map(([, time]) => time));
  if (!total) return null;
  const parts = spent.map(([phase, time]) =>
    el("div", { class: `part phase-${phase}`, style: { "flex-grow": String(time / total) } }),
  );
  const names = spent.map(([phase, time]) =>
    el("span", {}, el("i", { class: `phase-${phase}` }), `${phase} ${duration(time)} (${Math.round((100 * time) / total)} %)`),
  );
  return el("div", {}, el("div", { class: "bar", "aria-hidden": true }, parts), el("p", { class: "legend" }, names));
}

// Each with what it counts; a trouble that did not happen is not shown.
function troubles({ metrics, about }) {
  const lasts = (name) => values(metrics, name).at(-1) ?? 0;
  const found = [
    [lasts("data/failed"), "prompts were given up"],
    [lasts("data/skipped"), "prompts could not be used"],
    [sum(values(metrics, "reward/failed")), "samples got no reward and were masked"],
    [sum(values(metrics, "policy/skipped_updates")), "policy updates were left out: loss or gradient not finite"],
    [sum(values(metrics, "value/skipped_updates")), "critic updates were left out: loss or gradient not finite"],
    [metrics.damaged, "damaged lines in metrics.jsonl were passed over"],
  ].filter(([count]) => count > 0);
  const cut = values(metrics, "rollout/truncated_fraction").at(-1) ?? 0;
  const lines = found.map(([count, words]) => el("li", {}, el("b", {}, number(count)), ` ${words}`));
  if (cut >= 0.05) lines.push(el("li", {}, el("b", {}, `${Math.round(100 * cut)} %`), " of the last step's responses were cut by the length limit"));
  const inFlight = about.summary.prompts?.in_flight;
  if (inFlight) lines.push(el("li", {}, el("b", {}, number(inFlight)), " prompts were still in flight at the end"));
  if (!lines.length) return el("p", { class: "fine" }, "No failures: nothing was skipped, masked or given up.");
  return el("ul", { class: "troubles", "aria-label": "Failures" }, lines);
}

function values(metrics, name) {
  return (metrics.columns[name] ?? []).filter((value) => value !== null);
}

function sum(numbers) {
  return numbers.reduce((total, value) => total + value, 0);
}

function mean(numbers) {
  return numbers.length ? sum(numbers) / numbers.length : null;
}

function max(numbers) {
  return numbers.length ? Math.max(...numbers) : null;
}
