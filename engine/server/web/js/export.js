// Conversations as files: JSON that can be read back, and Markdown for people.

import { download } from "./dom.js";
import { isConversation, newId, shownPath } from "./tree.js";

const FORMAT = "strata-conversations";

/** A file name that every system takes. */
export function fileName(title) {
  const name = title.normalize("NFC").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60);
  return name || "conversation";
}

/** Conversations as JSON. */
export function toJson(conversations) {
  return JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 2);
}

/** Text in a fence that is longer than any inside it. */
function fenced(text, lang) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((m) => m[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${lang}\n${text}\n${fence}`;
}

/** What is shown of a conversation as Markdown. */
export function toMarkdown(conversation) {
  const parts = [`# ${conversation.title || "Conversation"}`];
  if (conversation.system.trim()) parts.push("## System prompt", conversation.system.trim());
  for (const node of shownPath(conversation)) {
    if (node.role === "user") parts.push("## You", node.content);
    if (node.role === "tool") parts.push(`## Result of ${node.name || "a tool"}`, fenced(node.content, ""));
    if (node.role !== "assistant") continue;
    parts.push(`## ${node.model ?? "Answer"}`);
    if (node.thinking) parts.push("<details><summary>Thinking</summary>", node.thinking.trim(), "</details>");
    if (node.content) parts.push(node.content.trim());
    for (const call of node.tools ?? []) parts.push(`Calls \`${call.name}\`:`, fenced(call.arguments, "json"));
    if (node.state === "broken" || node.state === "stopped") parts.push(`*(${node.state === "stopped" ? "stopped" : "broken off"} here)*`);
  }
  return `${parts.join("\n\n")}\n`;
}

/** Offers one conversation as a file. */
export function exportConversation(conversation, kind) {
  const name = fileName(conversation.title);
  if (kind === "markdown") download(`${name}.md`, "text/markdown", toMarkdown(conversation));
  else download(`${name}.json`, "application/json", toJson([conversation]));
}

/** Offers all conversations as one file. */
export function exportAll(conversations) {
  download("strata-conversations.json", "application/json", toJson(conversations));
}

/** The conversations of a file that `toJson` made; throws an Error with a sentence. Each gets an id of its own. */
export function fromJson(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) throw new Error("The file does not hold conversations exported from here.");
  const bad = file.conversations.findIndex((conversation) => !isConversation(conversation));
  if (bad >= 0) throw new Error(`Conversation ${bad + 1} of the file is damaged.`);
  return file.conversations.map((conversation) => ({ ...conversation, id: newId() }));
}
