// Keys that work everywhere on the page. One table serves the handler and the list that users see.

import { byId, h } from "./dom.js";

const mac = /Mac|iPhone|iPad/.test(navigator.platform);
const control = mac ? "⌘" : "Ctrl";

/** [keys as shown, what they do, test of a key event, name of the action] */
const TABLE = [
  [["Enter"], "Send", null, ""],
  [["Shift", "Enter"], "New line", null, ""],
  [["Esc"], "Stop the answer", (e) => e.key === "Escape", "stop"],
  [["↑"], "Edit the last message (in an empty field)", null, ""],
  [[control, "K"], "Search conversations", (e) => mod(e) && e.code === "KeyK", "search"],
  [["Alt", "N"], "New conversation", (e) => alt(e) && e.code === "KeyN", "new"],
  [["Alt", "R"], "Answer again", (e) => alt(e) && e.code === "KeyR", "again"],
  [["Alt", "C"], "Copy the last answer", (e) => alt(e) && e.code === "KeyC", "copy"],
  [["Alt", "M"], "Monitor and back", (e) => alt(e) && e.code === "KeyM", "monitor"],
  [["/"], "To the message field", (e) => e.key === "/" && !typing(e), "focus"],
  [[control, "B"], "Show or hide the list", (e) => mod(e) && e.code === "KeyB", "sidebar"],
  [[control, ","], "Settings", (e) => mod(e) && e.key === ",", "settings"],
  [[control, "/"], "This list", (e) => (mod(e) && e.key === "/") || (e.key === "?" && !typing(e)), "shortcuts"],
  [["F2"], "Rename (in the list)", null, ""],
  [["Delete"], "Delete (in the list)", null, ""],
];

function mod(event) {
  return (mac ? event.metaKey : event.ctrlKey) && !event.altKey && !event.shiftKey;
}

function alt(event) {
  return event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey;
}

function typing(event) {
  return event.ctrlKey || event.metaKey || event.altKey || Boolean(event.target.closest?.("input, textarea, select, [contenteditable]"));
}

/** Has keys start actions: `actions` maps names to functions; one that returns false lets the key be. */
export function listenForShortcuts(actions) {
  document.addEventListener("keydown", (event) => {
    // Dialogs have the keyboard to themselves.
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
    const row = TABLE.find(([, , test]) => test?.(event));
    if (row && actions[row[3]]() !== false) event.preventDefault();
  });
  byId("shortcut-list").replaceChildren(...TABLE.map(([keys, what]) => h("div", {}, h("dt", {}, keys.map((key) => h("kbd", {}, key))), h("dd", {}, what))));
}
