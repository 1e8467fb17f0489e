// The settings dialog.

import { keyIsKept, serverKey, setServerKey } from "./api.js";
import { byId, h, toast } from "./dom.js";
import { exportAll, fromJson } from "./export.js";
import { confirmAction, openDialog, wireDialog } from "./menu.js";
import { DEFAULTS, NUMBERS, THINKING, numberProblem, parseTools, saveSettings } from "./settings.js";

/** Fills a select with [value, label] pairs. */
export function fillSelect(select, choices) {
  select.replaceChildren(...choices.map(([value, label]) => h("option", { value }, label)));
}

/** Shows and takes settings. `hooks`: saved(settings), imported(), deletedAll(). */
export class Preferences {
  constructor(store, chat, hooks) {
    Object.assign(this, { store, chat, hooks });
    this.dialog = byId("settings");
    fillSelect(byId("set-thinking"), THINKING);
    byId("set-numbers").replaceChildren(...NUMBERS.map((field) => h("div", { class: "field" },
      h("label", { for: `set-${field.key}` }, field.label),
      h("input", { id: `set-${field.key}`, type: "text", inputmode: "decimal", autocomplete: "off", placeholder: "server's", "aria-describedby": `set-${field.key}-hint` }),
      h("span", { id: `set-${field.key}-hint`, class: "quiet hint" }, field.hint))));
    byId("set-numbers").addEventListener("input", () => this.#check());
    byId("set-tools").addEventListener("input", () => this.#check());
    wireDialog(this.dialog, () => this.#check(true));
    byId("reset").addEventListener("click", () => this.#fill({ ...DEFAULTS, system: byId("set-system").value }));
    byId("export-all").addEventListener("click", async () => exportAll(await this.store.all()));
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", (event) => this.#import(event.target));
    byId("delete-all").addEventListener("click", () => this.#deleteAll());
    if (!store.lasting) byId("kept-where").textContent = "This browser does not let the page keep anything: conversations last until the page is closed.";
    else byId("kept-where").textContent = "They are kept in this browser only. The server keeps none.";
  }

  /** Opens the dialog and takes what was chosen. */
  async open(settings) {
    this.#fill(settings);
    byId("set-system").value = this.chat.conversation.system;
    byId("set-system-default").checked = this.chat.conversation.system === settings.system;
    byId("set-theme").value = window.strataTheme.get();
    byId("set-key").value = serverKey();
    byId("set-key-keep").checked = keyIsKept();
    if (!(await openDialog(this.dialog))) return;
    await this.#take(settings);
  }

  #fill(settings) {
    for (const field of NUMBERS) byId(`set-${field.key}`).value = settings[field.key];
    byId("set-thinking").value = settings.thinking;
    byId("set-tools").value = settings.tools;
    byId("set-tools-details").open = settings.tools.trim() !== "";
    byId("set-enter").checked = settings.enterSends;
    this.#check();
  }

  /** Marks what is wrong, and goes to the first of it if asked; returns whether nothing is. */
  #check(go = false) {
    let good = true;
    for (const field of NUMBERS) {
      const input = byId(`set-${field.key}`);
      const problem = numberProblem(field, input.value);
      byId(`set-${field.key}-hint`).textContent = problem || field.hint;
      byId(`set-${field.key}-hint`).classList.toggle("problem", problem !== "");
      input.setAttribute("aria-invalid", String(problem !== ""));
      if (problem && good && go) input.focus();
      good &&= problem === "";
    }
    const { problem = "" } = parseTools(byId("set-tools").value);
    byId("set-tools-problem").textContent = problem;
    byId("set-tools").setAttribute("aria-invalid", String(problem !== ""));
    if (problem) byId("set-tools-details").open = true;
    return good && problem === "";
  }

  async #take(before) {
    const { conversation } = this.chat;
    const system = byId("set-system").value;
    const settings = { ...before, thinking: byId("set-thinking").value, tools: byId("set-tools").value, enterSends: byId("set-enter").checked };
    for (const field of NUMBERS) settings[field.key] = byId(`set-${field.key}`).value.trim();
    if (byId("set-system-default").checked) settings.system = system;
    if (!saveSettings(settings)) toast("The browser does not let the page keep settings; they hold until it is closed.");
    if (system !== conversation.system) {
      conversation.system = system;
      if (conversation.nodes.root.children.length > 0) await this.store.save(conversation);
    }
    window.strataTheme.set(byId("set-theme").value);
    const key = byId("set-key").value.trim();
    const keyChanged = key !== serverKey();
    setServerKey(key, byId("set-key-keep").checked);
    this.hooks.saved(settings, keyChanged);
  }

  async #import(input) {
    const [file] = input.files;
    if (!file) return;
    try {
      const conversations = fromJson(await file.text());
      for (const conversation of conversations) await this.store.save(conversation);
      toast(conversations.length === 1 ? "One conversation was added." : `${conversations.length} conversations were added.`);
      this.hooks.imported();
    } catch (error) {
      toast(error.message);
    }
    input.value = "";
  }

  async #deleteAll() {
    const heads = await this.store.heads();
    if (heads.length === 0) {
      toast("There are no conversations.");
      return;
    }
    if (!(await confirmAction("Delete all conversations?", `${heads.length === 1 ? "One conversation goes" : `${heads.length} conversations go`} for good.`, "Delete all"))) return;
    for (const head of heads) {
      this.chat.forget(head.id);
      await this.store.remove(head.id);
    }
    this.hooks.deletedAll();
  }
}
