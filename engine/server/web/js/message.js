// How one message looks.

import { copyButton, h, icon, iconButton } from "./dom.js";
import { count, plural, rate, seconds } from "./format.js";
import { MarkdownView } from "./render.js";
import { readCost } from "./shapes.js";
import { versionOf } from "./tree.js";

/** Sets text only where it differs, so that a selection in it survives. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The buttons that lead to the other versions of a message. */
function versions(conversation, node, go) {
  const { at, of } = versionOf(conversation, node);
  if (of < 2) return null;
  return h("span", { class: "versions", role: "group", "aria-label": "Versions" },
    iconButton("left", "Version before", () => go(-1), { disabled: at === 1 }),
    h("span", { "aria-label": `Version ${at} of ${of}` }, `${at}/${of}`),
    iconButton("right", "Next version", () => go(1), { disabled: at === of }));
}

/** A message of the user, which can be edited in place. */
export class UserView {
  #foot = h("div", { class: "actions" });
  #body = h("div", { class: "bubble" });

  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.element = h("article", { class: "message user", "aria-label": "You", "data-id": node.id }, this.#body, this.#foot);
    setText(this.#body, node.content);
  }

  update({ conversation, busy }) {
    this.#foot.replaceChildren(
      ...[versions(conversation, this.node, (step) => this.actions.version(this.node, step)),
        copyButton("Copy message", () => this.node.content),
        iconButton("edit", "Edit message", () => this.edit(), { disabled: busy })].filter(Boolean));
  }

  /** Turns the message into a field. Sending makes a new version; the old one stays beside it. */
  edit() {
    if (this.element.querySelector("form")) return;
    const field = h("textarea", { "aria-label": "Edit message", value: this.node.content, rows: Math.min(12, this.node.content.split("\n").length + 1) });
    const close = () => {
      form.remove();
      this.#body.hidden = this.#foot.hidden = false;
      this.#foot.querySelector('[aria-label="Edit message"]')?.focus();
    };
    const send = () => {
      const text = field.value.trim();
      close();
      if (text) this.actions.edited(this.node, text);
    };
    const form = h("form", { class: "edit", on: { submit: (event) => { event.preventDefault(); send(); } } }, field,
      h("p", { class: "quiet" }, "What followed stays as another version."),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "button", on: { click: close } }, "Cancel"), h("button", { type: "submit", class: "button primary" }, "Send")));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && !event.isComposing && (event.ctrlKey || event.metaKey || (this.actions.enterSends() && !event.shiftKey))) {
        event.preventDefault();
        send();
      }
    });
    this.#body.hidden = this.#foot.hidden = true;
    this.element.append(form);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

/** What a tool returned. */
export class ToolView {
  constructor(node) {
    this.node = node;
    this.element = h("article", { class: "message tool", "aria-label": `Result of ${node.name}`, "data-id": node.id },
      h("div", { class: "card" }, h("header", {}, icon("tool"), h("span", {}, "Result of ", h("code", {}, node.name))), h("pre", { tabindex: "0" }, node.content)));
  }

  update() {}
}

