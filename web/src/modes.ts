// Modes of search and kinds of vectors, in words.

import { KINDS, type Kind, type Weights } from "./state.ts";
import type { Calibration, IndexInfo, TunedParams } from "./types.ts";

export const ABOUT_MODE: Record<string, string> = {
  hybrid: "every kind and BM25, fused",
  dense: "one vector a passage",
  sparse: "weighted terms",
  multi: "late interaction, word by word",
  bm25: "full text",
  exhaustive: "late interaction with every passage",
  plaid: "late interaction, pruned by centroids",
  xtr: "late interaction by token retrieval",
  colxtr: "XTR among the best cells together",
  warp: "XTR among the best cells of each token",
  "dense-then-multi": "the list of dense, ranked by multi",
  "bm25-then-multi": "the list of BM25, ranked by multi",
  "m3-dense-sparse": "dense and sparse, added",
  "m3-all": "dense, sparse and multi, added",
};

export const ABOUT_KIND: Record<string, string> = {
  dense: "one vector for each passage: what it is about",
  sparse: "weighted terms: which words the model expects",
  multi: "a vector for each word: late interaction",
  bm25: "full text: the words as they are written",
  smoothing: "a share of the scores of the most similar documents found",
  rerank: "a cross-encoder that reads query and passage together",
};

const NAMES: Record<string, string> = { bm25: "BM25" };
const DEFAULT_WEIGHTS: Record<Kind, number> = { dense: 1, sparse: 0.5, multi: 1, bm25: 0.7 };
// Modes that need a cross-encoder for every query are too slow for a page that answers while one types.
const SLOW = new Set(["anncur", "adacur", "axn"]);

export function kindName(kind: string): string {
  return NAMES[kind] ?? kind;
}

/** The modes that an index can search by. */
export function modesOf(info: IndexInfo | null): string[] {
  const modes = info?.modes?.length ? info.modes : ["hybrid", ...(info ? kindsOf(info) : ["bm25"])];
  return modes.filter((mode) => !SLOW.has(mode));
}

/** The kinds that hybrid search can fuse on an index. */
export function kindsOf(info: IndexInfo): Kind[] {
  return KINDS.filter((kind) => kind === "bm25" || info.kinds[kind]);
}

/** The weights of hybrid search when nobody sets any. */
export function usualWeights(info: IndexInfo): Weights {
  const excluded = info.exclude_from_hybrid ?? [];
  const fitted = fittedOf(info)?.weights;
  const weights: Weights = {};
  for (const kind of kindsOf(info)) {
    const left = excluded.includes(kind) && !((fitted?.[kind] ?? 0) > 0);
    weights[kind] = left ? 0 : (fitted ?? DEFAULT_WEIGHTS)[kind] ?? 0;
  }
  return weights;
}

// Saved settings are given as {params, damage} or as the params with `damage` among them.

export function tunedOf(info: IndexInfo): TunedParams | null {
  return saved<TunedParams>(info.tuned, "params", "n_probe");
}

export function fittedOf(info: IndexInfo): { fusion: string; weights: Record<string, number> } | null {
  return saved(info.weights, "fitted", "fusion");
}

export function calibrationOf(info: IndexInfo): Calibration | null {
  return saved<Calibration>(info.calibration, "usable", "bounds");
}

function saved<T>(given: object | null | undefined, inside: string, mark: string): T | null {
  if (!given) return null;
  const inner = (given as Record<string, unknown>)[inside];
  if (inner) return inner as T;
  return mark in given ? (given as T) : null;
}

/** The similarity of unrelated words, below which a match has no colour. */
export function similarityFloor(info: IndexInfo | null): number {
  const bounds = info && calibrationOf(info)?.bounds["multi"];
  return bounds ? Math.max(0, bounds[0]) : 0;
}
