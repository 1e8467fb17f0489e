// Server-sent events, read from a fetch. EventSource can neither POST nor send a key.

/** Splits text into events: `push` takes text as it comes and returns what is complete. */
export class EventParser {
  #rest = "";
  #event = "";
  #data = [];

  push(text) {
    this.#rest += text;
    const found = [];
    for (;;) {
      const at = this.#rest.search(/[\r\n]/);
      if (at < 0) break;
      // A final \r may be the first half of \r\n; wait for the other.
      if (this.#rest[at] === "\r" && at + 1 === this.#rest.length) break;
      const line = this.#rest.slice(0, at);
      this.#rest = this.#rest.slice(at + (this.#rest.startsWith("\r\n", at) ? 2 : 1));
      this.#line(line, found);
    }
    return found;
  }

  #line(line, found) {
    if (line === "") {
      if (this.#data.length > 0) found.push({ event: this.#event || "message", data: this.#data.join("\n") });
      this.#event = "";
      this.#data = [];
    } else if (line.startsWith(":")) {
      found.push({ comment: line.slice(1).trim() });
    } else {
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#event = value;
      if (field === "data") this.#data.push(value);
    }
  }
}

/** The events of a response's body, until it ends. */
export async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
