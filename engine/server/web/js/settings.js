// What the user has chosen, kept in localStorage.

import { keep, recall } from "./local.js";

const KEY = "strata.settings";

/** Every setting with its default. Empty text means that the server's own default holds. */
export const DEFAULTS = Object.freeze({
  system: "",
  temperature: "",
  topP: "",
  topK: "",
  minP: "",
  seed: "",
  maxTokens: "",
  thinking: "auto",
  tools: "",
  enterSends: true,
});

/** The choices for thinking, with what the user reads. */
export const THINKING = [
  ["auto", "Auto"],
  ["off", "Off"],
  ["on", "On"],
  ["low", "Low effort"],
  ["medium", "Medium effort"],
  ["high", "High effort"],
];

/** The number fields: what each is called, its limits, and the name that the API has for it. */
export const NUMBERS = [
  { key: "temperature", label: "Temperature", api: "temperature", min: 0, max: 2, step: 0.05, hint: "0 takes the likeliest token each time" },
  { key: "topP", label: "Top-p", api: "top_p", min: 0, max: 1, step: 0.01, hint: "Likeliest tokens up to this share" },
  { key: "topK", label: "Top-k", api: "top_k", min: 0, max: 1_000_000, step: 1, hint: "That many likeliest tokens; 0: all" },
  { key: "minP", label: "Min-p", api: "min_p", min: 0, max: 1, step: 0.01, hint: "At least this share of the likeliest" },
  { key: "seed", label: "Seed", api: "seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, hint: "The same seed, the same answer" },
  { key: "maxTokens", label: "Most tokens", api: "max_tokens", min: 1, max: 10_000_000, step: 1, hint: "Per answer, thinking included" },
];

/** The settings as kept, with defaults for what is missing or of the wrong type. */
export function loadSettings() {
  let kept = {};
  try {
    kept = JSON.parse(recall(KEY) ?? "{}") ?? {};
  } catch {
    // Not ours or damaged: defaults.
  }
  const settings = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) if (typeof kept[key] === typeof DEFAULTS[key]) settings[key] = kept[key];
  if (!THINKING.some(([value]) => value === settings.thinking)) settings.thinking = "auto";
  return settings;
}

/** Keeps the settings; false where the browser has no room or does not allow it. */
export function saveSettings(settings) {
  return keep(KEY, JSON.stringify(settings));
}

/** What is wrong with a number's text, or "". */
export function numberProblem(field, text) {
  if (text.trim() === "") return "";
  const n = Number(text);
  if (!Number.isFinite(n) || n < field.min || n > field.max) return field.max >= 1_000_000 ? `A number from ${field.min} on` : `A number from ${field.min} to ${field.max}`;
  if (field.step === 1 && !Number.isInteger(n)) return "A whole number";
  return "";
}

/** The tool definitions: `{ tools }`, or `{ problem }` with what is wrong. */
export function parseTools(text) {
  if (text.trim() === "") return { tools: [] };
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    return { problem: `Not JSON: ${error.message}` };
  }
  if (!Array.isArray(tools)) return { problem: "A list [ … ] of tools is expected" };
  for (const tool of tools) {
    if (tool?.type !== "function" || typeof tool.function?.name !== "string") {
      return { problem: 'Each tool looks like {"type": "function", "function": {"name": …, "description": …, "parameters": {…}}}' };
    }
  }
  return { tools };
}

/** The fields of a request that the settings decide. */
export function requestFields(settings) {
  const fields = {};
  for (const field of NUMBERS) {
    const text = settings[field.key].trim();
    if (text !== "" && numberProblem(field, text) === "") fields[field.api] = Number(text);
  }
  const { thinking } = settings;
  if (thinking === "off") {
    fields.chat_template_kwargs = { enable_thinking: false };
  } else if (thinking !== "auto") {
    fields.chat_template_kwargs = { enable_thinking: true };
    if (thinking !== "on") fields.reasoning_effort = thinking;
  }
  const { tools } = parseTools(settings.tools);
  if (tools?.length) fields.tools = tools;
  return fields;
}
