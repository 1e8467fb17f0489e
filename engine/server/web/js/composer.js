// The field in which messages are written.

import { byId, toast } from "./dom.js";
import { keep, recall } from "./local.js";

const LARGEST_FILE = 512 * 1024;

function draftKey(id) {
  return `strata.draft.${id}`;
}

/** `send(text)` and `stop()` are what its buttons do; `settings()` says whether Enter sends. */
export class Composer {
  #id = "new";

  constructor({ send, stop, editLast, settings }) {
    Object.assign(this, { send, stop, editLast, settings });
    this.input = byId("composer-input");
    this.sendButton = byId("send");
    this.stopButton = byId("stop");
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.stopButton.addEventListener("click", () => this.stop());
    this.input.addEventListener("input", () => this.#changed());
    this.input.addEventListener("keydown", (event) => this.#key(event));
    const files = byId("files");
    byId("attach").addEventListener("click", () => files.click());
    files.addEventListener("change", async () => {
      await this.#attach([...files.files]);
      files.value = "";
    });
    const area = byId("chat");
    area.addEventListener("dragover", (event) => {
      if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
    });
    area.addEventListener("drop", (event) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.#attach([...event.dataTransfer.files]);
    });
  }

  #key(event) {
    // While an input method composes, Enter belongs to it.
    if (event.isComposing) return;
    const enters = this.settings().enterSends ? !event.shiftKey && !event.altKey : event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && enters) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "ArrowUp" && this.input.value === "" && this.editLast()) {
      event.preventDefault();
    }
  }

  #submit() {
    const text = this.input.value.trim();
    if (text === "" || this.busy) return;
    this.input.value = "";
    this.#changed();
    this.send(text);
    this.input.focus();
  }

  #changed() {
    keep(draftKey(this.#id), this.input.value || null);
    this.#fit();
    this.sendButton.disabled = this.input.value.trim() === "";
  }

  #fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  /** Shows the draft of a conversation ("new": one that is not kept yet). */
  show(id) {
    this.#id = id;
    this.input.value = recall(draftKey(id)) ?? "";
    this.#changed();
  }

  /** What is in the field belongs to this conversation from now on. */
  rename(id) {
    if (id === this.#id) return;
    keep(draftKey(this.#id), null);
    this.#id = id;
    this.#changed();
  }

  /** Forgets the draft of a deleted conversation. */
  forget(id) {
    keep(draftKey(id), null);
  }

  /** Shows the stop button while an answer is written. */
  setBusy(busy) {
    const focused = document.activeElement === this.stopButton || document.activeElement === this.sendButton;
    this.busy = busy;
    this.sendButton.hidden = busy;
    this.stopButton.hidden = !busy;
    if (focused) this.input.focus();
  }

  /** Puts text files into the message, each in a fence under its name. */
  async #attach(files) {
    for (const file of files) {
      if (file.size > LARGEST_FILE) {
        toast(`${file.name} is larger than 512 KiB.`);
        continue;
      }
      const text = await file.text();
      if (text.includes("\0") || text.includes("\ufffd")) {
        toast(`${file.name} is not a text file.`);
        continue;
      }
      const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((m) => m[0].length));
      const fence = "`".repeat(longest + 1);
      const lang = /\.(\w{1,8})$/.exec(file.name)?.[1] ?? "";
      this.input.value += `${this.input.value ? "\n\n" : ""}${file.name}:\n${fence}${lang}\n${text.replace(/\n$/, "")}\n${fence}\n`;
    }
    this.#changed();
    this.input.focus();
  }
}