function prettyArguments(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** An answer: thinking, text, tool calls, what went wrong, and what it cost. */
export class AnswerView {
  #status = h("p", { class: "phase" });
  #bar = h("progress", { class: "reading", max: 1, "aria-label": "Prompt read" });
  #summary = h("span", {});
  #thoughts = h("div", { class: "thoughts" });
  #thinking = h("details", { class: "thinking" }, h("summary", {}, icon("right"), this.#summary), this.#thoughts);
  #body = h("div", { class: "body" });
  #calls = h("div", { class: "calls" });
  #note = h("div", { class: "note" });
  #foot = h("div", { class: "actions" });
  #text = new MarkdownView(this.#body);
  #thoughtText = new MarkdownView(this.#thoughts);
  #shown = {};

  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.element = h("article", { class: "message answer", "aria-label": "Answer", "data-id": node.id },
      this.#status, this.#bar, this.#thinking, this.#body, this.#calls, this.#note, this.#foot);
    this.#thinking.addEventListener("toggle", () => this.#think());
  }

  /** Runs `draw` only when what it depends on has changed. */
  #once(name, key, draw) {
    const value = JSON.stringify(key);
    if (this.#shown[name] === value) return;
    this.#shown[name] = value;
    draw();
  }

  update(context) {
    const { node } = this;
    const running = node.state === "running";
    this.element.setAttribute("aria-busy", String(running));
    this.#phase(running, context);
    this.#think();
    this.#text.update(node.content);
    this.#body.classList.toggle("growing", running && node.phase === "writing");
    this.#once("calls", [node.tools, node.state, context.last, context.busy], () => this.#toolCalls(context));
    this.#once("note", [node.state, node.error, node.finish, context.busy], () => this.#notes(context));
    const { at, of } = versionOf(context.conversation, node);
    this.#once("foot", [node.state, at, of, node.timings, context.busy, node.content === ""], () => this.#footer(context, running));
  }

  #phase(running, { queue, elsewhere }) {
    const { node } = this;
    const reading = running && node.phase === "reading" && node.progress?.of > 0;
    let text = "";
    if (running && elsewhere) text = "Being written in another tab";
    else if (reading) text = `Reading the prompt: ${count(node.progress.read)} of ${plural(node.progress.of, "token")}`;
    else if (running && node.phase === "waiting") text = queue > 0 ? `In the queue: ${plural(queue, "request")} waiting` : "Waiting for the first word";
    this.#status.hidden = text === "";
    setText(this.#status, text);
    this.#bar.hidden = !reading;
    if (reading) this.#bar.value = Math.min(1, node.progress.read / node.progress.of);
  }

  #think() {
    const { node } = this;
    this.#thinking.hidden = !node.thinking;
    if (!node.thinking) return;
    const busy = node.state === "running" && node.phase === "thinking";
    const tokens = node.usage?.completion_tokens_details?.reasoning_tokens;
    const length = tokens ? plural(tokens, "token") : plural(node.thinking.split(/\s+/).filter(Boolean).length, "word");
    const time = node.thinkingSeconds === null || node.thinkingSeconds === undefined ? "" : ` for ${seconds(node.thinkingSeconds)}`;
    setText(this.#summary, busy ? `Thinking… ${length}` : `Thought${time} · ${length}`);
    this.#thinking.classList.toggle("busy", busy);
    if (this.#thinking.open) this.#thoughtText.update(node.thinking);
  }

  #toolCalls({ last, busy }) {
    const { node } = this;
    const cards = (node.tools ?? []).map((call) => h("div", { class: "card" },
      h("header", {}, icon("tool"), h("span", {}, "Calls ", h("code", {}, call.name || "…")), copyButton("Copy arguments", () => call.arguments)),
      h("pre", { tabindex: "0" }, prettyArguments(call.arguments))));
    this.#calls.replaceChildren(...cards);
    if (cards.length === 0 || !last || busy || node.state !== "done") return;
    const which = (i) => (node.tools.length > 1 ? `, call ${i + 1}` : "");
    const fields = node.tools.map((call, i) => h("textarea", { rows: 2, class: "mono", "aria-label": `Result of ${call.name}${which(i)}`, placeholder: `What ${call.name} returns${which(i)}` }));
    const submit = (event) => {
      event.preventDefault();
      this.actions.results(this.node, fields.map((field) => field.value));
    };
    this.#calls.append(h("form", { class: "results", on: { submit } }, fields, h("div", { class: "buttons" }, h("button", { type: "submit", class: "button primary" }, fields.length > 1 ? "Send results" : "Send result"))));
  }

  #notes({ busy }) {
    const { node } = this;
    const texts = {
      stopped: "Stopped.",
      broken: "Broken off: the page was closed or reloaded while this was written.",
      failed: node.error?.message ?? "The answer failed.",
    };
    let text = texts[node.state] ?? "";
    if (node.state === "done" && node.finish === "length") text = "Ended at the most tokens an answer may have, or at the end of the context.";
    if (node.state === "done" && !node.content && !node.tools?.length) text ||= "The answer is empty.";
    this.#note.hidden = text === "";
    this.#note.classList.toggle("error", node.state === "failed");
    this.#note.setAttribute("role", node.state === "failed" ? "alert" : "note");
    this.#note.replaceChildren(h("span", {}, text));
    if (node.state === "failed") {
      const label = node.error?.status === 401 ? "Enter the key" : "Try again";
      this.#note.append(h("button", { type: "button", class: "button", disabled: busy, on: { click: () => this.actions.retry(node) } }, label));
      if (node.error?.retryAfter) this.#note.append(h("span", { class: "quiet" }, `The server asks to wait ${seconds(node.error.retryAfter)}.`));
    }
  }

  #footer({ conversation, busy }, running) {
    const { node } = this;
    this.#foot.hidden = running;
    if (running) return;
    this.#foot.replaceChildren(
      ...[versions(conversation, node, (step) => this.actions.version(node, step)),
        node.content ? copyButton("Copy answer", () => node.content) : null,
        node.state === "failed" && !node.content ? null : iconButton("again", "Answer again", () => this.actions.again(node), { disabled: busy }),
        this.#cost()].filter(Boolean));
  }

  /** "24.1 tokens/s · 312 tokens · 900 of 1,024 prompt tokens cached" */
  #cost() {
    const cost = readCost(this.node.timings, this.node.usage);
    if (!cost) return null;
    const { prompt, cached, promptSeconds, promptRate, output, outputSeconds, outputRate, queueSeconds, miss } = cost;
    const parts = [];
    const details = [];
    if (outputRate) parts.push(`${rate(outputRate)} tokens/s`);
    if (output !== undefined) parts.push(plural(output, "token"));
    if (prompt !== undefined) parts.push(cached > 0 ? `${count(cached)} of ${plural(prompt, "prompt token")} cached` : plural(prompt, "prompt token"));
    if (queueSeconds > 0.05) details.push(`Waited ${seconds(queueSeconds)} in the queue.`);
    if (promptRate) details.push(`Read ${plural(prompt - cached, "prompt token")} in ${seconds(promptSeconds)}, ${rate(promptRate)} a second.`);
    if (outputSeconds > 0) details.push(`Written in ${seconds(outputSeconds)}.`);
    if (miss) details.push(`Why not more was cached: ${miss}`);
    return h("span", { class: "cost", title: details.join("\n") || undefined }, parts.join(" · "));
  }
}
