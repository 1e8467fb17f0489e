// Small menus and questions.

import { byId, h, icon } from "./dom.js";

let openMenu = null;

function closeMenu(focusBack) {
  if (!openMenu) return;
  const { list, button } = openMenu;
  openMenu = null;
  list.remove();
  button.setAttribute("aria-expanded", "false");
  if (focusBack) button.focus();
}

function moveFocus(list, key) {
  const items = [...list.children];
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[key];
  if (to === undefined) return false;
  items[(to + items.length) % items.length].focus();
  return true;
}

function showMenu(button, items) {
  const list = h("div", { class: "menu", role: "menu", "aria-label": button.getAttribute("aria-label") },
    items.map(({ name, label, run, danger }) => h("button", { type: "button", role: "menuitem", class: danger ? "danger" : undefined, on: { click: () => { closeMenu(true); run(); } } }, icon(name), label)));
  list.addEventListener("keydown", (event) => {
    if (event.key === "Escape" || event.key === "Tab") {
      closeMenu(true);
      event.stopPropagation();
      if (event.key === "Escape") event.preventDefault();
    } else if (moveFocus(list, event.key)) {
      event.preventDefault();
    }
  });
  document.body.append(list);
  const at = button.getBoundingClientRect();
  const size = list.getBoundingClientRect();
  list.style.left = `${Math.max(8, Math.min(at.right - size.width, innerWidth - size.width - 8))}px`;
  list.style.top = `${at.bottom + size.height + 8 > innerHeight ? Math.max(8, at.top - size.height - 4) : at.bottom + 4}px`;
  button.setAttribute("aria-expanded", "true");
  openMenu = { list, button };
  list.firstElementChild.focus();
}

document.addEventListener("pointerdown", (event) => {
  if (openMenu && !openMenu.list.contains(event.target) && !openMenu.button.contains(event.target)) closeMenu(false);
});

/** A button that opens a menu of `{ name (icon), label, run, danger }`; `items` is asked each time. */
export function menuButton(label, items) {
  const button = h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, "aria-haspopup": "menu", "aria-expanded": "false" }, icon("more"));
  button.addEventListener("click", (event) => {
    event.preventDefault();
    event.stopPropagation();
    const mine = openMenu?.button === button;
    closeMenu(true);
    if (!mine) showMenu(button, items());
  });
  return button;
}

/** Opens a dialog; resolves when it closes, to whether it was confirmed. */
export function openDialog(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
    dialog.showModal();
  });
}

/** Gives a dialog's buttons their meaning: [data-close] cancels, submitting its form confirms if `check` allows. */
export function wireDialog(dialog, check = () => true) {
  for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => dialog.close(""));
  dialog.querySelector("form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    if (check()) dialog.close("ok");
  });
  // A click beside the dialog hits the dialog element itself. What was typed is not thrown away by it.
  dialog.addEventListener("pointerdown", (event) => {
    if (event.target === dialog && !dialog.querySelector("form")) dialog.close("");
  });
}

/** Asks for a line of text; resolves to it, or to null. */
export async function askText(title, value) {
  const dialog = byId("ask");
  const input = byId("ask-input");
  byId("ask-title").textContent = title;
  input.value = value;
  const answer = openDialog(dialog);
  input.select();
  return (await answer) ? input.value.trim() : null;
}

/** Asks before something that cannot be undone. */
export function confirmAction(title, text, action) {
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-ok").textContent = action;
  return openDialog(byId("confirm"));
}
