// The body of a search for a state of the page.

import type { Body } from "./api.ts";
import { filterOf } from "./filters.ts";
import type { State } from "./state.ts";

export const N_HITS = 10; // on a page of results
export const CONFIDENT = 0.95; // the threshold of min_score "auto"

export function searchBody(state: State, extra: Body = {}): Body {
  const mode = typeof extra["mode"] === "string" ? extra["mode"] : state.mode;
  const body: Body = { query: state.q.trim(), k: N_HITS, mode, explain: true, timings: true };
  const filter = filterOf(state.filter, state.choices);
  if (filter) body["filter"] = filter;
  if (mode === "hybrid" && state.weights) body["params"] = { ...state.weights };
  if (mode === "hybrid" && state.sure) body["min_score"] = "auto";
  if (state.rerank) body["rerank"] = true;
  return { ...body, ...extra };
}

/** Whether two states ask the server the same. */
export function sameSearch(one: State, other: State): boolean {
  return one.index === other.index && JSON.stringify(searchBody(one)) === JSON.stringify(searchBody(other));
}
