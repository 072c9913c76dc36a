// The JSON of the HTTP API, as far as the page reads it. Spans count code points, as Python does.

export type Span = [number, number];
export type Value = string | number | boolean | null;

export interface TokenMatch {
  query: string;
  query_span: Span | null;
  token: string;
  field: string; // "text", "title" or empty
  span: Span | null; // within that field
  row: number;
  similarity: number;
  share: number;
  imputed?: boolean;
}

export interface ScorePart {
  kind: string;
  score: number | null;
  rank: number | null;
  share: number;
}

export interface WordMatch {
  word: string;
  count: number;
  documents: number;
  idf: number;
  score: number;
}

export interface TermMatch {
  term: number;
  surface: string;
  query_weight: number;
  weight: number;
  score: number;
}

export interface Explanation {
  query: string; // without operators: the text that was encoded
  score: number | null;
  rank: number | null;
  span: Span;
  parts: ScorePart[];
  multi: { score: number; matches: TokenMatch[]; note: string } | null;
  dense: number | null;
  bm25: WordMatch[] | null;
  sparse: TermMatch[] | null;
  conditions: string[];
  corrections: [string, string][];
}

export interface Passage {
  passage: string;
  span: Span;
  score: number;
}

export interface Hit {
  rank: number;
  id: string;
  score: number;
  scores: Record<string, number>;
  title: string;
  passage: string;
  span: Span;
  passages?: Passage[];
  headings?: string[];
  location?: string;
  metadata: Record<string, unknown>;
  confidence?: number | null;
  explanation?: Explanation | null;
  text?: string;
}

export interface Stage {
  stage: string;
  seconds: number;
  [count: string]: string | number;
}

export interface Timings {
  seconds: number;
  stages: Stage[];
}

export interface Answer {
  hits: Hit[];
  timings?: Timings;
  warnings?: string[];
}

export interface FoundDocument {
  id: string;
  title: string;
  text: string;
  metadata: Record<string, unknown>;
  passages?: Span[];
}

export interface Facets {
  field: string;
  counts: { value: Value; count: number }[];
  n_values: number;
  n_documents: number;
}

// What a key with a filter may not see is left out or null.
export interface IndexSummary {
  name: string;
  documents: number;
  passages?: number | null;
  kinds: Record<string, number>;
  model?: string | null;
  bytes?: number | null;
}

export interface Calibration {
  bounds: Record<string, Span>;
  weights: Record<string, number>;
  unrelated_mean: number | null; // null: the index had too few documents
  unrelated_deviation: number | null;
  n_queries: number;
  n_documents: number;
  date: string;
}

export interface TunedParams {
  n_probe: number;
  n_candidates: number;
  n_code_scored: number;
  n_rescored: number;
  exhaustive: boolean;
  k: number;
  target_recall: number;
  recall_of: string;
  recall: number;
  codes_recall: number | null;
  median_ms: number;
  exhaustive_ms: number;
  n_queries: number;
  n_passages: number;
  date: string;
  stale?: string;
}

export interface IndexInfo extends IndexSummary {
  modes?: string[];
  fields?: string[] | null; // of metadata, with an index
  segments?: number | null;
  segment_sizes?: { passages: number; deleted: number; bytes: number }[] | null;
  deleted_passages?: number | null;
  bytes_by_part?: Record<string, number> | null;
  format?: number | null;
  created?: string | null;
  fingerprint?: string | null;
  exclude_from_hybrid?: string[] | null; // kinds that the model leaves out by default
  tuned?: object | null;
  pooling?: string | null;
  chunking?: string | null;
  weights?: object | null;
  calibration?: object | null;
  language?: string | null;
  drift?: { n_vectors: number; ratio: number } | null;
}
