// From Markdown's tree to elements. While an answer streams, blocks that did not change keep their elements, so that
// a selection, a scrolled code block or a pressed copy button survives the next token.

import { copyButton, h } from "./dom.js";
import { highlight } from "./highlight.js";
import { parseInline, safeHref } from "./inline.js";
import { parseBlocks } from "./markdown.js";

const DEEPEST = 40;
// Beyond this, colouring at every frame would cost more than it helps.
const LONGEST_COLOURED = 60_000;

/** All text below nodes, however deep they are. */
function plainText(nodes) {
  let text = "";
  const open = [...nodes].reverse();
  while (open.length > 0) {
    const node = open.pop();
    if (node.text !== undefined) text += node.text;
    if (node.type === "break") text += "\n";
    if (node.children) open.push(...[...node.children].reverse());
  }
  return text;
}

function inline(nodes, depth) {
  if (depth > DEEPEST) return [plainText(nodes)];
  return nodes.map((node) => {
    switch (node.type) {
      case "text": return node.text;
      case "break": return h("br");
      case "code": return h("code", {}, node.text);
      case "math": return h("code", { class: "math" }, node.text);
      case "link": return link(node, depth);
      default: return h(node.type, {}, inline(node.children, depth + 1));
    }
  });
}

/** Pictures would be requests to other hosts, so they are shown as links; addresses of other kinds stay text. */
function link(node, depth) {
  const href = safeHref(node.href);
  const children = inline(node.children, depth + 1);
  const label = node.image ? ["Picture: ", ...(children.length ? children : [node.href])] : children;
  if (!href) return h("span", {}, label, ` (${node.href})`);
  return h("a", { href, title: node.title || undefined, target: "_blank", rel: "noopener noreferrer" }, label);
}

function code(block) {
  const pieces = block.text.length <= LONGEST_COLOURED ? highlight(block.text, block.lang) : [[block.text, ""]];
  const body = h("code", {}, pieces.map(([text, kind]) => (kind ? h("span", { class: `hl-${kind}` }, text) : text)));
  const label = block.lang || "text";
  return h("figure", { class: "code" },
    h("figcaption", {}, h("span", {}, label), copyButton("Copy code", () => block.text)),
    // Focusable, so that the keyboard can scroll it.
    h("pre", { tabindex: "0", role: "region", "aria-label": `Code, ${label}` }, body));
}

function list(block, depth) {
  const items = block.items.map((item) => {
    const tight = !block.loose;
    const content = item.blocks.flatMap((inner) => (tight && inner.type === "paragraph" ? inline(parseInline(inner.text), depth) : [element(inner, depth + 1)]));
    if (item.task === null) return h("li", {}, content);
    return h("li", { class: "task" }, h("input", { type: "checkbox", disabled: true, checked: item.task, "aria-label": item.task ? "Done" : "Not done" }), content);
  });
  return h(block.ordered ? "ol" : "ul", { start: block.ordered && block.start !== 1 ? block.start : undefined }, items);
}

function table(block) {
  const row = (tag, texts) => h("tr", {}, texts.map((text, i) => h(tag, { class: `align-${block.align[i]}`, scope: tag === "th" ? "col" : undefined }, inline(parseInline(text), 0))));
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", block.head)), h("tbody", {}, block.rows.map((texts) => row("td", texts)))));
}

function element(block, depth) {
  switch (block.type) {
    // The page has headings of its own; those of an answer come below them.
    case "heading": return h(`h${Math.min(6, block.level + 1)}`, { class: `h${block.level}` }, inline(parseInline(block.text), 0));
    case "code": return code(block);
    case "math": return h("pre", { class: "math", tabindex: "0" }, block.text);
    case "quote": return h("blockquote", {}, block.blocks.map((inner) => element(inner, depth + 1)));
    case "list": return list(block, depth);
    case "table": return table(block);
    case "rule": return h("hr");
    default: return h("p", {}, inline(parseInline(block.text), 0));
  }
}

/** Shows a growing Markdown text inside an element. */
export class MarkdownView {
  #shown = [];

  constructor(root) {
    this.root = root;
    root.classList.add("markdown");
  }

  /** Brings the element up to date with the text. */
  update(text) {
    const blocks = parseBlocks(text);
    blocks.forEach((block, i) => {
      const before = this.#shown[i];
      if (before && before.raw === block.raw && before.type === block.type) return;
      const made = element(block, 0);
      if (before) before.element.replaceWith(made);
      else this.root.append(made);
      this.#shown[i] = { raw: block.raw, type: block.type, element: made };
    });
    for (const extra of this.#shown.splice(blocks.length)) extra.element.remove();
  }
}
