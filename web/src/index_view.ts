// The page of an index: how much it holds, how it is stored, what its scores mean, how it was tuned.

import { fill, h, s, vary, type Child } from "./dom.ts";
import { bytes, count, counted, percent, score } from "./format.ts";
import { meter } from "./explain.ts";
import { calibrationOf, fittedOf, kindName, kindsOf, tunedOf, usualWeights } from "./modes.ts";
import type { Store } from "./store.ts";
import type { Calibration, IndexInfo, TunedParams } from "./types.ts";

export class IndexView {
  readonly element = h("div", { class: "index-view" });

  constructor(private readonly store: Store) {}

  update(): void {
    const { info } = this.store;
    if (!info) return;
    const tuned = tunedOf(info);
    const calibration = calibrationOf(info);
    fill(
      this.element,
      h("header", { class: "index-head" }, h("h1", {}, info.name), h("p", { class: "note" }, describe(info))),
      h(
        "dl",
        { class: "numbers" },
        ...number("documents", info.documents, count),
        ...number("passages", info.passages, count),
        ...number(info.segments === 1 ? "segment" : "segments", info.segments, count),
        ...number("on disk", info.bytes, bytes),
      ),
      h("div", { class: "cards" }, storage(info), health(info), meaning(calibration), weightsCard(info), plan(tuned), model(info)),
    );
  }
}

function describe(info: IndexInfo): string {
  if (!info.created) return "";
  const made = new Date(info.created);
  const when = Number.isNaN(made.getTime()) ? info.created : made.toLocaleDateString("en", { year: "numeric", month: "long", day: "numeric" });
  return `Made on ${when}. Format ${info.format}.`;
}

function number(name: string, value: number | null | undefined, format: (value: number) => string): Child[] {
  return value === null || value === undefined ? [] : [h("div", {}, h("dd", {}, format(value)), h("dt", {}, name))];
}

function card(title: string, ...children: Child[]): HTMLElement {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/** The bytes of each part, largest first. */
function storage(info: IndexInfo): Child {
  if (!info.bytes_by_part || !info.bytes) return null;
  const total = info.bytes;
  const parts = Object.entries(info.bytes_by_part).sort((a, b) => b[1] - a[1]);
  const most = parts[0]?.[1] || 1;
  const rows = parts.map(([name, size]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "bar-cell" }, meter(size / most, "plain-bar")), h("td", {}, bytes(size)), h("td", {}, percent(size / total))));
  const each = info.documents ? `${bytes(total / info.documents)} for each document.` : "";
  return card("Storage", h("table", { class: "figures" }, h("tbody", {}, ...rows)), h("p", { class: "note" }, each, info.pooling && ` Multi vectors are pooled: ${info.pooling}.`));
}

/** The segments, each as wide as its share of the passages. */
function segments(info: IndexInfo): Child {
  const sizes = info.segment_sizes;
  if (!sizes?.length) return null;
  const total = sizes.reduce((sum, one) => sum + one.passages + one.deleted, 0) || 1;
  const label = sizes.map((one) => counted(one.passages, "passage")).join(", ");
  const row = h("div", { class: "segments", role: "img", "aria-label": `Segments: ${label}` });
  for (const one of sizes) {
    const all = one.passages + one.deleted;
    const box = h("span", { title: `${counted(one.passages, "passage")}, ${count(one.deleted)} deleted, ${bytes(one.bytes)}` });
    row.append(vary(vary(box, "--share", (all / total).toFixed(4)), "--live", all ? (one.passages / all).toFixed(4) : 1));
  }
  return h("div", { class: "gauge-row" }, h("p", {}, "Passages by segment", h("b", {}, sizes.length === 1 ? "one segment" : `${sizes.length} segments`)), row);
}

/** Deleted rows that still take space, and vectors that the codec was not fitted to. */
function health(info: IndexInfo): Child {
  const { drift, deleted_passages: deleted } = info;
  if (deleted === null || deleted === undefined) return null;
  const stored = Math.max((info.passages ?? 0) + deleted, 1);
  return card(
    "Upkeep",
    segments(info),
    gauge("Deleted passages that take space", deleted / stored, `${count(deleted)} of ${count(stored)}`, 0.2),
    drift
      ? gauge("Error of newer vectors against those the codec was fitted to", Math.min(drift.ratio / 2, 1), `${drift.ratio.toFixed(2)} × for ${counted(drift.n_vectors, "vector")}`, 0.625)
      : h("p", { class: "note" }, "No drift was measured: the codec was fitted to all vectors, or they are not compressed yet."),
    h("p", { class: "note" }, deleted / stored > 0.2 || (drift && drift.ratio > 1.25) ? "plait compact would help." : "Nothing to do."),
  );
}

/** A bar with a mark at the value from which something should be done. */
function gauge(name: string, share: number, text: string, mark: number): HTMLElement {
  const bar = vary(vary(h("div", { class: "gauge", role: "img", "aria-label": `${name}: ${text}` }, h("span", {}), h("i", {})), "--share", share.toFixed(4)), "--mark", mark);
  return h("div", { class: "gauge-row" }, h("p", {}, name, h("b", {}, text)), bar);
}

