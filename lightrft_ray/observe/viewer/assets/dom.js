// Elements. Texts only ever become text nodes, so that what a model wrote cannot become markup.

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) setProperty(element, name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function setProperty(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (name === "style") {
    // One by one: a style attribute is refused by the content security policy.
    for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

export function section(id, title, ...children) {
  const heading = el("h2", { id: `${id}-title` }, title);
  return el("section", { id, "aria-labelledby": `${id}-title` }, heading, ...children);
}

// A name that a narrow line may be broken in, behind its slashes and underscores.
export function breakable(name) {
  return name.split(/(?<=[/_])/).flatMap((part) => [el("wbr"), part]);
}

export function select(label, options, value, onChange) {
  const control = el(
    "select",
    { on: { change: () => onChange(control.value) } },
    options.map(([key, text]) => el("option", { value: key }, text)),
  );
  control.value = value;
  return el("label", { class: "field" }, el("span", {}, label), control);
}

export function later(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}
