// Which samples are shown: one step or all, by rule, reward, end and text.

import { el, later, select } from "./dom.js";

const RULES = [["", "any"], ["best", "best"], ["worst", "worst"], ["random", "random"], ["failed", "failed"]];
const ENDS = [["", "any"], ["stop", "stop"], ["length", "length (cut)"]];

export const ALL_STEPS = "all";

export function matches(sample, { rule, end, least, most, text }) {
  if (rule && !sample.rules.includes(rule)) return false;
  if (end && sample.finish_reason !== end) return false;
  if (least !== null && !(sample.reward !== null && sample.reward >= least)) return false;
  if (most !== null && !(sample.reward !== null && sample.reward <= most)) return false;
  return !text || haystack(sample).includes(text);
}

function haystack(sample) {
  const prompt = sample.prompt.map((part) => part.text);
  return [...prompt, sample.response, sample.reference, sample.label, sample.prompt_id].join("\n").toLowerCase();
}

export function filterBar(onChange) {
  const filter = { rule: "", end: "", least: null, most: null, text: "" };
  const search = el("input", { type: "search", placeholder: "in prompts and responses", on: { input: later(readText, 200) } });
  const least = bound("at least", (value) => set("least", value));
  const most = bound("at most", (value) => set("most", value));
  const element = el(
    "div",
    { class: "controls", role: "search", "aria-label": "Samples" },
    el("label", { class: "field grow" }, el("span", {}, "Search"), search),
    select("Chosen as", RULES, "", (value) => set("rule", value)),
    select("Ended by", ENDS, "", (value) => set("end", value)),
    el("fieldset", { class: "field" }, el("legend", {}, "Reward"), least, most),
  );
  return { element, filter };

  function readText() {
    set("text", search.value.toLowerCase());
  }

  function set(key, value) {
    filter[key] = value;
    onChange();
  }
}

function bound(label, onChange) {
  const read = later(() => onChange(input.value === "" ? null : Number(input.value)), 200);
  const input = el("input", { type: "number", step: "any", "aria-label": `Reward ${label}`, placeholder: label, on: { input: read } });
  return input;
}
