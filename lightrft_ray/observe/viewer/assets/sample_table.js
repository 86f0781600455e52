// A table of samples: sorted by its heads, walked by the arrow keys.

import { el } from "./dom.js";
import { excerpt, number } from "./format.js";
import { picture } from "./picture.js";

const COLUMNS = [
  ["step", "step", (sample) => sample.step],
  ["chosen as", "rules", (sample) => sample.rules.join(" ")],
  ["prompt", "prompt", (sample) => promptText(sample)],
  ["response", "response", (sample) => sample.response],
  ["reference", "reference", (sample) => sample.reference],
  ["reward", "reward", (sample) => sample.reward],
  ["tokens", "length", (sample) => sample.tokens.text.length],
];

export function promptText(sample) {
  return sample.prompt.map((part) => part.text).join(" ");
}

export function sampleTable(onOpen, image) {
  let rows = []; // of { sample, element }
  let sorted = { column: null, down: false };
  const body = el("tbody", { on: { keydown: onKey } });
  const heads = COLUMNS.map(([title], place) =>
    el("th", { scope: "col" }, el("button", { type: "button", on: { click: () => sortBy(place) } }, title)),
  );
  const element = el("table", { class: "samples" }, el("thead", {}, el("tr", {}, heads)), body);
  return { element, append, clear };

  function append(samples) {
    const added = samples.map((sample) => ({ sample, element: row(sample) }));
    rows = rows.concat(added);
    if (sorted.column === null) body.append(...added.map((each) => each.element));
    else arrange();
    const first = body.firstElementChild;
    if (first && !body.querySelector("[aria-selected=true]")) open(first, false);
  }

  function clear() {
    rows = [];
    body.replaceChildren();
  }

  function row(sample) {
    const cells = COLUMNS.map(([, key, value]) => el("td", { class: `of-${key}` }, cell(key, value(sample), sample)));
    return el("tr", { tabindex: -1, "aria-selected": "false", on: { click: (event) => open(event.currentTarget, true) } }, cells);
  }

  function cell(key, value, sample) {
    if (key === "rules") return sample.rules.map((rule) => el("span", { class: `rule ${ruleClass(rule)}` }, rule));
    if (key === "reward") return reward(value);
    if (key === "length") return length(value, sample.finish_reason);
    if (key === "prompt") return [thumbnail(sample), el("span", {}, excerpt(value, 90))];
    return typeof value === "string" ? excerpt(value, key === "response" ? 110 : 40) : number(value);
  }

  function thumbnail(sample) {
    const part = sample.prompt.find(({ file, files }) => file || files.length);
    return part ? picture(part.file || part.files[0], "", image) : null;
  }

  function open(chosen, focus) {
    for (const { element: each } of rows) {
      each.setAttribute("aria-selected", String(each === chosen));
      each.tabIndex = each === chosen ? 0 : -1;
    }
    if (focus) chosen.focus();
    onOpen(rows.find((each) => each.element === chosen).sample);
  }

  function onKey(event) {
    const here = event.target.closest("tr");
    const moves = {
      ArrowDown: here?.nextElementSibling,
      ArrowUp: here?.previousElementSibling,
      Home: body.firstElementChild,
      End: body.lastElementChild,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    if (moves[event.key]) open(moves[event.key], true);
  }

  function sortBy(column) {
    sorted = { column, down: sorted.column === column ? !sorted.down : true };
    heads.forEach((head, place) => {
      if (place !== column) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    });
    arrange();
  }

  function arrange() {
    const value = COLUMNS[sorted.column][2];
    const sign = sorted.down ? -1 : 1;
    rows.sort((a, b) => sign * compare(value(a.sample), value(b.sample)));
    body.replaceChildren(...rows.map((each) => each.element));
  }
}

function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b);
  return (a ?? -Infinity) === (b ?? -Infinity) ? 0 : (a ?? -Infinity) - (b ?? -Infinity);
}

function length(count, end) {
  return [number(count), end === "length" ? el("small", { title: "by the length limit" }, " cut") : null];
}

function ruleClass(rule) {
  return ["best", "worst", "random", "failed"].includes(rule) ? rule : "";
}

function reward(value) {
  return value === null ? el("span", { class: "failed" }, "none") : el("span", {}, number(value, 3));
}
