// What the server says of itself, kept up to date for as long as the page is looked at.

import { ApiError, getJson, send } from "./api.js";
import { readStatus } from "./shapes.js";
import { readEvents } from "./sse.js";

const RETRY_MS = [500, 1000, 2000, 4000, 8000];
// The server speaks once a second; after this long a connection counts as dead, even if it was never closed.
const SILENCE_MS = 10_000;
const POLL_MS = 1000;

/**
 * Follows `/v1/events`, or asks `/v1/status` again and again where a server has no events. Listeners get `{ link, status, error }`: link is "connecting", "open", "gone" (the server
 * does not answer), "locked" (it wants a key) or "unsupported"; status is the last snapshot, or null.
 */
export class Live {
  #listeners = new Set();
  #abort = null;
  #failures = 0;
  #timer = 0;
  #polls = false;
  state = { link: "connecting", status: null, error: "" };

  constructor() {
    // Browsers open six connections to a server at most, so tabs out of sight give theirs back.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.restart()));
    window.addEventListener("online", () => this.restart());
  }

  /** Calls `listener` now and at every change. */
  listen(listener) {
    this.#listeners.add(listener);
    listener(this.state);
  }

  /** Connects again at once, for example after a key was given. */
  restart() {
    this.#close();
    this.#failures = 0;
    this.#run();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  #tell(change) {
    this.state = { ...this.state, ...change };
    for (const listener of this.#listeners) listener(this.state);
  }

  async #run() {
    const abort = new AbortController();
    this.#abort = abort;
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    try {
      for await (const status of this.#polls ? this.#poll(abort.signal, heard) : this.#events(abort.signal, heard)) {
        this.#failures = 0;
        this.#tell({ link: "open", status: readStatus(status), error: "" });
      }
      this.#lost(abort, null);
    } catch (error) {
      this.#lost(abort, error);
    } finally {
      clearTimeout(silence);
    }
  }

  async *#events(signal, heard) {
    heard();
    const response = await send("v1/events", { signal });
    for await (const { event, data } of readEvents(response.body)) {
      heard();
      if (data !== undefined && (event === "status" || event === "message")) yield JSON.parse(data);
    }
  }

  async *#poll(signal, heard) {
    for (;;) {
      heard();
      yield await getJson("v1/status", { signal });
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  #lost(abort, error) {
    // A newer connection took over, or the tab went out of sight.
    if (this.#abort !== abort) return;
    this.#abort = null;
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 401 || status === 403) {
      this.#tell({ link: "locked", error: error.message });
      return;
    }
    if (status === 404 && !this.#polls) {
      this.#polls = true;
      this.#run();
      return;
    }
    if (status === 404) {
      this.#tell({ link: "unsupported", error: "This server reports no status." });
      return;
    }
    this.#tell({ link: "gone", error: status ? error.message : "The server cannot be reached." });
    const wait = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)];
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#run(), wait);
  }
}
