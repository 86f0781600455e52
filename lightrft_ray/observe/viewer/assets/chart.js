// One chart: curves of a metric, a cursor by pointer or keyboard, a range to zoom into.

import { breakable, el } from "./dom.js";
import { number, withUnit } from "./format.js";
import { layout, paint } from "./paint.js";
import { nearest } from "./series.js";

const LEAST_DRAG = 8; // pixels; less is a click

export function createChart(name, info, store, tall) {
  const canvas = el("canvas", { "aria-hidden": true });
  const cursor = el("div", { class: "cursor", hidden: true });
  const band = el("div", { class: "band", hidden: true });
  const tip = el("div", { class: "tip", hidden: true });
  const readout = el("p", { class: "unseen", "aria-live": "polite" });
  const latest = el("span", { class: "latest" });
  const plot = el("div", { class: "plot", tabindex: 0, role: "group" }, canvas, cursor, band, tip);
  const title = el(
    "figcaption",
    {},
    el("span", { class: "name" }, breakable(name)),
    latest,
    el("span", { class: "meaning" }, describe(info)),
  );
  const element = el("figure", { class: tall ? "chart tall" : "chart", "data-metric": name }, title, plot, readout);
  let series = [];
  let smoothed = false;
  let place = null;
  let visible = false;
  let point = null; // where the keyboard is: the index of a value of the first curve

  new IntersectionObserver((entries) => {
    visible = entries[entries.length - 1].isIntersecting;
    if (visible) draw();
  }, { rootMargin: "200px" }).observe(element);
  new ResizeObserver(() => visible && draw()).observe(plot);
  store.on(["zoom"], () => visible && draw());
  store.on(["theme"], () => visible && draw());
  store.on(["hover"], showCursor);
  window.addEventListener("beforeprint", draw);
  listen();
  return { element, update };

  function update(newSeries, isSmoothed) {
    series = newSeries.filter(({ xs }) => xs.length > 0);
    smoothed = isSmoothed;
    latest.replaceChildren(...series.map(lastValue));
    plot.setAttribute("aria-label", summary());
    delete element.dataset.drawn;
    if (visible) draw();
  }

  function lastValue({ ys, smooth, colour, run }) {
    const values = smoothed ? smooth : ys;
    const text = number(values[values.length - 1], 3);
    return el("span", { style: { color: `var(${colour})` }, title: `${run}: latest` }, text);
  }

  function summary() {
    const ends = series.map(({ run, ys }) => {
      const last = withUnit(ys[ys.length - 1], info.unit);
      return `${run} from ${number(ys[0])} to ${last}`;
    });
    return `${name}, ${ends.join("; ")}. Arrow keys move along the curve, Enter chooses the step.`;
  }

  function draw() {
    if (!series.length || !canvas.clientWidth) return;
    place = layout(canvas.clientWidth, canvas.clientHeight, series, store.get("zoom"));
    paint(canvas, place, series, smoothed);
    element.dataset.drawn = "true";
    showCursor();
  }

  function showCursor() {
    const hover = store.get("hover");
    const inside = hover && place && hover.x >= place.low && hover.x <= place.high;
    cursor.hidden = !inside;
    tip.hidden = !inside || hover.chart !== name;
    if (!inside) return;
    cursor.style.left = `${place.x(hover.x)}px`;
    if (!tip.hidden) showTip(hover.x);
  }

  function showTip(x) {
    const rows = series.map((each) => {
      const at = nearest(each.xs, x);
      const raw = withUnit(each.ys[at], info.unit);
      const value = smoothed ? `${number(each.smooth[at])} (${raw})` : raw;
      return { colour: each.colour, run: each.run, step: each.steps[at], value };
    });
    tip.replaceChildren(
      el("strong", {}, `step ${rows[0].step}`),
      ...rows.map(({ colour, run, value }) =>
        el("span", {}, el("i", { style: { background: `var(${colour})` } }), ` ${run} `, el("b", {}, value)),
      ),
    );
    const left = place.x(x);
    const right = left > canvas.clientWidth / 2;
    tip.style.left = right ? "" : `${left + 12}px`;
    tip.style.right = right ? `${canvas.clientWidth - left + 12}px` : "";
  }

  function listen() {
    let start = null;
    const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
    plot.addEventListener("pointermove", (event) => {
      if (!place) return;
      hoverAt(place.value(at(event)));
      if (start !== null) showBand(start, at(event));
    });
    plot.addEventListener("pointerleave", () => {
      start = null;
      band.hidden = true;
      store.set("hover", null);
    });
    plot.addEventListener("pointerdown", (event) => {
      start = at(event);
    });
    plot.addEventListener("pointerup", (event) => {
      if (start === null || !place) return;
      const ends = [start, at(event)].sort((a, b) => a - b).map(place.value);
      if (Math.abs(at(event) - start) >= LEAST_DRAG) store.set("zoom", ends);
      else choose();
      start = null;
      band.hidden = true;
    });
    plot.addEventListener("dblclick", () => store.set("zoom", null));
    plot.addEventListener("keydown", onKey);
    plot.addEventListener("blur", () => store.set("hover", null));
  }

  function showBand(from, to) {
    band.hidden = Math.abs(to - from) < LEAST_DRAG;
    band.style.left = `${Math.min(from, to)}px`;
    band.style.width = `${Math.abs(to - from)}px`;
  }

  function hoverAt(x) {
    if (!series.length) return;
    point = nearest(series[0].xs, x);
    store.set("hover", { x: series[0].xs[point], step: series[0].steps[point], chart: name });
  }

  function choose() {
    const hover = store.get("hover");
    if (hover) store.set("step", hover.step);
  }

  function onKey(event) {
    if (!series.length) return;
    const last = series[0].xs.length - 1;
    const stride = event.shiftKey ? Math.max(1, Math.round(last / 20)) : 1;
    const here = point ?? last + 1;
    const moves = { ArrowLeft: here - stride, ArrowRight: here + stride, Home: 0, End: last };
    if (event.key in moves) {
      hoverAt(series[0].xs[Math.min(Math.max(moves[event.key], 0), last)]);
      readout.textContent = tip.textContent;
    } else if (event.key === "Enter") choose();
    else if (event.key === "Escape") {
      store.set("zoom", null);
      store.set("hover", null);
    } else return;
    event.preventDefault();
  }
}

function describe({ meaning, unit, better }) {
  const words = [meaning, unit && unit !== "1" ? `in ${unit}` : "", better];
  return words.filter(Boolean).join(" · ");
}
