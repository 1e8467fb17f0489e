// A conversation is a tree: editing a question or asking again adds a sibling and loses nothing.
// Each node remembers which child is shown; the path from the root along those is what is on screen.

/** An id that is unique for all practical purposes. (`randomUUID` is missing on plain HTTP.) */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join("");
}

/** An empty conversation. */
export function newConversation(system = "") {
  const now = Date.now();
  return { id: newId(), title: "", named: false, created: now, updated: now, system, nodes: { root: { id: "root", parent: null, children: [], shown: 0 } } };
}

/** Adds a message below `parent` and shows it. */
export function addNode(conversation, parent, fields) {
  const node = { id: newId(), parent, children: [], shown: 0, created: Date.now(), ...fields };
  conversation.nodes[node.id] = node;
  const above = conversation.nodes[parent];
  above.children.push(node.id);
  above.shown = above.children.length - 1;
  return node;
}

/** The messages that are shown, first to last. */
export function shownPath(conversation) {
  const path = [];
  let node = conversation.nodes.root;
  while (node) {
    node = conversation.nodes[node.children[node.shown]];
    if (node) path.push(node);
  }
  return path;
}

/** The messages from the first to this one. */
export function pathTo(conversation, id) {
  const path = [];
  for (let node = conversation.nodes[id]; node && node.id !== "root"; node = conversation.nodes[node.parent]) path.push(node);
  return path.reverse();
}

/** Which of how many versions a message is, counted from 1. */
export function versionOf(conversation, node) {
  const siblings = conversation.nodes[node.parent].children;
  return { at: siblings.indexOf(node.id) + 1, of: siblings.length };
}

/** Shows the version before or after (`step` -1 or 1); returns whether there is one. */
export function switchVersion(conversation, node, step) {
  const parent = conversation.nodes[node.parent];
  const next = parent.children.indexOf(node.id) + step;
  if (next < 0 || next >= parent.children.length) return false;
  parent.shown = next;
  return true;
}

/** Removes a message and all below it; the version that stays beside it is shown. */
export function removeNode(conversation, id) {
  const node = conversation.nodes[id];
  const parent = conversation.nodes[node.parent];
  const at = parent.children.indexOf(id);
  parent.children.splice(at, 1);
  parent.shown = Math.max(0, Math.min(parent.shown, parent.children.length - 1));
  const doomed = [id];
  while (doomed.length > 0) {
    const next = doomed.pop();
    doomed.push(...(conversation.nodes[next]?.children ?? []));
    delete conversation.nodes[next];
  }
}

/** The first line of the first question, shortened: a name until the user gives one. */
export function titleOf(text) {
  const line = text.split("\n").map((l) => l.replace(/^[#>*\s`-]+/, "").trim()).find((l) => l !== "") ?? "";
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}

/** The messages as the API takes them. Answers that hold nothing are left out. */
export function apiMessages(conversation, path) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const node of path) {
    if (node.role === "tool") {
      messages.push({ role: "tool", tool_call_id: node.callId, content: node.content });
    } else if (node.role === "assistant") {
      const calls = node.tools ?? [];
      if (!node.content && calls.length === 0) continue;
      const message = { role: "assistant", content: node.content };
      if (node.thinking) message.reasoning_content = node.thinking;
      if (calls.length > 0) message.tool_calls = calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
      messages.push(message);
    } else {
      messages.push({ role: "user", content: node.content });
    }
  }
  return messages;
}

const isText = (value) => value === undefined || value === null || typeof value === "string";
const isCall = (call) => [call?.id, call?.name, call?.arguments].every((text) => typeof text === "string");

function isMessage(node) {
  return ["user", "assistant", "tool"].includes(node.role) && typeof node.content === "string" && isText(node.thinking) && isText(node.finish) && isText(node.error?.message)
    && (node.tools === undefined || (Array.isArray(node.tools) && node.tools.every(isCall)));
}

/** Whether something is a conversation of this shape, so that an imported one cannot break the page. */
export function isConversation(value) {
  if (typeof value !== "object" || value === null || typeof value.id !== "string" || typeof value.title !== "string") return false;
  if (typeof value.system !== "string" || typeof value.nodes !== "object" || value.nodes === null || !value.nodes.root) return false;
  const seen = new Set(["root"]);
  const open = ["root"];
  while (open.length > 0) {
    const id = open.pop();
    const node = Object.hasOwn(value.nodes, id) ? value.nodes[id] : null;
    if (!node || node.id !== id || !Array.isArray(node.children) || !Number.isInteger(node.shown)) return false;
    if (id !== "root" && !isMessage(node)) return false;
    for (const child of node.children) {
      if (typeof child !== "string" || seen.has(child) || value.nodes[child]?.parent !== id) return false;
      seen.add(child);
      open.push(child);
    }
  }
  return true;
}
