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

/** The keys that begin so, of what is kept until deleted. */
export function keysWith(prefix) {
  const keys = new Set(memory.local.keys());
  try {
    for (let i = 0; i < localStorage.length; i += 1) keys.add(localStorage.key(i));
  } catch {
    // Only what the page itself remembers, then.
  }
  return [...keys].filter((key) => key.startsWith(prefix));
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
