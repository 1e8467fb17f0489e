// The server's numbers in the form that these pages use. Fields that a server leaves out stay undefined; what is
// written beside a name here is all that the pages know of the server's own words.

/** How fast tokens came: per second, or undefined where there were none. */
function perSecond(tokens, seconds) {
  return tokens > 0 && seconds > 0 ? tokens / seconds : undefined;
}

/**
 * What an answer cost: `{ prompt, cached, promptSeconds, promptRate, output, outputSeconds, outputRate, queueSeconds,
 * thinking, miss }`, from the `timings` and `usage` of a stream; null if there is neither. Timings come in seconds, or
 * in the milliseconds that other servers of this kind send.
 */
export function readCost(timings, usage) {
  if (!timings && !usage) return null;
  const t = timings ?? {};
  const details = usage?.prompt_tokens_details;
  const seconds = (s, ms) => s ?? (ms === undefined ? undefined : ms / 1000);
  const cached = details?.cached_tokens ?? t.cached_tokens ?? t.cache_n ?? 0;
  const prompt = usage?.prompt_tokens ?? t.prompt_tokens ?? (t.prompt_n === undefined ? undefined : t.prompt_n + cached);
  const output = usage?.completion_tokens ?? t.output_tokens ?? t.predicted_n;
  const promptSeconds = seconds(t.prompt_seconds, t.prompt_ms);
  const outputSeconds = seconds(t.output_seconds, t.predicted_ms);
  return {
    prompt, cached, promptSeconds, output, outputSeconds,
    promptRate: perSecond(prompt - cached, promptSeconds),
    // The first token comes with the prompt.
    outputRate: perSecond(output - 1, outputSeconds),
    queueSeconds: seconds(t.queue_seconds, t.queue_ms),
    thinking: usage?.completion_tokens_details?.reasoning_tokens,
    miss: details?.cache_miss_reason,
  };
}

/** How far a prompt is read, `{ read, of }`, from a chunk's field or a comment such as "prompt 12/300"; else null. */
export function readProgress({ prompt_progress: field, comment }) {
  if (field) return field;
  const [, read, of] = /^prompt (\d+)\/(\d+)$/.exec(comment ?? "") ?? [];
  return of ? { read: Number(read), of: Number(of) } : null;
}

function readModel(status) {
  const { model, info } = status;
  if (model && typeof model === "object") return model;
  if (info) return { id: info.id, context: info.context, can_think: info.can_think };
  return typeof model === "string" ? { id: model } : null;
}

function readMemory({ memory, tiers, conversations }) {
  if (memory) return memory;
  return { weights_bytes: tiers?.ram, vram_bytes: tiers?.vram, file_bytes: tiers?.file, conversations_bytes: conversations?.bytes };
}

function readSpeeds(speeds) {
  if (!Array.isArray(speeds)) return speeds ?? {};
  const last = speeds.at(-1);
  return last ? { prompt_per_second: last.prompt_rate, output_per_second: last.output_rate } : {};
}

function readCache({ cache, expert_cache: layers }) {
  if (cache || !layers?.length) return cache ?? null;
  const rates = [];
  for (const { layer, hits, lookups } of layers) rates[layer] = lookups > 0 ? hits / lookups : null;
  return { slots: undefined, hit_rate_per_layer: Array.from(rates, (value) => value ?? null) };
}

/** A round as milliseconds by part. */
function readRound(round) {
  return Array.isArray(round.branches) ? Object.fromEntries(round.branches.map(({ name, ms }) => [name, ms])) : round;
}

/** The server's status. */
export function readStatus(status) {
  return {
    ...status,
    uptime_seconds: status.uptime_seconds ?? status.uptime,
    load_share: status.load_share ?? status.share,
    model: readModel(status),
    memory: readMemory(status),
    speeds: readSpeeds(status.speeds),
    rounds: (status.rounds ?? []).map(readRound),
    cache: readCache(status),
  };
}
