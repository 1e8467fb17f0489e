// Markdown blocks: from text to a tree of { type, … }. A subset of CommonMark with tables and task lists of GitHub's;
// HTML is text like any other. `render.js` makes elements of the tree.

const DEEPEST = 12;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const MARKER = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?! )|( +)|$)(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const blank = (line) => line.trim() === "";
const indent = (line) => /^ */.exec(line)[0].length;

/** The cells of a table row; `\|` and pipes in code do not separate. */
export function cells(line) {
  const parts = [];
  let cell = "";
  let ticks = 0;
  const text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    if (c === "\\" && text[i + 1] === "|") {
      cell += "|";
      i += 1;
    } else if (c === "|" && ticks % 2 === 0) {
      parts.push(cell.trim());
      cell = "";
    } else {
      if (c === "`") ticks += 1;
      cell += c;
    }
  }
  if (cell.trim() !== "" || parts.length === 0) parts.push(cell.trim());
  return parts;
}

function isTable(lines, at) {
  const [head, under] = [lines[at], lines[at + 1]];
  return under !== undefined && head.includes("|") && under.includes("-") && DELIMITER_ROW.test(under) && cells(head).length === cells(under).length;
}

/** Whether a line begins a block that ends a paragraph. */
function interrupts(line) {
  if (RULE.test(line) || HEADING.test(line) || FENCE.test(line) || QUOTE.test(line)) return true;
  const marker = MARKER.exec(line);
  return marker !== null && marker[5] !== "" && (!/\d/.test(marker[2]) || /^1[.)]/.test(marker[2]));
}

