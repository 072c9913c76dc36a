// What the address of the page holds, so that a link shows the same page to somebody else.

import type { Value } from "./types.ts";

export const KINDS = ["dense", "sparse", "multi", "bm25"] as const;
export type Kind = (typeof KINDS)[number];
export type View = "search" | "compare" | "index" | "document";
export type Weights = Partial<Record<Kind, number>>;

export interface Choice {
  field: string;
  value: Value;
  list: boolean; // the field is a list that contains the value
}

export interface State {
  view: View;
  index: string;
  q: string;
  mode: string;
  against: string; // the second mode of a comparison
  filter: string;
  choices: Choice[]; // values of facets
  weights: Weights | null;
  mix: boolean; // the panel of weights is open
  sure: boolean; // leave out hits that are not confident
  rerank: boolean;
  id: string; // of the document that is shown
}

export const START: State = {
  view: "search",
  index: "",
  q: "",
  mode: "hybrid",
  against: "bm25",
  filter: "",
  choices: [],
  weights: null,
  mix: false,
  sure: false,
  rerank: false,
  id: "",
};

const VIEWS: readonly string[] = ["search", "compare", "index", "document"];
const MAX_LENGTH = 20_000; // of a text in an address; longer ones are cut

/** The state of an address. What cannot be read is left out. */
export function readState(search: string): State {
  const given = new URLSearchParams(search);
  const text = (name: string): string => (given.get(name) ?? "").slice(0, MAX_LENGTH);
  const view = text("view");
  return {
    ...START,
    view: VIEWS.includes(view) ? (view as View) : "search",
    index: text("index"),
    q: text("q"),
    mode: text("mode") || START.mode,
    against: text("against") || START.against,
    filter: text("filter"),
    choices: given.getAll("facet").map(readChoice).filter((choice) => choice !== null),
    weights: readWeights(text("weights")),
    mix: given.has("mix") || given.has("weights"),
    sure: given.has("sure"),
    rerank: given.has("rerank"),
    id: text("id"),
  };
}

/** The address of a state, without what has its default value. */
export function writeState(state: State): string {
  const given = new URLSearchParams();
  const set = (name: keyof State): void => {
    if (state[name] !== START[name]) given.set(name, String(state[name]));
  };
  set("index");
  set("view");
  set("q");
  set("mode");
  if (state.view === "compare") set("against");
  set("filter");
  for (const choice of state.choices) given.append("facet", writeChoice(choice));
  if (state.weights) given.set("weights", writeWeights(state.weights));
  else if (state.mix) given.set("mix", "1");
  if (state.sure) given.set("sure", "1");
  if (state.rerank) given.set("rerank", "1");
  if (state.view === "document") set("id");
  const search = given.toString();
  return search ? `?${search}` : "";
}

export function writeChoice(choice: Choice): string {
  return `${encodeURIComponent(choice.field)}${choice.list ? "[]" : ""}:${JSON.stringify(choice.value)}`;
}

export function readChoice(text: string): Choice | null {
  const colon = text.indexOf(":");
  if (colon < 1) return null;
  try {
    const name = text.slice(0, colon);
    const list = name.endsWith("[]");
    const value: unknown = JSON.parse(text.slice(colon + 1));
    if (value !== null && !["string", "number", "boolean"].includes(typeof value)) return null;
    const field = decodeURIComponent(list ? name.slice(0, -2) : name);
    return field ? { field, value: value as Value, list } : null;
  } catch {
    return null;
  }
}

export function writeWeights(weights: Weights): string {
  return KINDS.filter((kind) => weights[kind] !== undefined)
    .map((kind) => `${kind}:${weights[kind]}`)
    .join(",");
}

export function readWeights(text: string): Weights | null {
  const weights: Weights = {};
  for (const part of text.split(",")) {
    const [kind, value] = part.split(":");
    const weight = Number(value);
    if (value && Number.isFinite(weight) && weight >= 0 && (KINDS as readonly string[]).includes(kind ?? "")) {
      weights[kind as Kind] = Math.min(weight, 100);
    }
  }
  return Object.keys(weights).length ? weights : null;
}
