// Markdown inside a paragraph: from text to nodes { type, … }. Emphasis follows CommonMark's delimiter rules.
// Every step is linear in the text, so that no answer can stall the page.

const ESCAPABLE = /[!"#$%&'()*+,\-./:;<=>?@[\\\]^_`{|}~]/;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/u;
const SPECIAL = /[\\`*_~[\]!<&$\nhw]/g;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", mdash: "—", ndash: "–", hellip: "…", times: "×" };

/** Addresses that a click may open; anything else stays text. */
export function safeHref(href) {
  return /^(https?:\/\/|mailto:)/i.test(href) && !/[\u0000-\u0020]/.test(href) ? href : null;
}

/** Where runs of backticks are, so that an opening one finds its end without searching. */
function backtickRuns(text) {
  const runs = new Map();
  for (const match of text.matchAll(/`+/g)) {
    const list = runs.get(match[0].length) ?? [];
    list.push(match.index);
    runs.set(match[0].length, list);
  }
  for (const list of runs.values()) list.reverse();
  return runs;
}

class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.nodes = [];
    this.plain = "";
    this.brackets = [];
    this.ticks = backtickRuns(text);
    this.lastMath = { "\\)": text.lastIndexOf("\\)"), "\\]": text.lastIndexOf("\\]"), "$$": text.lastIndexOf("$$") };
  }

  flush() {
    if (this.plain) this.nodes.push({ type: "text", text: this.plain });
    this.plain = "";
  }

  add(node) {
    this.flush();
    this.nodes.push(node);
  }

  parse() {
    const { text } = this;
    while (this.at < text.length) {
      SPECIAL.lastIndex = this.at;
      const next = SPECIAL.exec(text)?.index ?? text.length;
      this.plain += text.slice(this.at, next);
      this.at = next;
      if (next < text.length && !this.special(text[next])) {
        this.plain += text[next];
        this.at = next + 1;
      }
    }
    this.flush();
    return emphasis(this.nodes);
  }

  /** Takes what begins here and moves on; false if it is only a character. */
  special(c) {
    switch (c) {
      case "\\": return this.backslash();
      case "`": return this.code();
      case "*": case "_": case "~": return this.delimiter(c);
      case "!": return this.text[this.at + 1] === "[" && this.open(true);
      case "[": return this.open(false);
      case "]": return this.close();
      case "<": return this.angle();
      case "&": return this.entity();
      case "$": return this.text[this.at + 1] === "$" ? this.math("$$", "$$") : this.dollar();
      case "\n": return this.newline();
      default: return this.bareLink();
    }
  }

  backslash() {
    const next = this.text[this.at + 1];
    if (next === "(" && this.math("\\(", "\\)")) return true;
    if (next === "[" && this.math("\\[", "\\]")) return true;
    if (next === "\n") {
      this.add({ type: "break" });
      this.at += 2;
      return true;
    }
    if (next === undefined || !ESCAPABLE.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  /** Formulas are not set, but kept whole, so that their underscores and stars stay what they are. */
  math(open, close) {
    const from = this.at + open.length;
    if (this.lastMath[close] < from) return false;
    const end = this.text.indexOf(close, from);
    if (end <= from) return false;
    this.add({ type: "math", text: this.text.slice(from, end).trim() });
    this.at = end + close.length;
    return true;
  }

  /** `$x_1$`, but not "$5 and $6": no space inside the marks, no digit after them, all on one line. */
  dollar() {
    const match = /^\$(?![\s$])([^$\n]{1,200})(?<!\s)\$(?![\d$])/.exec(this.text.slice(this.at, this.at + 204));
    if (!match) return false;
    this.add({ type: "math", text: match[1] });
    this.at += match[0].length;
    return true;
  }

  code() {
    const length = /^`+/.exec(this.text.slice(this.at, this.at + 64))[0].length;
    const list = this.ticks.get(length) ?? [];
    while (list.length > 0 && list.at(-1) <= this.at) list.pop();
    const end = list.at(-1);
    if (end === undefined) {
      this.plain += "`".repeat(length);
      this.at += length;
      return true;
    }
    let text = this.text.slice(this.at + length, end).replace(/\n/g, " ");
    if (text.startsWith(" ") && text.endsWith(" ") && text.trim() !== "") text = text.slice(1, -1);
    this.add({ type: "code", text });
    this.at = end + length;
    return true;
  }

  delimiter(c) {
    const from = this.at;
    let end = from;
    while (this.text[end] === c) end += 1;
    const count = end - from;
    if (c === "~" && count !== 2) {
      this.plain += c.repeat(count);
      this.at = end;
      return true;
    }
    const before = from === 0 ? " " : this.text[from - 1];
    const after = end >= this.text.length ? " " : this.text[end];
    const left = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
    const right = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
    const underscore = c === "_";
    this.add({
      type: "delimiter", c, count, length: count,
      opens: left && (!underscore || !right || PUNCTUATION.test(before)),
      closes: right && (!underscore || !left || PUNCTUATION.test(after)),
    });
    this.at = end;
    return true;
  }

  open(image) {
    this.add({ type: "bracket", image });
    this.brackets.push(this.nodes.length - 1);
    this.at += image ? 2 : 1;
    return true;
  }

  close() {
    const opener = this.brackets.pop();
    const target = opener !== undefined && this.text[this.at + 1] === "(" ? this.target() : null;
    if (!target) return false;
    this.flush();
    const { image } = this.nodes[opener];
    const children = emphasis(this.nodes.splice(opener).slice(1));
    this.nodes.push({ type: "link", image, href: target.href, title: target.title, children });
    // Links do not nest.
    if (!image) this.brackets = this.brackets.filter((at) => this.nodes[at].image);
    this.at = target.end;
    return true;
  }

  /** The `(address "title")` after a closing bracket. */
  target() {
    const rest = this.text.slice(this.at + 2, this.at + 2 + 4096);
    const match = /^\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:\s+(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'))?\s*\)/.exec(rest);
    if (!match) return null;
    const href = (match[1] ?? match[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1");
    return { href, title: match[3] ?? match[4] ?? "", end: this.at + 2 + match[0].length };
  }

  angle() {
    const rest = this.text.slice(this.at, this.at + 2048);
    const link = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i.exec(rest);
    if (link) {
      this.add({ type: "link", href: link[1], title: "", children: [{ type: "text", text: link[1] }] });
      this.at += link[0].length;
      return true;
    }
    // The one tag that models use inside tables.
    const br = /^<br\s*\/?>/i.exec(rest);
    if (!br) return false;
    this.add({ type: "break" });
    this.at += br[0].length;
    return true;
  }

  entity() {
    const match = /^&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,6}));/i.exec(this.text.slice(this.at, this.at + 12));
    if (!match) return false;
    let character = match[3] ? ENTITIES[match[3].toLowerCase()] : "";
    if (!match[3]) {
      const point = match[1] ? Number(match[1]) : Number.parseInt(match[2], 16);
      character = point > 0 && point <= 0x10ffff && !(point >= 0xd800 && point <= 0xdfff) ? String.fromCodePoint(point) : "\ufffd";
    }
    if (!character) return false;
    this.plain += character;
    this.at += match[0].length;
    return true;
  }

  newline() {
    const hard = this.plain.endsWith("  ");
    this.plain = this.plain.trimEnd();
    if (hard) this.add({ type: "break" });
    else this.plain += "\n";
    this.at += 1;
    while (this.text[this.at] === " ") this.at += 1;
    return true;
  }

  bareLink() {
    const before = this.at === 0 ? " " : this.text[this.at - 1];
    if (!/[\s(*_~"'>]/.test(before)) return false;
    const match = /^(?:https?:\/\/|www\.)[^\s<>"`]+/i.exec(this.text.slice(this.at, this.at + 2048));
    if (!match) return false;
    let shown = match[0].replace(/[.,:;!?'*_~\]]+$/, "");
    // A closing parenthesis belongs to the sentence unless the address opened it.
    while (shown.endsWith(")") && shown.split(")").length > shown.split("(").length) shown = shown.slice(0, -1).replace(/[.,:;!?]+$/, "");
    if (shown.length < 6) return false;
    this.add({ type: "link", href: /^www/i.test(shown) ? `https://${shown}` : shown, title: "", children: [{ type: "text", text: shown }] });
    this.at += shown.length;
    return true;
  }
}

/** Pairs delimiters into emphasis; what is left of them becomes text. */
function emphasis(nodes) {
  const out = [];
  const openers = [];
  for (const node of nodes) {
    if (node.type === "bracket") {
      out.push({ type: "text", text: node.image ? "![" : "[" });
      continue;
    }
    if (node.type !== "delimiter") {
      out.push(node);
      continue;
    }
    if (node.closes) close(node, out, openers);
    if (node.count > 0) {
      if (node.opens) openers.push(out.length);
      out.push(node);
    }
  }
  return out.map((node) => (node.type === "delimiter" ? { type: "text", text: node.c.repeat(node.count) } : node));
}

function close(node, out, openers) {
  while (node.count > 0) {
    // A few openers back is enough for real text, and bounds the work for the rest.
    let found = -1;
    for (let i = openers.length - 1; i >= Math.max(0, openers.length - 40); i -= 1) {
      const opener = out[openers[i]];
      const thirds = (opener.closes || node.opens) && (opener.length + node.length) % 3 === 0 && (opener.length % 3 !== 0 || node.length % 3 !== 0);
      if (opener.c === node.c && opener.count > 0 && !thirds) {
        found = i;
        break;
      }
    }
    if (found < 0) return;
    const at = openers[found];
    const opener = out[at];
    const used = opener.count >= 2 && node.count >= 2 ? 2 : 1;
    const children = out.splice(at + 1).map((child) => (child.type === "delimiter" ? { type: "text", text: child.c.repeat(child.count) } : child));
    openers.length = opener.count > used ? found + 1 : found;
    opener.count -= used;
    node.count -= used;
    if (opener.count === 0) out.pop();
    out.push({ type: node.c === "~" ? "del" : used === 2 ? "strong" : "em", children });
  }
}

/** The nodes of a paragraph's text. */
export function parseInline(text) {
  return new Inline(text).parse();
}
