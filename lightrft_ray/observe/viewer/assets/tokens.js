// A response by token, coloured by one of the values that each token has.

import { el, select } from "./dom.js";
import { number } from "./format.js";

const MOST = 3000; // tokens shown at once
const VIEWS = [
  { key: "rollout_log_prob", title: "log-prob in the rollout", kind: "log_prob", of: own("rollout_log_prob") },
  { key: "learner_log_prob", title: "log-prob of the learner", kind: "log_prob", of: own("learner_log_prob") },
  { key: "reference_log_prob", title: "log-prob of the reference", kind: "log_prob", of: own("reference_log_prob") },
  { key: "gap", title: "learner − rollout", kind: "signed", of: difference("learner_log_prob", "rollout_log_prob") },
  { key: "drift", title: "rollout − reference", kind: "signed", of: difference("rollout_log_prob", "reference_log_prob") },
  { key: "entropy", title: "entropy", kind: "amount", of: own("entropy") },
  { key: "advantage", title: "advantage", kind: "signed", of: own("advantage") },
  { key: "weight_version", title: "weight version", kind: "version", of: own("weight_version") },
];
let preferred = "rollout_log_prob"; // from one sample to the next

function own(key) {
  return (tokens) => tokens[key];
}

function difference(a, b) {
  return (tokens) => tokens[a] && tokens[b] && tokens[a].map((value, place) => minus(value, tokens[b][place]));
}

function minus(a, b) {
  return a === null || b === null || a === undefined || b === undefined ? null : a - b;
}

export function tokenView(tokens) {
  const views = VIEWS.map((view) => ({ ...view, values: view.of(tokens) })).filter(({ values }) => values?.some((value) => value !== null));
  const text = el("div", { class: "tokens", role: "group", "aria-label": "Response by token; arrow keys move" });
  const inspector = el("p", { class: "inspector", "aria-live": "polite" }, "Point at a token, or move with the arrow keys.");
  const legend = el("p", { class: "scale" });
  const shown = tokens.text.slice(0, MOST).map((each, place) => token(each, place));
  text.append(...shown);
  text.addEventListener("pointerover", (event) => inspect(shown.indexOf(event.target)));
  text.addEventListener("focusin", (event) => inspect(shown.indexOf(event.target)));
  text.addEventListener("keydown", onKey);
  if (shown.length) shown[0].tabIndex = 0;
  const options = [["", "nothing"], ...views.map(({ key, title }) => [key, title])];
  const start = views.some(({ key }) => key === preferred) ? preferred : (views[0]?.key ?? "");
  const choice = select("Colour by", options, start, paint);
  paint(start);
  const cut = tokens.text.length > MOST ? el("p", { class: "note" }, `The first ${MOST} of ${tokens.text.length} tokens.`) : null;
  return el("div", {}, el("div", { class: "controls" }, choice, legend), text, cut, inspector);

  function paint(key) {
    preferred = key || preferred;
    const view = views.find((each) => each.key === key);
    const scale = view ? scaleOf(view) : null;
    shown.forEach((element, place) => colour(element, view ? view.values[place] : null, scale));
    legend.replaceChildren(...(scale ? scale.legend : []));
  }

  function inspect(place) {
    if (place < 0) return;
    const values = views.map(({ title, values }) => el("span", {}, `${title} `, el("b", {}, number(values[place]))));
    const name = el("code", {}, JSON.stringify(tokens.text[place]));
    inspector.replaceChildren(name, el("span", {}, `token ${place + 1}, id ${tokens.id[place] ?? "–"}`), ...values);
  }

  function onKey(event) {
    const here = shown.indexOf(event.target);
    const moves = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: shown.length - 1 };
    const next = shown[moves[event.key]];
    if (here < 0 || !next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

function token(text, place) {
  const visible = text.replace(/\n/g, "⏎\n").replace(/\t/g, "⇥");
  return el("span", { class: "token", tabindex: -1, "data-place": place }, visible === "" ? "∅" : visible);
}

function colour(element, value, scale) {
  element.classList.remove("less", "more", "unknown");
  element.style.removeProperty("--strength");
  if (!scale) return;
  if (value === null || value === undefined) {
    element.classList.add("unknown");
    return;
  }
  const strength = scale.strength(value);
  element.classList.add(strength < 0 ? "less" : "more");
  element.style.setProperty("--strength", `${Math.round(Math.min(Math.abs(strength), 1) * 70)}%`);
}

// How strongly, from -1 to 1, a value is coloured: what a person should look at stands out.
function scaleOf({ kind, values }) {
  const known = values.filter((value) => value !== null);
  const sizes = known.map(Math.abs).sort((a, b) => a - b);
  const top = sizes[Math.floor(0.98 * (sizes.length - 1))] || sizes[sizes.length - 1] || 1;
  if (kind === "version") return versionScale(known);
  if (kind === "signed") return { strength: (value) => value / top, legend: ends(`−${number(top, 3)}`, `+${number(top, 3)}`, "ramp signed") };
  if (kind === "amount") return { strength: (value) => value / top, legend: ends("0", number(top, 3), "ramp") };
  return { strength: (value) => value / top, legend: ends("0: certain", `−${number(top, 3)}: unlikely`, "ramp low") };
}

function versionScale(known) {
  const versions = [...new Set(known)].sort((a, b) => a - b);
  const last = versions.length - 1;
  const strength = (value) => (last ? 0.15 + (0.85 * versions.indexOf(value)) / last : 0.3);
  return { strength, legend: ends(`version ${versions[0]}`, `${versions[last]}`, "ramp") };
}

function ends(low, high, ramp) {
  return [el("span", {}, low), el("i", { class: ramp }), el("span", {}, high)];
}