class Blocks {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
    this.at = 0;
  }

  parse() {
    const blocks = [];
    while (this.at < this.lines.length) {
      if (blank(this.lines[this.at])) {
        this.at += 1;
        continue;
      }
      const from = this.at;
      const block = this.block();
      block.raw = this.lines.slice(from, this.at).join("\n");
      blocks.push(block);
    }
    return blocks;
  }

  block() {
    const line = this.lines[this.at];
    const nests = this.depth < DEEPEST;
    if (FENCE.test(line)) return this.fence();
    if (HEADING.test(line)) return this.heading();
    if (RULE.test(line)) {
      this.at += 1;
      return { type: "rule" };
    }
    if (nests && QUOTE.test(line)) return this.quote();
    if (nests && MARKER.test(line)) return this.list();
    if (indent(line) >= 4) return this.indented();
    if (/^ {0,3}(\$\$|\\\[)[ \t]*$/.test(line)) return this.formula();
    if (isTable(this.lines, this.at)) return this.table();
    return this.paragraph();
  }

  fence() {
    const [, lead, mark, info] = FENCE.exec(this.lines[this.at]);
    const end = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
    const strip = new RegExp(`^ {0,${lead.length}}`);
    const text = [];
    let closed = false;
    this.at += 1;
    while (this.at < this.lines.length && !closed) {
      const line = this.lines[this.at];
      if (end.test(line)) closed = true;
      else text.push(lead.length ? line.replace(strip, "") : line);
      this.at += 1;
    }
    return { type: "code", lang: info.trim().split(/[\s{,]/)[0], text: text.join("\n"), closed };
  }

  formula() {
    const end = this.lines[this.at].includes("$$") ? "$$" : "\\]";
    const text = [];
    this.at += 1;
    while (this.at < this.lines.length && this.lines[this.at].trim() !== end) {
      text.push(this.lines[this.at]);
      this.at += 1;
    }
    this.at += 1;
    return { type: "math", text: text.join("\n") };
  }

  heading() {
    const [, marks, text] = HEADING.exec(this.lines[this.at]);
    this.at += 1;
    return { type: "heading", level: marks.length, text: text ?? "" };
  }

  indented() {
    const text = [];
    while (this.at < this.lines.length && (blank(this.lines[this.at]) || indent(this.lines[this.at]) >= 4)) {
      text.push(this.lines[this.at].slice(4));
      this.at += 1;
    }
    while (text.at(-1) === "") text.pop();
    return { type: "code", lang: "", text: text.join("\n"), closed: true };
  }

  quote() {
    const inner = [];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (QUOTE.test(line)) inner.push(line.replace(QUOTE, ""));
      else if (!blank(line) && inner.length > 0 && !blank(inner.at(-1)) && !interrupts(line)) inner.push(line);
      else break;
      this.at += 1;
    }
    return { type: "quote", blocks: new Blocks(inner, this.depth + 1).parse() };
  }

  list() {
    const first = MARKER.exec(this.lines[this.at]);
    const kind = first[2].at(-1);
    const ordered = /\d/.test(first[2]);
    const list = { type: "list", ordered, start: ordered ? Number.parseInt(first[2], 10) : 1, loose: false, items: [] };
    while (this.at < this.lines.length) {
      const marker = MARKER.exec(this.lines[this.at]);
      if (!marker || marker[2].at(-1) !== kind || RULE.test(this.lines[this.at])) break;
      this.item(marker, list);
    }
    return list;
  }

  item(marker, list) {
    const width = marker[1].length + marker[2].length + (marker[3]?.length ?? 1);
    const lines = [marker[4] ? `${marker[4].slice(1)}${marker[5]}` : marker[5]];
    let gap = false;
    this.at += 1;
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (blank(line)) {
        gap = true;
        lines.push("");
      } else if (indent(line) >= width) {
        lines.push(line.slice(width));
        gap = false;
      } else if (indent(line) >= 2 && indent(line) > marker[1].length && MARKER.test(line.trimStart())) {
        // Models often indent a list inside "1. " by two spaces, though three are due.
        lines.push(line.trimStart());
        gap = false;
      } else if (!gap && !interrupts(line) && !MARKER.test(line)) {
        lines.push(line.trimStart());
      } else {
        break;
      }
      this.at += 1;
    }
    const another = this.at < this.lines.length && MARKER.exec(this.lines[this.at])?.[2].at(-1) === marker[2].at(-1);
    const inner = lines.join("\n").trimEnd().split("\n");
    const task = /^\[([ xX])\][ \t]+/.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const blocks = new Blocks(inner, this.depth + 1).parse();
    if ((gap && another) || blocks.filter((block) => block.type === "paragraph").length > 1) list.loose = true;
    list.items.push({ blocks, task: task ? task[1] !== " " : null });
  }

  table() {
    const head = cells(this.lines[this.at]);
    const align = cells(this.lines[this.at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
    const rows = [];
    this.at += 2;
    while (this.at < this.lines.length && !blank(this.lines[this.at]) && !interrupts(this.lines[this.at])) {
      const row = cells(this.lines[this.at]).slice(0, head.length);
      while (row.length < head.length) row.push("");
      rows.push(row);
      this.at += 1;
    }
    return { type: "table", head, align, rows };
  }

  paragraph() {
    const text = [this.lines[this.at].trimStart()];
    this.at += 1;
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      // Dashes below a paragraph would be a heading too, but whoever writes them to a chat means a line.
      if (/^ {0,3}=+ *$/.test(line)) {
        this.at += 1;
        return { type: "heading", level: 1, text: text.join("\n") };
      }
      if (blank(line) || interrupts(line) || isTable(this.lines, this.at)) break;
      text.push(line.trimStart());
      this.at += 1;
    }
    return { type: "paragraph", text: text.join("\n").trimEnd() };
  }
}

/** Tabs that indent count as four spaces, except in code, where they stay what they are. */
function untab(lines) {
  let fence = "";
  return lines.map((line) => {
    const mark = /^\s*(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence) {
      if (mark.startsWith(fence)) fence = "";
      return line;
    }
    fence = mark;
    return line.replace(/^[ \t]+/, (lead) => lead.replaceAll("\t", "    "));
  });
}

/** The blocks of a text; `raw` of each is the source it came from. */
export function parseBlocks(text) {
  return new Blocks(untab(text.replace(/\r\n?/g, "\n").split("\n")), 0).parse();
}
