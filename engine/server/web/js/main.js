// Puts the page together: views, dialogs, keys, and what the server says of itself.

import { getJson, keyIsKept, serverKey, setServerKey } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { announce, byId, copyText, h, icon, toast } from "./dom.js";
import { count, percent } from "./format.js";
import { List } from "./list.js";
import { Live } from "./live.js";
import { keep, recall } from "./local.js";
import { menuButton, openDialog, wireDialog } from "./menu.js";
import { Monitor } from "./monitor.js";
import { Preferences, fillSelect } from "./preferences.js";
import { THINKING, loadSettings, saveSettings } from "./settings.js";
import { listenForShortcuts } from "./shortcuts.js";
import { Store } from "./store.js";

const narrow = matchMedia("(max-width: 760px)");

class Page {
  #model = null;
  #shown = null;
  #modelAsked = false;
  #complained = 0;
  settings = loadSettings();

  constructor(store) {
    this.store = store;
    this.chat = new Chat(store, () => this.settings, {
      opened: (conversation) => this.#opened(conversation),
      listChanged: () => this.list.draw(),
      needKey: (then) => this.#askKey(then),
      drawn: (path) => this.#drawn(path),
      failed: (text) => this.#complain(text),
    });
    this.composer = new Composer({
      send: (text) => this.chat.send(text),
      stop: () => this.chat.stop(),
      editLast: () => this.chat.editLast(),
      settings: () => this.settings,
    });
    this.list = new List(store, this.chat, { go: (id) => this.#go(`#/chat/${id}`), gone: () => this.#new(), renamed: () => this.#title() });
    this.preferences = new Preferences(store, this.chat, {
      saved: (settings, keyChanged) => this.#settingsSaved(settings, keyChanged),
      imported: () => this.list.draw(),
      deletedAll: () => { this.#new(); this.list.draw(); },
    });
    this.monitor = new Monitor(byId("monitor"));
    this.live = new Live();
    this.#wire();
  }

  async start() {
    await this.chat.recover();
    this.#drawSettings();
    this.live.listen((state) => this.#heard(state));
    this.live.restart();
    addEventListener("hashchange", () => this.#route());
    await this.#route();
    await this.list.draw();
  }

  #wire() {
    byId("new").addEventListener("click", () => this.#new());
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault();
      (byId("chat").hidden ? byId("monitor").querySelector("h2") : this.composer.input)?.focus();
    });
    byId("open-settings").addEventListener("click", () => this.preferences.open(this.settings));
    byId("open-shortcuts").addEventListener("click", () => openDialog(byId("shortcuts")));
    byId("theme").addEventListener("click", () => {
      const order = ["auto", "light", "dark"];
      window.strataTheme.set(order[(order.indexOf(window.strataTheme.get()) + 1) % 3]);
      this.#drawTheme();
      announce(byId("theme").title);
    });
    byId("sidebar-open").addEventListener("click", () => this.#sidebar(true));
    byId("sidebar-close").addEventListener("click", () => this.#sidebar(false));
    byId("curtain").addEventListener("click", () => this.#sidebar(false));
    byId("conversations").addEventListener("click", (event) => {
      if (event.target.closest("a") && narrow.matches) this.#sidebar(false);
    });
    narrow.addEventListener("change", () => this.#sidebar(!narrow.matches));
    byId("bar-actions").append(menuButton("More for this conversation", () => this.list.actions(this.chat.conversation.id)));
    fillSelect(byId("thinking"), THINKING);
    byId("thinking").addEventListener("change", (event) => {
      this.settings = { ...this.settings, thinking: event.target.value };
      saveSettings(this.settings);
    });
    for (const id of ["ask", "confirm", "key", "shortcuts"]) wireDialog(byId(id));
    this.#sidebar(!narrow.matches && recall("strata.sidebar") !== "hidden");
    listenForShortcuts({
      stop: () => this.#escape(),
      search: () => { this.#sidebar(true); byId("search").focus(); },
      new: () => this.#new(),
      again: () => this.#chatShown() && void this.chat.againLast(),
      copy: () => this.#copyLast(),
      monitor: () => this.#go(byId("chat").hidden ? this.#chatHash() : "#/monitor"),
      focus: () => this.composer.input.focus(),
      sidebar: () => this.#sidebar(!document.body.classList.contains("sidebar")),
      settings: () => void this.preferences.open(this.settings),
      shortcuts: () => void openDialog(byId("shortcuts")),
    });
  }

  /** Says that something could not be kept, but not at every token. */
  #complain(text) {
    if (Date.now() - this.#complained < 30_000) return;
    this.#complained = Date.now();
    toast(text);
  }

  #chatShown() {
    return !byId("chat").hidden;
  }

  #escape() {
    if (narrow.matches && document.body.classList.contains("sidebar")) this.#sidebar(false);
    else if (this.chat.running && this.#chatShown()) this.chat.stop();
    else return false;
    return true;
  }

  async #copyLast() {
    const text = this.chat.lastAnswer();
    if (text && (await copyText(text))) toast("The last answer was copied.", null, 3);
  }

  #sidebar(show) {
    const lost = !show && byId("sidebar").contains(document.activeElement);
    document.body.classList.toggle("sidebar", show);
    byId("sidebar").inert = !show;
    byId("main").inert = show && narrow.matches;
    byId("curtain").hidden = !(show && narrow.matches);
    byId("sidebar-open").setAttribute("aria-expanded", String(show));
    if (lost) byId("sidebar-open").focus();
    if (show && narrow.matches) byId("sidebar-close").focus();
    if (!narrow.matches) keep("strata.sidebar", show ? "shown" : "hidden");
  }

  #chatHash() {
    const { conversation } = this.chat;
    return conversation.nodes.root.children.length > 0 ? `#/chat/${conversation.id}` : "#/chat";
  }

  #go(hash) {
    if (location.hash === hash) this.#route();
    else location.hash = hash;
  }

  #new() {
    if (narrow.matches) this.#sidebar(false);
    this.chat.openNew();
    this.#go("#/chat");
    this.composer.input.focus();
  }

  async #route() {
    const [view, id] = location.hash.slice(2).split("/");
    const monitor = view === "monitor";
    if (!monitor && id && id !== this.chat.conversation.id && !(await this.chat.open(id))) {
      toast("There is no such conversation in this browser.");
      history.replaceState(null, "", "#/chat");
      this.chat.openNew();
    } else if (!monitor && !id && (this.#shown === null || this.chat.conversation.nodes.root.children.length > 0)) {
      this.chat.openNew();
    }
    byId("chat").hidden = monitor;
    byId("monitor").hidden = !monitor;
    byId("bar-actions").hidden = monitor;
    byId("to-chat").ariaCurrent = monitor ? null : "page";
    byId("to-monitor").ariaCurrent = monitor ? "page" : null;
    byId("to-chat").href = this.#chatHash();
    this.monitor.setVisible(monitor);
    if (monitor) byId("monitor").focus({ preventScroll: true });
    if (monitor && narrow.matches) this.#sidebar(false);
    if (!monitor && !narrow.matches) this.composer.input.focus();
    this.chat.toEnd();
    this.#title();
  }

  #title() {
    const { conversation } = this.chat;
    const chat = this.#chatShown();
    byId("title").textContent = chat ? conversation.title || "New conversation" : "Monitor";
    document.title = chat ? (conversation.title ? `${conversation.title} – Strata` : "Strata") : "Monitor – Strata";
  }

  /** A conversation came to be shown, or the new one was kept for the first time. */
  #opened(conversation) {
    const kept = conversation.nodes.root.children.length > 0;
    if (this.#shown === conversation) this.composer.rename(kept ? conversation.id : "new");
    else this.composer.show(kept ? conversation.id : "new");
    this.#shown = conversation;
    if (kept && this.#chatShown()) history.replaceState(null, "", `#/chat/${conversation.id}`);
    byId("to-chat").href = this.#chatHash();
    this.#title();
    this.list.draw();
  }

  #drawn(path) {
    this.composer.setBusy(Boolean(this.chat.running));
    byId("bar-actions").firstElementChild.disabled = path.length === 0;
    const usage = path.findLast((node) => node.usage)?.usage;
    const context = byId("context");
    const used = usage?.total_tokens ?? 0;
    const limit = this.#model?.context ?? 0;
    context.replaceChildren(...(used && limit ? [`${count(used)} of ${count(limit)}`, h("span", {}, " tokens")] : []));
    context.title = "Tokens of the context that are used";
    context.classList.toggle("warn", limit > 0 && used / limit > 0.9);
  }

  #settingsSaved(settings, keyChanged) {
    this.settings = settings;
    this.#drawSettings();
    if (keyChanged) {
      this.#modelAsked = false;
      this.live.restart();
    }
  }

