// The monitor: what the server does now, and what it did in the last minutes.

import { heatMap, lineChart, meter, quantile, shareBar, stackedBars } from "./charts.js";
import { h } from "./dom.js";
import { bytes, count, percent, plural, rate, seconds } from "./format.js";

const SPAN = 5 * 60_000;
const SHORTEST_SPAN = 60_000;
// Rates are taken over so long, since tokens come in rounds.
const WINDOW = 3000;

/** The parts of a round, bottom to top: what is computed, then what is waited for. */
const BRANCHES = [
  ["gpu_dense", "GPU, dense weights"], ["gpu_hits", "GPU, resident experts"], ["pcie_copy", "Copies to the GPU"], ["cpu_experts", "CPU, experts"],
  ["draft", "Drafting"], ["commit", "Committing"], ["wait_gpu", "CPU waits for GPU"], ["wait_cpu", "GPU waits for CPU"], ["other", "Everything else"],
];

function branchesOf(rounds) {
  const seen = new Set(rounds.flatMap((round) => Object.keys(round).filter((key) => round[key] > 0)));
  const known = BRANCHES.map(([key, name], series) => ({ key, name, series })).filter(({ key }) => seen.has(key));
  const others = [...seen].filter((key) => !BRANCHES.some(([name]) => name === key)).sort();
  return [...known, ...others.map((key, i) => ({ key, name: key.replaceAll("_", " "), series: (BRANCHES.length - 1 + i) % BRANCHES.length }))];
}

