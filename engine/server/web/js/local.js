// Small things that this browser keeps. Where it does not allow that, or has no room, they last as long as the page.

const memory = { local: new Map(), session: new Map() };

function storage(which) {
  return which === "session" ? sessionStorage : localStorage;
}

/** What is kept under a key, or null. `which` is "local" (until deleted) or "session" (until the tab closes). */
export function recall(key, which = "local") {
  try {
    return storage(which).getItem(key) ?? memory[which].get(key) ?? null;
  } catch {
    return memory[which].get(key) ?? null;
  }
}

/** Keeps a text; null forgets. Returns whether it will outlast the page. */
export function keep(key, text, which = "local") {
  memory[which].delete(key);
  try {
    if (text === null) storage(which).removeItem(key);
    else storage(which).setItem(key, text);
    return true;
  } catch {
    if (text !== null) memory[which].set(key, text);
    return false;
  }
}
