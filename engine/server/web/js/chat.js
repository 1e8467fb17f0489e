// The chat: which conversation is open, what is asked, and the answers that are being written.

import { Run, applyRescue, emptyAnswer, markBroken, writeRescue } from "./answer.js";
import { announce, byId } from "./dom.js";
import { AnswerView, ToolView, UserView } from "./message.js";
import { requestFields } from "./settings.js";
import { addNode, apiMessages, newConversation, pathTo, shownPath, switchVersion, titleOf } from "./tree.js";

const SPOKEN = 600;

/** The state of the chat view. `hooks`: opened(conversation), listChanged(), needKey(), composerChanged(). */
export class Chat {
  #views = new Map();
  #runs = new Map();
  #frame = 0;
  #gone = new Set();
  #stick = true;
  #top = 0;
  #queue = 0;
  conversation = newConversation();

  constructor(store, settings, hooks) {
    this.store = store;
    this.settings = settings;
    this.hooks = hooks;
    this.log = byId("log");
    this.scroller = byId("scroller");
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    byId("to-end").addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.#keepEnd()).observe(this.log);
    // A page that comes back as it was left has lost its connections.
    addEventListener("pageshow", (event) => event.persisted && location.reload());
    addEventListener("pagehide", () => writeRescue([...this.#runs.values()]));
    store.onChange((id) => this.#changedElsewhere(id));
  }

  /** Puts right what a reload interrupted. */
  async recover() {
    await applyRescue(this.store);
  }

  /** The answer of the open conversation that is being written here, or undefined. */
  get running() {
    return this.#runs.get(this.conversation.id);
  }

  /** Whether answers are being written to that conversation. */
  isRunning(id) {
    return this.#runs.has(id);
  }

  /** Opens an empty conversation. */
  openNew() {
    this.#show(newConversation(this.settings().system));
  }

  /** Opens a kept conversation; false if there is none with this id. */
  async open(id) {
    const live = this.#runs.get(id)?.conversation;
    const conversation = live ?? (await this.store.load(id));
    if (!conversation) return false;
    if (!live && markBroken(conversation, () => false)) await this.store.save(conversation);
    this.#show(conversation);
    return true;
  }

  #show(conversation) {
    this.conversation = conversation;
    this.#views.clear();
    this.log.replaceChildren();
    this.#stick = true;
    this.draw();
    this.toEnd();
    this.hooks.opened(conversation);
  }

  async #changedElsewhere(id) {
    this.hooks.listChanged();
    if (id !== this.conversation.id || this.running) return;
    const conversation = await this.store.load(id);
    if (conversation && id === this.conversation.id && !this.running) {
      this.conversation = conversation;
      for (const node of Object.values(conversation.nodes)) {
        const view = this.#views.get(node.id);
        if (view) view.node = node;
      }
      this.draw();
    }
  }

  /** Sends a message of the user at the end of what is shown. */
  async send(text) {
    const path = shownPath(this.conversation);
    await this.#ask(path.at(-1)?.id ?? "root", text);
  }

  async #ask(parent, text) {
    const { conversation } = this;
    if (this.running) return;
    const first = parent === "root" && conversation.nodes.root.children.length === 0;
    const node = addNode(conversation, parent, { role: "user", content: text });
    if (first && !conversation.named) conversation.title = titleOf(text);
    await this.#answer(node.id);
  }

  /** Writes an answer below a message. */
  async #answer(parent) {
    const { conversation } = this;
    if (this.running) return;
    const messages = apiMessages(conversation, pathTo(conversation, parent));
    const node = addNode(conversation, parent, emptyAnswer());
    const body = { model: this.model ?? "default", messages, ...requestFields(this.settings()) };
    const run = new Run({
      conversation, node, body,
      changed: () => { if (conversation === this.conversation) this.#soon(); },
      save: () => this.#save(conversation),
    });
    conversation.updated = Date.now();
    this.#runs.set(conversation.id, run);
    this.#stick = true;
    const writing = run.start();
    this.draw();
    this.toEnd();
    announce("The answer is being written");
    await this.#save(conversation);
    if (conversation === this.conversation) this.hooks.opened(conversation);
    this.hooks.listChanged();
    await writing;
    this.#runs.delete(conversation.id);
    this.hooks.listChanged();
    if (conversation === this.conversation) this.draw();
    this.#speak(node);
    if (node.error?.status === 401 && conversation === this.conversation) this.retry(node);
  }

  /** Ends and forgets a conversation that is about to be deleted. */
  forget(id) {
    this.#gone.add(id);
    this.#runs.get(id)?.stop();
  }

  /** Takes back `forget`. */
  remember(id) {
    this.#gone.delete(id);
  }

  async #save(conversation) {
    if (this.#gone.has(conversation.id)) return;
    try {
      await this.store.save(conversation);
    } catch (error) {
      this.hooks.failed(`The conversation could not be kept: ${error?.message ?? error}`);
    }
  }

  #speak(node) {
    if (node.state === "stopped") announce("Stopped");
    // Failures are alerts, which are read out by themselves.
    if (node.state !== "done") return;
    const text = node.content.replace(/[`*_#|>]+/g, " ").trim();
    const calls = (node.tools ?? []).map((call) => `The model calls ${call.name}.`).join(" ");
    announce(`${text.length > SPOKEN ? `${text.slice(0, SPOKEN)}… The answer goes on.` : text} ${calls}`.trim() || "The answer is empty");
  }

  /** Ends the answer that is being written. */
  stop() {
    this.running?.stop();
  }

  /** Another answer to the same message, as another version. */
  async again(node) {
    await this.#answer(node.parent);
  }

  /** Asks again after a failure, for the key first if that was missing. An answer that holds nothing is replaced. */
  async retry(node, keyGiven = false) {
    if (this.running || this.conversation.nodes[node.id] !== node) return;
    if (node.error?.status === 401 && !keyGiven) {
      this.hooks.needKey(() => this.retry(node, true));
      return;
    }
    const parent = this.conversation.nodes[node.parent];
    if (!node.content && !node.thinking) {
      parent.children = parent.children.filter((id) => id !== node.id);
      delete this.conversation.nodes[node.id];
    }
    await this.#answer(node.parent);
  }

  /** Answers the last question again, whatever became of the answer. */
  async againLast() {
    const last = shownPath(this.conversation).at(-1);
    if (last?.role === "assistant") await this.again(last);
  }

  /** Opens the last message of the user for editing. */
  editLast() {
    const last = shownPath(this.conversation).findLast((node) => node.role === "user");
    const view = last && this.#views.get(last.id);
    if (!view || this.running) return false;
    view.edit();
    return true;
  }

  /** The text of the last answer, or "". */
  lastAnswer() {
    return shownPath(this.conversation).findLast((node) => node.role === "assistant")?.content ?? "";
  }

  async #results(node, texts) {
    let parent = node.id;
    node.tools.forEach((call, i) => {
      parent = addNode(this.conversation, parent, { role: "tool", callId: call.id, name: call.name, content: texts[i] }).id;
    });
    await this.#answer(parent);
  }

  async #version(node, step) {
    if (!switchVersion(this.conversation, node, step)) return;
    this.#stick = false;
    this.draw();
    await this.#save(this.conversation);
    const shown = this.conversation.nodes[node.parent];
    const view = this.#views.get(shown.children[shown.shown]);
    const buttons = [...(view?.element.querySelectorAll(".versions button") ?? [])];
    (buttons[step < 0 ? 0 : 1]?.disabled ? buttons[step < 0 ? 1 : 0] : buttons[step < 0 ? 0 : 1])?.focus();
  }

  #viewOf(node) {
    const existing = this.#views.get(node.id);
    if (existing) return existing;
    const actions = {
      version: (of, step) => this.#version(of, step),
      edited: (of, text) => this.#ask(of.parent, text),
      again: (of) => this.again(of),
      retry: (of) => this.retry(of),
      results: (of, texts) => this.#results(of, texts),
      enterSends: () => this.settings().enterSends,
    };
    const View = { user: UserView, tool: ToolView, assistant: AnswerView }[node.role];
    const view = new View(node, actions);
    this.#views.set(node.id, view);
    return view;
  }

  #soon() {
    // Hidden tabs get no frames; what they would show is drawn when they are seen again.
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw();
    });
  }

  /** Brings the page up to date with the conversation. */
  draw() {
    const path = shownPath(this.conversation);
    const context = { conversation: this.conversation, busy: Boolean(this.running), queue: this.#queue };
    const elements = path.map((node, i) => {
      const view = this.#viewOf(node);
      view.update({ ...context, last: i === path.length - 1, elsewhere: node.state === "running" && !this.running });
      return view.element;
    });
    const before = [...this.log.children];
    if (before.length !== elements.length || before.some((element, i) => element !== elements[i])) {
      elements.forEach((element, i) => {
        if (this.log.children[i] !== element) this.log.insertBefore(element, this.log.children[i] ?? null);
      });
      while (this.log.children.length > elements.length) this.log.lastElementChild.remove();
    }
    byId("welcome").hidden = path.length > 0;
    this.#keepEnd();
    this.hooks.drawn(path);
  }

  /** Marks answers whose tab is gone; to be called now and then. */
  async markDead() {
    const { conversation } = this;
    if (this.running || !markBroken(conversation, () => false)) return;
    await this.#save(conversation);
    this.draw();
  }

  /** How many requests wait at the server, for the notice of an answer that has not begun. */
  setQueue(waiting) {
    if (waiting === this.#queue) return;
    this.#queue = waiting;
    if (this.running) this.#soon();
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    // Scrolling up lets go at once, also by a little; scrolling down to near the end takes hold again.
    const up = scrollTop < this.#top - 1;
    this.#stick = scrollHeight - scrollTop - clientHeight < (up ? 2 : 40);
    this.#top = scrollTop;
    byId("to-end").hidden = this.#stick;
  }

  #keepEnd() {
    if (this.#stick) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.#scrolled();
  }

  /** Scrolls to the end and stays there while the answer grows. */
  toEnd() {
    this.#stick = true;
    this.#keepEnd();
    byId("to-end").hidden = true;
  }
}
