// The server, as these pages see it. Every request goes to the page's own origin.

import { keep, recall } from "./local.js";
import { readEvents } from "./sse.js";

const KEY = "strata.key";
// Pages may lie in a folder of their own, and server and pages together below any path.
const PAGES = new URL("..", import.meta.url);
const BASE = PAGES.pathname.endsWith("/web/") ? new URL("..", PAGES) : PAGES;

/** What went wrong, in one sentence for the user. `status` 0: no answer came at all. */
export class ApiError extends Error {
  constructor(message, { status = 0, type = "", retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.retryAfter = retryAfter;
  }
}

/** The key that the server wants, or "". */
export function serverKey() {
  return recall(KEY, "session") ?? recall(KEY) ?? "";
}

/** Whether the key is kept when the browser closes. */
export function keyIsKept() {
  return recall(KEY) !== null;
}

/** Keeps a key for this tab only, or in this browser. An empty one is forgotten. */
export function setServerKey(key, lasting) {
  keep(KEY, key && !lasting ? key : null, "session");
  keep(KEY, key && lasting ? key : null);
}

async function errorOf(response) {
  let message = "";
  let type = "";
  try {
    const body = await response.json();
    message = body?.error?.message ?? (typeof body?.error === "string" ? body.error : "");
    type = body?.error?.type ?? body?.error?.code ?? "";
  } catch {
    // Not JSON: the status has to do.
  }
  const after = Number.parseFloat(response.headers.get("retry-after") ?? "");
  if (!message) message = `The server answered ${response.status}${response.statusText ? ` (${response.statusText})` : ""}.`;
  return new ApiError(message, { status: response.status, type, retryAfter: Number.isFinite(after) ? after : null });
}

/** Sends a request; resolves to a response whose status is a success, else throws an `ApiError`. */
export async function send(path, { body, signal } = {}) {
  const headers = {};
  const key = serverKey();
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, BASE), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error?.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. It may have been stopped.");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** A GET that is answered with JSON. */
export async function getJson(path, options = {}) {
  const response = await send(path, options);
  try {
    return await response.json();
  } catch {
    throw new ApiError(`The server's answer to ${path} is not JSON.`);
  }
}

/** The chunks of a streamed chat completion, as objects; `{ comment }` for each heartbeat. Ends at [DONE]. */
export async function* streamChat(body, signal) {
  const response = await send("v1/chat/completions", { body: { ...body, stream: true, stream_options: { include_usage: true } }, signal });
  const type = response.headers.get("content-type") ?? "";
  if (!type.includes("text/event-stream") || !response.body) throw new ApiError("The server did not answer with a stream.");
  let events = 0;
  try {
    for await (const { data, comment } of readEvents(response.body)) {
      if (data === undefined) {
        yield { comment };
        continue;
      }
      if (data === "[DONE]") return;
      events += 1;
      let chunk;
      try {
        chunk = JSON.parse(data);
      } catch {
        throw new ApiError("The server sent something that is not JSON.");
      }
      if (chunk.error) throw new ApiError(chunk.error.message ?? "The answer failed.", { status: 200, type: chunk.error.type ?? "" });
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || error?.name === "AbortError") throw error;
    throw new ApiError("The connection broke while the answer was written.");
  }
  throw new ApiError(events === 0 ? "The server closed the connection without an answer." : "The connection ended before the answer did.");
}
