// Making elements. Text only ever becomes a text node: nothing in these pages parses a string as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

/** An HTML element with attributes (`on` holds event handlers) and children (strings become text). */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A picture from the page's sprite; decoration only, so hidden from screen readers. */
export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `#icon-${name}` }));
}

/** A button that shows a picture and is called `label`. */
export function iconButton(name, label, click, attributes = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click }, ...attributes }, icon(name));
}

/** The element with this id, which the page must have. */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element;
}

/** Has screen readers say a sentence when they are next idle. */
export function announce(text) {
  const region = byId("announcer");
  region.textContent = "";
  // A change in a later task is noticed even when the text is the same as before.
  setTimeout(() => { region.textContent = text; }, 50);
}

/** Shows a short message for some seconds, with one action at most. */
export function toast(text, action = null, seconds = 8) {
  const box = byId("toasts");
  const item = h("div", { class: "toast" }, h("span", {}, text));
  const close = () => item.remove();
  if (action) item.append(h("button", { type: "button", class: "link-button", on: { click: () => { close(); action.run(); } } }, action.label));
  item.append(iconButton("close", "Dismiss", close));
  box.append(item);
  setTimeout(close, seconds * 1000);
}

/** Copies text; says whether that worked. Plain HTTP to another host has no clipboard API, hence the second way. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused by the browser: the older way may still be allowed.
    }
  }
  const area = h("textarea", { class: "off-screen", value: text, "aria-hidden": "true" });
  const before = document.activeElement;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  before?.focus?.();
  return copied;
}

/** A copy button that says for a moment that it has copied. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const copied = await copyText(text());
    button.replaceChildren(icon(copied ? "check" : "close"));
    announce(copied ? "Copied" : "The browser does not allow copying");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

/** Offers a text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
