// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en");

/** A count with separators. */
export function count(n) {
  return whole.format(Math.round(n ?? 0));
}

/** A count with its noun: "1 token", "2 tokens". */
export function plural(n, noun) {
  return `${count(n)} ${noun}${Math.round(n) === 1 ? "" : "s"}`;
}

/** Seconds: "40 ms", "0.4 s", "12 s", "3 min 5 s", "2 h 10 min". */
export function seconds(s) {
  if (!Number.isFinite(s)) return "–";
  if (s < 0.1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  const r = Math.round(s);
  if (r < 60) return `${r} s`;
  if (r < 3600) return r % 60 ? `${Math.floor(r / 60)} min ${r % 60} s` : `${r / 60} min`;
  if (r < 172_800) return `${Math.floor(r / 3600)} h ${Math.floor((r % 3600) / 60)} min`;
  return `${Math.floor(r / 86_400)} days`;
}

/** Bytes in binary units. */
export function bytes(b) {
  if (!Number.isFinite(b)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = b;
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

/** A rate: one decimal below 100, none above. */
export function rate(r) {
  if (!Number.isFinite(r)) return "–";
  return r < 100 ? r.toFixed(1) : count(r);
}

/** A share of one as per cent. */
export function percent(share, digits = 0) {
  return Number.isFinite(share) ? `${(share * 100).toFixed(digits)} %` : "–";
}

/** When something was, for a list: the time today, else the date. */
export function when(ms) {
  const date = new Date(ms);
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const sameYear = date.getFullYear() === today.getFullYear();
  return date.toLocaleDateString([], sameYear ? { day: "numeric", month: "short" } : { day: "numeric", month: "short", year: "numeric" });
}