  #drawSettings() {
    byId("thinking").value = this.settings.thinking;
    byId("composer-hint").textContent = this.settings.enterSends ? "Enter sends, Shift+Enter makes a new line." : "Ctrl+Enter sends.";
    this.#drawTheme();
  }

  #drawTheme() {
    const choice = window.strataTheme.get();
    const label = { auto: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" }[choice];
    byId("theme").replaceChildren(icon(choice));
    byId("theme").title = label;
    byId("theme").setAttribute("aria-label", label);
  }

  async #askKey(then) {
    if (document.querySelector("dialog[open]")) return;
    byId("key-text").textContent = serverKey() ? "It does not take the one that was given." : "It was started with --api-key. Enter the same key here.";
    byId("key-input").value = "";
    byId("key-keep").checked = keyIsKept();
    if (!(await openDialog(byId("key")))) return;
    setServerKey(byId("key-input").value.trim(), byId("key-keep").checked);
    this.#modelAsked = false;
    this.lockTold = false;
    this.live.restart();
    then?.();
  }

  async #askModel() {
    this.#modelAsked = true;
    try {
      const { data } = await getJson("v1/models");
      const [model] = data ?? [];
      if (model) this.#setModel({ id: model.id, context: model.context_length });
    } catch {
      this.#modelAsked = false;
    }
  }

  #setModel(model) {
    this.#model = { ...this.#model, ...model };
    this.chat.model = this.#model.id;
    byId("model").textContent = this.#model.id;
    byId("model").title = this.#model.context ? `${this.#model.id}, context of ${count(this.#model.context)} tokens` : this.#model.id;
    byId("welcome-text").textContent = `You are talking to ${this.#model.id}. What you write goes to this server only.`;
    byId("thinking-choice").hidden = this.#model.can_think === false;
  }

  #heard(state) {
    this.monitor.take(state);
    const { link, status } = state;
    if (link === "locked" && !this.lockTold) {
      this.lockTold = true;
      this.#askKey();
    }
    if (link === "open") this.lockTold = false;
    if (status?.model && link === "open") this.#setModel(status.model);
    if ((link === "open" || link === "unsupported") && !this.#modelAsked && status?.state !== "loading") this.#askModel();
    this.chat.markDead();
    this.chat.setQueue(link === "open" ? (status?.queue?.waiting ?? 0) : 0);
    this.#banner(link, status, state.error);
  }

  #banner(link, status, error) {
    const texts = {
      gone: "The server does not answer. This page goes on trying.",
      locked: "The server wants a key: see Settings.",
    };
    let text = texts[link] ?? "";
    if (link === "open" && status?.state === "loading") text = `The model is being loaded: ${percent(status.load_share ?? 0)}.`;
    if (link === "open" && status?.state === "failed") text = status.reason ? `The model cannot answer: ${status.reason}` : "The model cannot answer. The server's log says why.";
    if (link === "open" && status?.state === "stopping") text = "The server is stopping.";
    const banner = byId("banner");
    if (banner.textContent !== text) banner.textContent = text;
    banner.hidden = text === "";
    banner.title = error;
    banner.classList.toggle("error", link === "gone" || status?.state === "failed");
  }
}

new Page(await Store.open()).start();
