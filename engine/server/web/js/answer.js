// One answer being written: from the request to the last token, stop or failure.

import { ApiError, streamChat } from "./api.js";
import { keep, keysWith, recall } from "./local.js";
import { readProgress } from "./shapes.js";
import { newId } from "./tree.js";

const SAVE_MS = 400;
const RESCUE = "strata.rescue";
// An answer whose tab has not been heard of for so long is taken for broken off.
const DEAD_MS = 15_000;

/** This tab, also after a reload. */
export const TAB = recall("strata.tab", "session") ?? newId();
keep("strata.tab", TAB, "session");

/** The fields of an answer's message before anything came. */
export function emptyAnswer() {
  return { role: "assistant", content: "", thinking: "", thinkingSeconds: null, tools: [], state: "running", phase: "waiting", owner: TAB, beat: Date.now() };
}

/** Adds a piece of a tool call to those that are there; pieces name the call by its index. */
export function mergeToolCall(tools, piece) {
  const at = Number.isInteger(piece.index) ? piece.index : Math.max(0, tools.length - 1);
  if (at > 999) return;
  while (tools.length <= at) tools.push({ id: "", name: "", arguments: "" });
  const call = tools[at];
  if (piece.id) call.id = piece.id;
  if (piece.function?.name) call.name += piece.function.name;
  if (piece.function?.arguments) call.arguments += piece.function.arguments;
}

/** Writes an answer into a message of a conversation. */
export class Run {
  #abort = new AbortController();
  #stopped = false;
  #leaving = false;
  #saveTimer = 0;
  #thinkingSince = 0;

  /** `changed` is called after every piece, `save` now and then and at the end. */
  constructor({ conversation, node, body, changed, save }) {
    Object.assign(this, { conversation, node, body, changed, save });
  }

  /** Runs to the end; never throws. */
  async start() {
    const { node } = this;
    node.since = Date.now();
    try {
      for await (const chunk of streamChat(this.body, this.#abort.signal)) this.#take(chunk);
      node.state = "done";
    } catch (error) {
      if (this.#leaving) return;
      this.#fail(error);
    }
    this.#endThinking();
    delete node.phase;
    delete node.progress;
    clearTimeout(this.#saveTimer);
    this.conversation.updated = Date.now();
    await this.save();
    this.changed();
  }

  /** Ends the answer where it is; the server notices and stops too. */
  stop() {
    this.#stopped = true;
    this.#abort.abort();
  }

  /** The page goes away: what was written stays as it is. */
  leave() {
    this.#leaving = true;
  }

  #take(chunk) {
    const { node } = this;
    node.beat = Date.now();
    const progress = readProgress(chunk);
    if (progress) {
      node.phase = "reading";
      node.progress = progress;
    }
    const choice = chunk.choices?.[0];
    const delta = choice?.delta ?? {};
    if (delta.reasoning_content) {
      this.#thinkingSince ||= Date.now();
      node.phase = "thinking";
      node.thinking += delta.reasoning_content;
    }
    if (delta.content) {
      this.#endThinking();
      node.phase = "writing";
      node.content += delta.content;
    }
    for (const piece of delta.tool_calls ?? []) {
      this.#endThinking();
      node.phase = "writing";
      mergeToolCall(node.tools, piece);
    }
    if (choice?.finish_reason) node.finish = choice.finish_reason;
    if (chunk.model) node.model = chunk.model;
    if (chunk.usage) node.usage = chunk.usage;
    if (chunk.timings) node.timings = chunk.timings;
    this.#saveTimer ||= setTimeout(() => {
      this.#saveTimer = 0;
      this.save();
    }, SAVE_MS);
    this.changed();
  }

  #endThinking() {
    if (this.#thinkingSince) this.node.thinkingSeconds = (Date.now() - this.#thinkingSince) / 1000;
    this.#thinkingSince = 0;
  }

  #fail(error) {
    const { node } = this;
    if (this.#stopped) {
      node.state = "stopped";
      return;
    }
    node.state = "failed";
    node.error = error instanceof ApiError
      ? { message: error.message, status: error.status, retryAfter: error.retryAfter }
      : { message: `The page failed: ${error.message}`, status: 0, retryAfter: null };
  }
}

/** Marks answers of a loaded conversation that nobody writes any more as broken off; returns whether there were any. */
export function markBroken(conversation, isRunning) {
  let any = false;
  for (const node of Object.values(conversation.nodes)) {
    if (node.state !== "running" || isRunning(node.id)) continue;
    if (node.owner !== TAB && Date.now() - (node.beat ?? 0) < DEAD_MS) continue;
    node.state = "broken";
    delete node.phase;
    delete node.progress;
    any = true;
  }
  return any;
}

/** Keeps the last state of running answers while the page goes away, when there is no time for the database. */
export function writeRescue(runs) {
  const nodes = runs.map((run) => {
    run.leave();
    return { conversation: run.conversation.id, node: run.node };
  });
  if (nodes.length === 0) return;
  // Where there is no room the database still has all but the last moments.
  keep(`${RESCUE}.${TAB}`, JSON.stringify(nodes));
}

/** Puts what `writeRescue` kept, in this tab or one that was closed, back into the database. */
export async function applyRescue(store) {
  for (const key of keysWith(`${RESCUE}.`)) {
    let kept = [];
    try {
      kept = JSON.parse(recall(key) ?? "[]");
    } catch {
      // Damaged: the database has all but the last moments.
    }
    keep(key, null);
    for (const { conversation: id, node } of kept) {
      const conversation = await store.load(id);
      const there = conversation?.nodes[node.id];
      if (there?.state !== "running") continue;
      const { content, thinking, tools, thinkingSeconds } = node;
      Object.assign(there, { content, thinking, tools, thinkingSeconds, state: "broken" });
      await store.save(conversation);
    }
  }
}