/** The best scores of queries about nothing in the index, as a curve, and the threshold of `min_score="auto"`. */
function meaning(calibration: Calibration | null): HTMLElement {
  if (!calibration || calibration.unrelated_mean === null || calibration.unrelated_deviation === null) {
    return card("What scores mean", h("p", { class: "note" }, "Not measured yet. An index of 20 documents or more is measured when documents are added; plait compact measures it again."));
  }
  const { unrelated_mean: mean, unrelated_deviation: deviation } = calibration;
  const [width, height, base] = [360, 120, 96];
  const threshold = Math.min(1, mean + 1.645 * deviation);
  const x = (value: number): number => 10 + value * (width - 20);
  const points = Array.from({ length: 181 }, (_, n) => n / 180).map((value) => {
    const z = (value - mean) / Math.max(deviation, 1e-3);
    return `${x(value).toFixed(1)} ${(base - 78 * Math.exp((-z * z) / 2)).toFixed(1)}`;
  });
  const label = `Unrelated queries score ${score(mean)} on average, with a deviation of ${score(deviation)}; results from ${score(threshold)} on are confident.`;
  const picture = s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "curve" },
    s("rect", { class: "sure", x: x(threshold), y: 12, width: x(1) - x(threshold), height: base - 12 }),
    s("path", { class: "area", d: `M${points.join("L")}Z` }),
    s("line", { class: "axis", x1: x(0), x2: x(1), y1: base, y2: base }),
    s("line", { class: "threshold", x1: x(threshold), x2: x(threshold), y1: 12, y2: base }),
    ...[0, 0.25, 0.5, 0.75, 1].map((value) => s("text", { x: x(value), y: base + 16, "text-anchor": "middle" }, value)),
    s("text", { class: "strong", x: x(threshold) + 6, y: 24 }, `confident from ${threshold.toFixed(2)}`),
  );
  return card("What scores mean", picture, h("p", { class: "note" }, `Best scores of ${count(calibration.n_queries)} queries about nothing here, measured on ${calibration.date} with ${counted(calibration.n_documents, "document")}.`));
}

function weightsCard(info: IndexInfo): HTMLElement {
  const weights = usualWeights(info);
  const fitted = fittedOf(info);
  const rows = kindsOf(info).map((kind) =>
    h("tr", {}, h("th", { scope: "row" }, h("i", { class: `dot kind-${kind}` }), kindName(kind)), h("td", { class: "bar-cell" }, meter((weights[kind] ?? 0) / 2, `kind-${kind}`)), h("td", {}, (weights[kind] ?? 0).toFixed(2)), h("td", {}, sizeOf(info, kind))),
  );
  return card("Weights of hybrid search", h("table", { class: "figures" }, h("tbody", {}, ...rows)), h("p", { class: "note" }, fitted ? `Fitted to judged queries, for fusion by ${fitted.fusion}.` : "The default ones. plait tune fits them to judged queries."));
}

function sizeOf(info: IndexInfo, kind: string): string {
  if (kind === "bm25") return info.language ?? "words";
  const size = info.kinds[kind];
  return kind === "sparse" ? `${count(size ?? 0)} terms` : `${count(size ?? 0)} dimensions`;
}

/** The stages of the tuned search as a funnel on a logarithmic scale, the recall and the time. */
function plan(tuned: TunedParams | null): HTMLElement {
  const title = "Late interaction, tuned";
  if (!tuned) return card(title, h("p", { class: "note" }, "Not tuned: parameters follow the size of the index. plait tune finds the fastest ones for a recall, and measures them."));
  const steps: [string, number][] = tuned.exhaustive
    ? [["passages, all scored", tuned.n_passages], ["returned", tuned.k]]
    : [["passages", tuned.n_passages], ["compared by centroids", tuned.n_candidates], ["scored by codes", tuned.n_code_scored], ["scored in full", tuned.n_rescored], ["returned", tuned.k]];
  const top = Math.log(Math.max(...steps.map(([, n]) => n)) + 1);
  const funnel = h("ol", { class: "funnel" }, ...steps.map(([name, n]) => h("li", {}, vary(h("span", { class: "funnel-bar" }), "--share", (Math.log(n + 1) / top).toFixed(3)), h("span", { class: "funnel-name" }, h("b", {}, count(n)), ` ${name}`))));
  return card(
    title,
    funnel,
    gauge(`Recall at ${tuned.k} of exhaustive search`, tuned.recall, `${percent(tuned.recall, 1)}, asked for ${percent(tuned.target_recall, 1)}`, tuned.target_recall),
    gauge("Time of a query, against exhaustive search", Math.min(1, tuned.median_ms / Math.max(tuned.exhaustive_ms, 1e-6)), `${tuned.median_ms.toFixed(2)} of ${tuned.exhaustive_ms.toFixed(2)} ms`, 1),
    h("p", { class: "note" }, `${counted(tuned.n_queries, "query").replace("querys", "queries")}, measured on ${tuned.date}.`, tuned.stale ? ` No longer used: ${tuned.stale}` : ""),
  );
}

function model(info: IndexInfo): HTMLElement {
  return card(
    "Model",
    h(
      "dl",
      { class: "facts" },
      h("dt", {}, "name"), h("dd", {}, info.model ?? "none: vectors of the caller"),
      h("dt", {}, "fingerprint"), h("dd", {}, info.fingerprint || "unknown"),
      h("dt", {}, "passages"), h("dd", {}, info.chunking || "as long as the model takes"),
      h("dt", {}, "language"), h("dd", {}, info.language ?? "English stems, any language"),
    ),
  );
}
