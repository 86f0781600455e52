// One sample in full: its prompt with pictures, its response by token, what its reward is made of.

import { el } from "./dom.js";
import { number } from "./format.js";
import { picture } from "./picture.js";
import { tokenView } from "./tokens.js";

export function sampleDetail(sample, image) {
  return el(
    "article",
    { class: "card sample", "aria-label": `Sample ${sample.sample_index} of prompt ${sample.prompt_id}` },
    el("h3", {}, `Step ${sample.step}`, el("small", {}, ` prompt ${sample.prompt_id} · epoch ${sample.epoch} · sample ${sample.sample_index}`)),
    facts(sample),
    el("h4", {}, "Prompt"),
    el("div", { class: "prompt" }, promptParts(sample.prompt, image)),
    el("h4", {}, "Response"),
    sample.tokens.text.length ? tokenView(sample.tokens) : el("pre", { class: "plain" }, sample.response || "(empty)"),
  );
}

function facts(sample) {
  const components = Object.entries(sample.reward_components).map(([name, value]) => [name, number(value)]);
  const pairs = [
    ["reward", sample.reward === null ? "none: masked" : number(sample.reward)],
    ...components,
    ["reference", sample.reference],
    ["label", sample.label],
    ["ended by", sample.finish_reason],
    ["tokens", sample.tokens.text.length ? number(sample.tokens.text.length) : ""],
  ].filter(([, value]) => value !== "");
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// Who speaks is said where it changes, and not at all where nobody but the user does.
function promptParts(parts, image) {
  const isConversation = parts.some(({ role }) => role && role !== "user");
  return parts.flatMap((part, place) => {
    const isNew = isConversation && part.role && part.role !== parts[place - 1]?.role;
    return [isNew ? el("p", { class: "role" }, part.role) : null, promptPart(part, place, image)];
  });
}

function promptPart(part, place, image) {
  if (part.type === "text") return el("p", {}, part.text);
  const files = part.files.length ? part.files : [part.file];
  const what = part.type === "video" ? "frame" : "picture";
  return el("div", { class: "pictures" }, files.map((file, index) => picture(file, `${what} ${index + 1} of part ${place + 1} of the prompt`, image)));
}
