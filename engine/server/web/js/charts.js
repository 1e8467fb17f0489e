// Charts of the monitor. Shapes are SVG that stretches to its box; words are HTML beside it, so that they do not.

import { h, svg } from "./dom.js";
import { count, percent, rate } from "./format.js";

/** A step above `value` that reads well on an axis: 1, 2 or 5 times a power of ten. */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((top) => top >= value);
}

/**
 * A line over time. `points` are `{ t, v }` in milliseconds and units, oldest first; the right edge is `now`.
 * Returns an element that is described by `label` for those who cannot see it.
 */
export function lineChart(points, { now, span, label, unit }) {
  const top = niceCeiling(Math.max(...points.map((p) => p.v), 0));
  const x = (t) => ((1 - (now - t) / span) * 600).toFixed(1);
  const y = (v) => (100 - (v / top) * 96).toFixed(1);
  const line = points.map((p) => `${x(p.t)},${y(p.v)}`).join(" ");
  const shapes = points.length > 1
    ? [svg("polygon", { class: "area", points: `${x(points[0].t)},100 ${line} ${x(points.at(-1).t)},100` }), svg("polyline", { class: "line", points: line })]
    : [];
  const last = points.at(-1)?.v ?? 0;
  return h("div", { class: "chart" },
    svg("svg", { viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: now ${rate(last)} ${unit}, at most ${rate(Math.max(...points.map((p) => p.v), 0))}` },
      svg("line", { class: "grid", x1: 0, x2: 600, y1: 4, y2: 4 }), svg("line", { class: "grid", x1: 0, x2: 600, y1: 52, y2: 52 }), svg("line", { class: "axis", x1: 0, x2: 600, y1: 100, y2: 100 }), shapes),
    h("span", { class: "top", "aria-hidden": "true" }, count(top)),
    h("span", { class: "from", "aria-hidden": "true" }, span < 120_000 ? `${Math.round(span / 1000)} s ago` : `${Math.round(span / 60_000)} min ago`),
    h("span", { class: "to", "aria-hidden": "true" }, "now"));
}

/** The value below which a share of them lies. */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}

/**
 * Stacked bars, one per round, oldest first. `keys` are the parts from bottom to top with their names and classes.
 * One slow round must not flatten the rest: bars far beyond the others are cut, and `cut` says how many.
 */
export function stackedBars(rounds, keys, label) {
  const totals = rounds.map((round) => keys.reduce((sum, { key }) => sum + (round[key] ?? 0), 0));
  const most = Math.max(...totals, 0);
  const usual = quantile(totals, 0.95);
  const top = niceCeiling(most > 3 * usual && usual > 0 ? 1.2 * usual : most);
  const width = 600 / Math.max(rounds.length, 40);
  const bars = rounds.map((round, i) => {
    let below = 0;
    const parts = [];
    for (const { key, series } of keys) {
      const ms = round[key] ?? 0;
      const from = Math.min(below, top);
      const to = Math.min(below + ms, top);
      below += ms;
      if (to > from) parts.push(svg("rect", { class: `series-${series}`, x: (i * width).toFixed(2), width: (width * 0.84).toFixed(2), y: (100 - (to / top) * 100).toFixed(2), height: (((to - from) / top) * 100).toFixed(2) }));
    }
    const words = keys.filter(({ key }) => round[key] > 0).map(({ key, name }) => `${name} ${round[key].toFixed(2)} ms`).join("\n");
    return svg("g", {}, svg("title", {}, `${totals[i].toFixed(2)} ms\n${words}`), parts);
  });
  const chart = h("div", { class: "chart tall" },
    svg("svg", { viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("line", { class: "axis", x1: 0, x2: 600, y1: 100, y2: 100 }), bars),
    h("span", { class: "top", "aria-hidden": "true" }, `${top < 1 ? top.toPrecision(1) : count(top)} ms`),
    h("span", { class: "from", "aria-hidden": "true" }, `${rounds.length} rounds`),
    h("span", { class: "to", "aria-hidden": "true" }, "latest"));
  return { chart, cut: totals.filter((total) => total > top).length };
}

/** Hit rates by layer as coloured cells; a rate of null means that the layer was not asked yet. */
export function heatMap(rates) {
  return h("ol", { class: "heat" }, rates.map((value, layer) => {
    const known = Number.isFinite(value);
    const cell = h("li", { class: known ? "cell" : "cell unknown", title: `Layer ${layer}: ${known ? percent(value, 1) : "not asked yet"}` },
      h("span", { class: "layer" }, h("span", { class: "off-screen" }, "Layer "), String(layer)), h("span", { class: "rate" }, known ? percent(value) : "–"));
    if (known) cell.style.setProperty("--rate", Math.max(0, Math.min(1, value)).toFixed(3));
    return cell;
  }));
}

/** How much of a whole there is, as a bar that is called `label`. */
export function meter(value, most, label) {
  const filled = h("span");
  filled.style.width = `${most > 0 ? Math.min(100, (100 * value) / most) : 0}%`;
  return h("div", { class: "meter", role: "meter", "aria-valuemin": 0, "aria-valuemax": most, "aria-valuenow": value, "aria-label": label }, filled);
}

/** One bar in parts `{ name, value, series, text }`, with its legend. */
export function shareBar(parts, total) {
  const bar = h("div", { class: "share", "aria-hidden": "true" });
  for (const part of parts) {
    const piece = h("span", { class: `series-${part.series}` });
    piece.style.width = `${total > 0 ? (100 * part.value) / total : 0}%`;
    bar.append(piece);
  }
  return h("div", {}, bar, h("ul", { class: "legend" }, parts.map((part) => h("li", {}, h("span", { class: `key series-${part.series}` }), h("span", {}, part.name), h("b", {}, part.text)))));
}
