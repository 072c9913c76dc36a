import assert from "node:assert/strict";
import { test } from "node:test";
import { align, pieces } from "../src/alignment.ts";
import type { Explanation, TokenMatch } from "../src/types.ts";

function match(fields: Partial<TokenMatch>): TokenMatch {
  return { query: "", query_span: null, token: "", field: "text", span: null, row: 0, similarity: 0.5, share: 0, ...fields };
}

function explanation(query: string, matches: TokenMatch[], span: [number, number] = [0, 999]): Explanation {
  const rest = { score: 1, rank: 1, parts: [], dense: null, bm25: null, sparse: null, conditions: [], corrections: [] };
  return { query, span, multi: { score: 1, matches, note: "" }, ...rest };
}

test("tokens of one word become one link with the best similarity", () => {
  const found = align(
    explanation("plaiting", [match({ query_span: [0, 5], span: [2, 7], similarity: 0.6 }), match({ query_span: [5, 8], span: [7, 8], similarity: 0.8 })]),
    "",
    "a plaits",
  );
  assert.deepEqual(found.links, [{ query: 0, word: 0, similarity: 0.8 }]);
  assert.equal(found.words[0]?.text, "plaits");
});

test("spans are within the document, and words within the passage", () => {
  const found = align(explanation("loom", [match({ query_span: [0, 4], span: [104, 108] })], [100, 200]), "", "the loom");
  assert.equal(found.words[0]?.text, "loom");
});

test("a match before the passage is not drawn", () => {
  const found = align(explanation("loom", [match({ query_span: [0, 4], span: [4, 8] })], [100, 200]), "", "the loom");
  assert.deepEqual([found.words.length, found.others], [0, 1]);
});

test("an emoji before a word does not move its mark", () => {
  const found = align(explanation("🧶 loom", [match({ query_span: [2, 6], span: [3, 7] })]), "", "🧵🪡 loom");
  assert.equal(found.queryWords[found.links[0]!.query]?.text, "loom");
  assert.equal(found.words[0]?.text, "loom");
});

test("matches of the title are words of the title", () => {
  const found = align(explanation("loom", [match({ query_span: [0, 4], field: "title", span: [4, 8] })]), "The loom", "text");
  assert.deepEqual([found.words[0]?.field, found.words[0]?.text], ["title", "loom"]);
});

test("tokens without characters and imputed ones are only counted", () => {
  const found = align(explanation("x", [match({}), match({ query_span: [0, 1], span: [0, 1], imputed: true })]), "", "x");
  assert.deepEqual([found.links.length, found.others], [0, 2]);
});

test("similarities of unrelated words have no strength", () => {
  const found = align(explanation("a b", [match({ query_span: [0, 1], span: [0, 1], similarity: 0.4 }), match({ query_span: [2, 3], span: [2, 3], similarity: 0.75 })]), "", "x y", 0.5);
  assert.deepEqual(found.words.map((word) => word.strength), [0, 0.5]);
});

test("pieces give back the text, with each chosen word by itself", () => {
  const found = align(explanation("b", [match({ query_span: [0, 1], span: [2, 3] })]), "", "a b c");
  assert.deepEqual(pieces("a b c", found.words, "text"), [{ text: "a ", word: null }, { text: "b", word: 0 }, { text: " c", word: null }]);
  assert.equal(pieces("a b c", found.words, "title").map((piece) => piece.text).join(""), "a b c");
});
