// A picture of a prompt; where its file is missing, words in its place.

import { el } from "./dom.js";

export function picture(file, label, image) {
  const address = image(file);
  if (address === null) return missing(file);
  const element = el("img", { src: address, alt: label, decoding: "async" });
  element.addEventListener("error", () => element.replaceWith(missing(file)));
  return element;
}

function missing(file) {
  return el("span", { class: "missing", title: file }, "picture missing");
}