function facts(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Keeps the history and draws the panels. */
export class Monitor {
  #history = [];
  #state = { link: "connecting", status: null, error: "" };
  #visible = false;
  #panels = new Map();

  constructor(root) {
    const names = [
      ["state", "Server", ""], ["writing", "Writing", ""], ["reading", "Reading", ""], ["queue", "Queue", ""],
      ["rounds", "Time of each round", "wide"], ["cache", "Expert cache, hits by layer", "wide"],
      ["memory", "Memory", "half"], ["drafts", "Drafts", "half"], ["conversations", "Conversations", "half"], ["counters", "Since the start", "half"],
      ["degradations", "Degradations", "wide"],
    ];
    const grid = h("div", { class: "panels" }, names.map(([key, name, size]) => {
      const body = h("div", { class: "panel-body" });
      const panel = h("section", { class: `panel ${size}`, "aria-labelledby": `panel-${key}`, "data-panel": key }, h("h2", { id: `panel-${key}`, tabindex: "-1" }, name), body);
      this.#panels.set(key, body);
      return panel;
    }));
    this.notice = h("p", { class: "quiet monitor-notice", role: "status" });
    root.append(this.notice, grid);
    this.grid = grid;
  }

  /** Takes what the server reported, or that it is gone. */
  take(state) {
    const fresh = state.link === "open" && state.status && state.status !== this.#state.status;
    this.#state = state;
    if (fresh) this.#record(state.status);
    if (this.#visible) this.#draw();
  }

  setVisible(visible) {
    this.#visible = visible;
    if (visible) this.#draw();
  }

  #record(status) {
    const t = Date.now();
    const { counters: c = {}, uptime_seconds: uptime = 0 } = status;
    const last = this.#history.at(-1);
    // Another run of the server counts from zero again.
    if (last && uptime < last.uptime) this.#history = [];
    this.#history.push({ t, uptime, out: c.output_tokens ?? 0, read: (c.prompt_tokens ?? 0) - (c.cached_tokens ?? 0) });
    while (this.#history.length > 0 && t - this.#history[0].t > SPAN + WINDOW) this.#history.shift();
  }

  /** Tokens per second over time, from how a counter grew. */
  #rates(key) {
    const points = [];
    let from = 0;
    this.#history.forEach((sample, i) => {
      while (sample.t - this.#history[from].t > WINDOW && from < i - 1) from += 1;
      const dt = (sample.t - this.#history[from].t) / 1000;
      if (dt > 0.2) points.push({ t: sample.t, v: Math.max(0, (sample[key] - this.#history[from][key]) / dt) });
    });
    return points;
  }

  #put(key, ...content) {
    this.#panels.get(key).replaceChildren(...content.filter(Boolean));
  }

  #draw() {
    const { link, status, error } = this.#state;
    // The banner above says why nothing comes.
    const text = link === "unsupported" ? error : link !== "open" && status ? "What is shown is from before." : link === "connecting" ? "Connecting…" : "";
    if (this.notice.textContent !== text) this.notice.textContent = text;
    this.notice.hidden = text === "";
    this.grid.classList.toggle("stale", link !== "open");
    this.grid.hidden = !status;
    if (!status) return;
    this.#drawState(status);
    this.#drawSpeed("writing", "out", "output_per_second", status);
    this.#drawSpeed("reading", "read", "prompt_per_second", status);
    this.#drawQueue(status);
    this.#drawRounds(status.rounds ?? []);
    this.#drawCache(status.cache);
    this.#drawMemory(status.memory);
    this.#drawDrafts(status.drafts);
    this.#drawConversations(status.conversations);
    this.#drawCounters(status.counters);
    this.#drawDegradations(status.degradations ?? []);
  }

  #drawState({ state, load_share: share, model, version, uptime_seconds: uptime }) {
    const gone = this.#state.link !== "open";
    const words = { ready: "Ready", loading: `Loading, ${percent(share ?? 0)}`, failed: "Failed", stopping: "Stopping", empty: "No model" };
    this.#put("state",
      h("p", { class: `big state-${gone ? "gone" : state}` }, h("span", { class: "dot", "aria-hidden": "true" }), gone ? "Gone" : (words[state] ?? state)),
      state === "loading" ? h("progress", { max: 1, value: share ?? 0, "aria-label": "Model loaded" }) : null,
      facts([["Model", model?.id ?? "–"], ["Context", model?.context ? plural(model.context, "token") : "–"], ["Up for", seconds(uptime)], ["Version", version ?? "–"]]));
  }

  #drawSpeed(panel, key, last, status) {
    const points = this.#rates(key);
    const of = status.speeds?.[last];
    const now = Date.now();
    const span = Math.max(SHORTEST_SPAN, Math.min(SPAN, now - (points[0]?.t ?? now)));
    this.#put(panel,
      h("p", { class: "big" }, rate(points.at(-1)?.v ?? 0), h("small", {}, " tokens/s")),
      h("p", { class: "quiet" }, Number.isFinite(of) ? `Last answer: ${rate(of)} tokens/s` : "No answer yet"),
      lineChart(points.filter(({ t }) => now - t <= span), { now, span, label: panel === "writing" ? "Tokens written" : "Tokens read", unit: "tokens per second" }));
  }

  #drawQueue({ queue }) {
    const { waiting = 0, running = 0, limit = 0 } = queue ?? {};
    this.#put("queue",
      h("p", { class: "big" }, count(waiting), h("small", {}, waiting === 1 ? " request waits" : " requests wait")),
      h("p", { class: "quiet" }, `${plural(running, "request")} running`),
      meter(waiting, limit, `${waiting} of ${limit} places taken`),
      h("p", { class: "quiet" }, `${plural(limit, "place")} in all`));
  }

  #drawRounds(rounds) {
    if (rounds.length === 0) {
      this.#put("rounds", h("p", { class: "quiet" }, "No round yet. A round is one pass that verifies drafts and writes the next tokens."));
      return;
    }
    const keys = branchesOf(rounds);
    const totals = rounds.map((round) => keys.reduce((sum, { key }) => sum + (round[key] ?? 0), 0));
    const all = totals.reduce((a, b) => a + b, 0);
    const { chart, cut } = stackedBars(rounds, keys, `The last ${rounds.length} rounds: median ${quantile(totals, 0.5).toFixed(2)} milliseconds`);
    const legend = h("ul", { class: "legend" }, keys.map(({ key, name, series }) => {
      const ms = rounds.reduce((sum, round) => sum + (round[key] ?? 0), 0);
      return h("li", {}, h("span", { class: `key series-${series}` }), h("span", {}, name), h("b", {}, `${(ms / rounds.length).toFixed(2)} ms`), h("span", { class: "quiet" }, percent(ms / all)));
    }));
    this.#put("rounds", h("p", { class: "quiet" }, `Median ${quantile(totals, 0.5).toFixed(2)} ms, 95 of 100 below ${quantile(totals, 0.95).toFixed(2)} ms.${cut ? ` ${plural(cut, "bar")} reach${cut === 1 ? "es" : ""} beyond the top.` : ""}`), chart, legend);
  }

  #drawCache(cache) {
    if (!cache) {
      this.#put("cache", h("p", { class: "quiet" }, "There is no expert cache: every expert is computed where it lies, in RAM."));
      return;
    }
    const rates = cache.hit_rate_per_layer;
    const known = rates.map((value, layer) => ({ value, layer })).filter(({ value }) => Number.isFinite(value));
    const paper = cache.on_paper ? " On paper: no GPU holds experts, and a recording counts what one would hold." : "";
    if (known.length === 0) {
      this.#put("cache", h("p", { class: "quiet" }, `The expert cache has not been asked yet.${paper}`));
      return;
    }
    const mean = known.reduce((sum, { value }) => sum + value, 0) / known.length;
    const worst = known.reduce((a, b) => (b.value < a.value ? b : a), known[0]);
    this.#put("cache", h("p", { class: "quiet" }, `Mean ${percent(mean, 1)}, least ${percent(worst.value, 1)} in layer ${worst.layer}.${paper}`), heatMap(rates));
  }

  #drawMemory(memory) {
    const { weights_bytes: weights = 0, conversations_bytes: kept = 0, vram_bytes: vram = 0, file_bytes: file } = memory;
    const parts = [
      { name: "Weights", value: weights, series: 0, text: bytes(weights) },
      { name: "Conversations", value: kept, series: 3, text: bytes(kept) },
    ];
    this.#put("memory", h("h3", {}, "RAM"), shareBar(parts, weights + kept), h("h3", {}, "VRAM"), h("p", { class: vram ? "" : "quiet" }, vram ? bytes(vram) : "None: no GPU is used."),
      ...(file ? [h("h3", {}, "SSD"), h("p", {}, `${bytes(file)} of weights left in the file, read when needed`)] : []));
  }

  #drawDrafts(drafts) {
    const { proposed = 0, accepted = 0, rounds = 0 } = drafts ?? {};
    if (proposed === 0) {
      this.#put("drafts", h("p", { class: "quiet" }, "Nothing has been drafted yet."));
      return;
    }
    this.#put("drafts", h("p", { class: "big" }, percent(accepted / proposed), h("small", {}, " accepted")),
      meter(accepted, proposed, "Drafts accepted"),
      facts([["Proposed", count(proposed)], ["Accepted", count(accepted)], ["Rounds", count(rounds)], ["Accepted in a round", rounds ? (accepted / rounds).toFixed(2) : "–"]]));
  }

  #drawConversations(conversations) {
    const c = conversations ?? {};
    this.#put("conversations", h("p", { class: "big" }, count(c.kept), h("small", {}, " kept")),
      facts([["Bytes", bytes(c.bytes ?? 0)], ["Started", count(c.started)], ["Gone on with", count(c.resumed)], ["Branched", count(c.branched)], ["Given up for room", count(c.evicted)]]));
  }

  #drawCounters(counters) {
    const c = counters ?? {};
    const refused = Object.entries(c.refused ?? {}).filter(([, n]) => n > 0);
    const share = c.prompt_tokens ? ` (${percent(c.cached_tokens / c.prompt_tokens)})` : "";
    this.#put("counters", facts([
      ["Requests", count(c.requests)], ["Prompt tokens", count(c.prompt_tokens)], ["Of them cached", `${count(c.cached_tokens)}${share}`], ["Tokens written", count(c.output_tokens)],
      ["Cancelled", count(c.cancelled)], ["Refused", refused.length ? refused.map(([kind, n]) => `${kind.replaceAll("_", " ")} ${count(n)}`).join(", ") : "0"],
    ]));
  }

  #drawDegradations(degradations) {
    const now = degradations.filter(({ count: n }) => n > 0);
    if (now.length === 0) {
      this.#put("degradations", h("p", { class: "quiet" }, "None: everything works as it was asked to."));
      return;
    }
    this.#put("degradations", h("ul", { class: "degradations" }, now.map(({ name, count: n, text }) => h("li", {}, h("code", {}, name), h("span", { class: "times" }, n === 1 ? "once" : `${count(n)} times`), h("p", {}, text)))));
  }
}
