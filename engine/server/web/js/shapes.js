// The server's numbers in the form that these pages use. What is written here is all that the pages know of the server's
// own words; fields that it leaves out stay undefined.

/** How fast tokens came: per second, or undefined where there were none. */
function perSecond(tokens, seconds) {
  return tokens > 0 && seconds > 0 ? tokens / seconds : undefined;
}

/**
 * What an answer cost: `{ prompt, cached, promptSeconds, promptRate, output, outputSeconds, outputRate, queueSeconds,
 * thinking, miss }`, from the `timings` (in milliseconds) and `usage` of a stream; null if there is neither.
 */
export function readCost(timings, usage) {
  if (!timings && !usage) return null;
  const t = timings ?? {};
  const details = usage?.prompt_tokens_details;
  const seconds = (ms) => (ms === undefined ? undefined : ms / 1000);
  const cached = details?.cached_tokens ?? t.cache_n ?? 0;
  const prompt = usage?.prompt_tokens ?? (t.prompt_n === undefined ? undefined : t.prompt_n + cached);
  const output = usage?.completion_tokens ?? t.predicted_n;
  const promptSeconds = seconds(t.prompt_ms);
  const outputSeconds = seconds(t.predicted_ms);
  return {
    prompt, cached, promptSeconds, output, outputSeconds,
    promptRate: perSecond(prompt - cached, promptSeconds),
    // The first token comes with the prompt.
    outputRate: perSecond(output - 1, outputSeconds),
    queueSeconds: seconds(t.queue_ms),
    thinking: usage?.completion_tokens_details?.reasoning_tokens,
    miss: details?.cache_miss_reason,
  };
}

/** How far a prompt is read, `{ read, of }`, from a comment such as "prompt 12/300"; else null. */
export function readProgress({ comment }) {
  const [, read, of] = /^prompt (\d+)\/(\d+)$/.exec(comment ?? "") ?? [];
  return of ? { read: Number(read), of: Number(of) } : null;
}

function readSpeeds(speeds) {
  const last = speeds?.at(-1);
  return last ? { prompt_per_second: last.prompt_rate, output_per_second: last.output_rate } : {};
}

/** Expert caches as `{ hit_rate_per_layer, on_paper }`, with null for a layer that was not asked; null without any. */
function readCache({ expert_cache: layers, expert_cache_on_paper: paper }) {
  if (!layers?.length) return null;
  const rates = [];
  for (const { layer, hits, lookups } of layers) rates[layer] = lookups > 0 ? hits / lookups : null;
  return { hit_rate_per_layer: Array.from(rates, (value) => value ?? null), on_paper: paper === true };
}

/** The server's status. */
export function readStatus(status) {
  const { uptime, share, model, info, tiers, conversations, speeds, rounds } = status;
  return {
    ...status,
    uptime_seconds: uptime,
    load_share: share,
    model: info ? { id: info.id, context: info.context, can_think: info.can_think } : model ? { id: model } : null,
    memory: { weights_bytes: tiers?.ram, vram_bytes: tiers?.vram, file_bytes: tiers?.file, conversations_bytes: conversations?.bytes },
    speeds: readSpeeds(speeds),
    // Each as milliseconds by part.
    rounds: (rounds ?? []).map(({ branches }) => Object.fromEntries(branches.map(({ name, ms }) => [name, ms]))),
    cache: readCache(status),
  };
}
