// The list of conversations at the side.

import { announce, byId, h, toast } from "./dom.js";
import { exportConversation } from "./export.js";
import { when } from "./format.js";
import { askText, menuButton } from "./menu.js";

const PERIODS = [["Today", 1], ["Yesterday", 2], ["Last 7 days", 7], ["Last 30 days", 30], ["Older", Infinity]];

/** The period of the list that a time belongs to. */
function periodOf(ms) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = ms >= midnight ? 1 : Math.ceil((midnight - ms) / 86_400_000) + 1;
  return PERIODS.find(([, most]) => days <= most)[0];
}

/** Draws the list, searches it, and changes what is kept. `hooks`: go(id), gone(id). */
export class List {
  #filter = null;
  #searching = 0;

  constructor(store, chat, hooks) {
    Object.assign(this, { store, chat, hooks });
    this.root = byId("conversations");
    this.empty = byId("no-conversations");
    this.input = byId("search");
    this.input.addEventListener("input", () => this.#search());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.input.value) {
        event.stopPropagation();
        event.preventDefault();
        this.input.value = "";
        this.#search();
      } else if (event.key === "ArrowDown") {
        event.preventDefault();
        this.root.querySelector("a")?.focus();
      }
    });
    this.root.addEventListener("keydown", (event) => this.#arrows(event));
  }

  async #search() {
    const query = this.input.value.trim();
    const turn = ++this.#searching;
    const found = query ? await this.store.search(query) : null;
    if (turn !== this.#searching) return;
    this.#filter = found;
    await this.draw();
    if (found) announce(found.size === 1 ? "1 conversation found" : `${found.size} conversations found`);
  }

  #arrows(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...this.root.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    if (event.key === "ArrowUp" && at === 0) this.input.focus();
    else links[Math.min(links.length - 1, at + (event.key === "ArrowDown" ? 1 : -1))].focus();
  }

  /** Brings the list up to date. */
  async draw() {
    const heads = (await this.store.heads()).filter((head) => !this.#filter || this.#filter.has(head.id));
    const focused = this.root.contains(document.activeElement) ? document.activeElement.closest("li")?.dataset.id : null;
    const periods = Map.groupBy(heads, (head) => periodOf(head.updated));
    this.root.replaceChildren(...[...periods].flatMap(([name, group]) => [h("h2", { class: "period" }, name), h("ul", {}, group.map((head) => this.#item(head)))]));
    if (focused) this.root.querySelector(`li[data-id="${focused}"] a`)?.focus();
    this.empty.hidden = heads.length > 0;
    this.empty.textContent = this.#filter ? "Nothing found." : "Conversations will be listed here.";
  }

  #item(head) {
    const open = head.id === this.chat.conversation.id;
    const running = this.chat.isRunning(head.id);
    const link = h("a", { href: `#/chat/${head.id}`, "aria-current": open ? "page" : undefined, title: `${head.title || "Untitled"} (${when(head.updated)})` },
      h("span", {}, head.title || "Untitled"), running ? h("span", { class: "dot", role: "img", "aria-label": "being written" }) : null);
    link.addEventListener("keydown", (event) => {
      if (event.key === "F2") this.rename(head.id);
      if (event.key === "Delete") this.remove(head.id);
    });
    return h("li", { "data-id": head.id }, link, menuButton(`More for ${head.title || "Untitled"}`, () => this.actions(head.id)));
  }

  /** What can be done with a conversation, for a menu. */
  actions(id) {
    return [
      { name: "edit", label: "Rename", run: () => this.rename(id) },
      { name: "download", label: "Export as Markdown", run: () => this.#export(id, "markdown") },
      { name: "download", label: "Export as JSON", run: () => this.#export(id, "json") },
      { name: "delete", label: "Delete", danger: true, run: () => this.remove(id) },
    ];
  }

  /** A conversation as it is now: the open one may be ahead of the store. */
  async #current(id) {
    return id === this.chat.conversation.id ? this.chat.conversation : this.store.load(id);
  }

  async #export(id, kind) {
    const conversation = await this.#current(id);
    if (conversation) exportConversation(conversation, kind);
  }

  /** Asks for a new name. */
  async rename(id) {
    const conversation = await this.#current(id);
    const title = conversation && (await askText("Rename the conversation", conversation.title));
    if (!title) return;
    conversation.title = title;
    conversation.named = true;
    await this.store.save(conversation);
    if (id === this.chat.conversation.id) this.hooks.renamed();
    await this.draw();
  }

  /** Deletes a conversation; for some seconds that can be taken back. */
  async remove(id) {
    const conversation = await this.#current(id);
    if (!conversation) return;
    this.chat.forget(id);
    await this.store.remove(id);
    if (id === this.chat.conversation.id) this.hooks.gone();
    await this.draw();
    if (document.activeElement === document.body) this.input.focus();
    announce("Conversation deleted");
    toast(`“${conversation.title || "Untitled"}” was deleted.`, {
      label: "Undo",
      run: async () => {
        this.chat.remember(id);
        await this.store.save(conversation);
        await this.draw();
        this.hooks.go(id);
      },
    });
  }
}
