// Puts the page together, reads the runs, and goes on reading while one of them is written.

import { curvesPanel } from "./curves.js";
import { el } from "./dom.js";
import { fillHeader } from "./header.js";
import { overviewPanel } from "./overview.js";
import { samplesPanel } from "./samples.js";
import { settingsPanel } from "./settings.js";
import { openSource } from "./source.js";
import { createStore } from "./store.js";
import { timelinePanel } from "./timeline.js";

const POLL_MS = 3000;
const COLOURS = 8;

const source = openSource();
const store = createStore({
  runs: [],
  shown: new Set(),
  metrics: 0, // counts up when step records came
  timeline: 0,
  theme: 0,
  step: null,
  hover: null,
  zoom: null,
  smoothing: 30,
  axis: "step",
});

document.addEventListener("themechange", () => store.set("theme", store.get("theme") + 1));
fillHeader(document.getElementById("top"), store);
start();

async function start() {
  const main = document.getElementById("main");
  try {
    const abouts = await source.runs();
    const metrics = await Promise.all(abouts.map((_, index) => source.metrics(index)));
    const runs = abouts.map((about, index) => ({
      index,
      about,
      name: about.name,
      metrics: metrics[index],
      colour: `--run-${index % COLOURS}`,
    }));
    const panels = [overviewPanel, curvesPanel, timelinePanel, samplesPanel, settingsPanel];
    const sections = panels.map((panel) => panel(store, source));
    store.set("shown", new Set(runs.map(({ index }) => index)));
    store.set("runs", runs);
    store.set("step", firstStep(runs));
    store.set("metrics", 1);
    main.replaceChildren(...sections);
    document.dispatchEvent(new Event("viewer-ready"));
    document.body.dataset.ready = "true";
  } catch (error) {
    main.replaceChildren(el("p", { class: "note", role: "alert" }, `The run could not be read: ${error.message}`));
    throw error;
  }
  if (source.live) setInterval(poll, POLL_MS);
}

// The last step of which there are samples, or the last of all.
function firstStep(runs) {
  const of = runs.find(({ about }) => about.steps.length) ?? runs[0];
  return of.about.steps.at(-1) ?? of.metrics.steps.at(-1) ?? null;
}

async function poll() {
  if (document.hidden) return;
  const abouts = await source.runs().catch(() => null);
  if (abouts === null) {
    gone(true);
    return;
  }
  gone(false);
  const runs = store.get("runs");
  const changed = (key) => runs.filter((run, index) => run.about.versions[key] !== abouts[index].versions[key]);
  const [newMetrics, newTimeline] = [changed("metrics"), changed("timeline")];
  const same = !newMetrics.length && !newTimeline.length && !changed("summary").length;
  if (same && runs.every((run, index) => run.about.steps.length === abouts[index].steps.length)) return;
  for (const run of newMetrics) run.metrics = await source.metrics(run.index);
  runs.forEach((run, index) => {
    run.about = abouts[index];
  });
  store.set("runs", [...runs]);
  if (newMetrics.length) store.set("metrics", store.get("metrics") + 1);
  if (newTimeline.length) store.set("timeline", store.get("timeline") + 1);
}

function gone(isGone) {
  const id = "gone";
  if (!isGone) document.getElementById(id)?.remove();
  else if (!document.getElementById(id)) {
    document.getElementById("top").after(el("p", { id, class: "note", role: "alert" }, "The viewer does not answer any more: what you see is what it said last."));
  }
}
