// Where conversations are kept: IndexedDB of this browser, in two tables, so that the list does not load every text.
// Without IndexedDB (some private windows) they live as long as the page does, and `Store.lasting` says so.

const DATABASE = "strata";
const HEADS = "heads";
const BODIES = "bodies";

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function finished(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error ?? new Error("the browser gave up storing"));
  });
}

function headOf(conversation) {
  const { id, title, named, created, updated } = conversation;
  return { id, title, named, created, updated };
}

/** The conversations of this browser. Tabs tell each other of changes. */
export class Store {
  #db = null;
  #memory = new Map();
  #channel = "BroadcastChannel" in window ? new BroadcastChannel("strata.conversations") : null;
  lasting = false;

  /** Opens the database. */
  static async open() {
    const store = new Store();
    try {
      const request = indexedDB.open(DATABASE, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore(HEADS, { keyPath: "id" });
        request.result.createObjectStore(BODIES, { keyPath: "id" });
      };
      store.#db = await done(request);
      store.#db.onversionchange = () => store.#db.close();
      store.lasting = true;
    } catch {
      store.#db = null;
    }
    return store;
  }

  /** Calls `listener` with the id of a conversation that another tab changed or deleted. */
  onChange(listener) {
    if (this.#channel) this.#channel.onmessage = (event) => listener(event.data);
  }

  /** The list, last changed first. */
  async heads() {
    const heads = this.#db ? await done(this.#db.transaction(HEADS).objectStore(HEADS).getAll()) : [...this.#memory.values()].map(headOf);
    return heads.sort((a, b) => b.updated - a.updated);
  }

  /** One conversation, or null. */
  async load(id) {
    if (!this.#db) return structuredClone(this.#memory.get(id) ?? null);
    return (await done(this.#db.transaction(BODIES).objectStore(BODIES).get(id))) ?? null;
  }

  /** Every conversation, for exports and searches in their text. */
  async all() {
    if (!this.#db) return structuredClone([...this.#memory.values()]);
    return done(this.#db.transaction(BODIES).objectStore(BODIES).getAll());
  }

  /** Keeps a conversation as it is now. */
  async save(conversation) {
    if (this.#db) {
      const transaction = this.#db.transaction([HEADS, BODIES], "readwrite");
      transaction.objectStore(HEADS).put(headOf(conversation));
      transaction.objectStore(BODIES).put(conversation);
      await finished(transaction);
    } else {
      this.#memory.set(conversation.id, structuredClone(conversation));
    }
    this.#channel?.postMessage(conversation.id);
  }

  /** Deletes a conversation. */
  async remove(id) {
    if (this.#db) {
      const transaction = this.#db.transaction([HEADS, BODIES], "readwrite");
      transaction.objectStore(HEADS).delete(id);
      transaction.objectStore(BODIES).delete(id);
      await finished(transaction);
    } else {
      this.#memory.delete(id);
    }
    this.#channel?.postMessage(id);
  }

  /** Ids of the conversations that hold every word of the query, in their title or a message. */
  async search(query) {
    const words = query.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    const found = new Set();
    for (const conversation of await this.all()) {
      const texts = [conversation.title, ...Object.values(conversation.nodes).map((node) => node.content ?? "")].join("\n").toLocaleLowerCase();
      if (words.every((word) => texts.includes(word))) found.add(conversation.id);
    }
    return found;
  }
}
