// The samples of a step, or of all steps read piece by piece, as a table with one opened beside it.

import { el, section, select } from "./dom.js";
import { number } from "./format.js";
import { ALL_STEPS, filterBar, matches } from "./filters.js";
import { sampleTable } from "./sample_table.js";
import { sampleDetail } from "./sample_detail.js";

const PAGE = 100; // samples found before the search waits to be asked for more

export function samplesPanel(store, source) {
  let run = null;
  let step = null; // a number or ALL_STEPS
  let search = 0; // the number of the latest search; an older one stops
  const detail = el("div", { class: "detail", "aria-live": "off" });
  const table = sampleTable((sample) => detail.replaceChildren(sampleDetail(sample, image)), image);
  const status = el("p", { class: "status", role: "status" });
  const more = el("button", { type: "button", hidden: true }, "Search on");
  const bar = filterBar(restart);
  const choices = el("div", { class: "choices" });
  store.on(["runs", "shown"], chooseRun);
  store.on(["step"], () => {
    if (step !== ALL_STEPS && store.get("step") !== null) showStep(closest(store.get("step")));
  });
  bar.element.prepend(choices);
  const columns = el("div", { class: "columns" }, el("div", { class: "scroll" }, table.element), detail);
  return section("samples", "Samples", bar.element, status, columns, more);

  function image(file) {
    return source.image(run.index, file);
  }

  function chooseRun() {
    const shown = store.get("runs").filter(({ index }) => store.get("shown").has(index));
    const next = shown.find((each) => run && each.index === run.index) ?? shown[0] ?? null;
    const grown = next && run === next && next.about.steps.length !== choices.dataset.steps * 1;
    if (next === run && !grown && choices.childElementCount && choices.dataset.runs === ids(shown)) return;
    const kept = next === run ? step : null;
    run = next;
    step = kept ?? run?.about.steps.at(-1) ?? null;
    showChoices(shown);
    if (kept === null || step === null) restart();
  }

  function ids(runs) {
    return runs.map(({ index }) => index).join(" ");
  }

  function showChoices(shown) {
    const steps = run?.about.steps ?? [];
    choices.dataset.steps = steps.length;
    choices.dataset.runs = ids(shown);
    const options = [[ALL_STEPS, "all steps"], ...steps.map((each) => [String(each), `step ${each}`]).reverse()];
    const runs = shown.map((each) => [String(each.index), each.name]);
    choices.replaceChildren(
      ...(shown.length > 1 ? [select("Of run", runs, String(run.index), pickRun)] : []),
      select("From", options, String(step), (value) => showStep(value === ALL_STEPS ? value : Number(value))),
      el("button", { type: "button", "aria-label": "Samples of the step before", on: { click: () => move(-1) } }, "←"),
      el("button", { type: "button", "aria-label": "Samples of the step after", on: { click: () => move(1) } }, "→"),
    );
  }

  function pickRun(index) {
    run = store.get("runs")[Number(index)];
    step = run.about.steps.at(-1) ?? null;
    showChoices(store.get("runs").filter(({ index: each }) => store.get("shown").has(each)));
    restart();
  }

  function move(by) {
    const steps = run?.about.steps ?? [];
    const next = steps[steps.indexOf(step) + by];
    if (step !== ALL_STEPS && next !== undefined) showStep(next);
  }

  function closest(wanted) {
    return (run?.about.steps ?? []).reduce(
      (best, each) => (best === null || Math.abs(each - wanted) < Math.abs(best - wanted) ? each : best),
      null,
    );
  }

  function showStep(next) {
    if (next === null || next === step) return;
    step = next;
    choices.querySelectorAll("select").forEach((control, place, all) => {
      if (place === all.length - 1) control.value = String(step);
    });
    restart();
  }

  function restart() {
    table.clear();
    detail.replaceChildren();
    more.hidden = true;
    search += 1;
    if (step === null) {
      status.textContent = "This run has written no samples yet.";
      return;
    }
    find(search, step === ALL_STEPS ? 0 : step, { read: 0, found: 0, damaged: 0 });
  }

  async function find(mine, start, counts) {
    const until = counts.found + PAGE;
    let from = start;
    while (from !== null) {
      const answer = await (step === ALL_STEPS ? source.samplesFrom(run.index, from) : source.samplesOf(run.index, from));
      if (mine !== search) return;
      const found = answer.samples.filter((sample) => matches(sample, bar.filter));
      counts.read += answer.samples.length;
      counts.damaged += answer.damaged;
      counts.found += found.length;
      table.append(found);
      from = answer.next;
      report(counts, from);
      if (counts.found >= until) break;
    }
    more.hidden = from === null;
    more.onclick = () => {
      more.hidden = true;
      find(mine, from, counts);
    };
  }

  function report({ read, found, damaged }, next) {
    const held = source.live ? "" : notHeld();
    const words = [
      `${number(found)} of ${number(read)} samples${next === null ? "" : `, read up to step ${next}`}`,
      damaged ? `${damaged} damaged lines were passed over` : "",
      held,
    ];
    status.textContent = words.filter(Boolean).join(" · ");
  }

  function notHeld() {
    const left = run.about.steps_of_run - run.about.steps.length;
    return left > 0 ? `this page holds samples of ${run.about.steps.length} of the run's ${run.about.steps_of_run} steps with samples` : "";
  }
}
