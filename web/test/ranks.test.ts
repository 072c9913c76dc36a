import assert from "node:assert/strict";
import { test } from "node:test";
import { cut } from "../src/document_view.ts";
import { bytes, counted, milliseconds, percent, score, shown } from "../src/format.ts";
import { usualWeights } from "../src/modes.ts";
import { moves, shift, summary } from "../src/ranks.ts";
import { timeline } from "../src/timeline.ts";
import type { IndexInfo, Stage } from "../src/types.ts";

test("moves have the rank of each document in both lists", () => {
  assert.deepEqual(moves(["a", "b"], ["b", "c"]), [
    { id: "a", from: 1, to: null },
    { id: "b", from: 2, to: 1 },
    { id: "c", from: null, to: 2 },
  ]);
});

test("a summary counts documents of the best k", () => {
  assert.equal(summary(moves(["a", "b", "c"], ["b", "a", "d"]), 2), "2 of 2 documents are in both lists; 2 moved, by up to 1 rank.");
  assert.equal(summary(moves(["a", "b", "c"], ["c", "d", "a"]), 2), "No document is in both lists.");
  assert.equal(summary(moves(["a"], ["a"]), 10), "1 of 1 documents are in both lists, all at the same rank.");
  assert.equal(summary([], 10), "Both lists are empty.");
});

test("a document that came up has a positive shift", () => {
  assert.equal(shift(["a", "b", "c"], "c", 1), 2);
  assert.equal(shift(["a"], "b", 1), "new");
  assert.equal(shift(null, "b", 1), 0);
});

test("inner stages lie within their outer stage", () => {
  const stages: Stage[] = [
    { stage: "encode", seconds: 0.01 },
    { stage: "rescore: dense", seconds: 0.002 },
    { stage: "rescore: multi", seconds: 0.003 },
    { stage: "rescore", seconds: 0.006, items: 1200 },
    { stage: "encode", seconds: 0.01 },
  ];
  const bars = timeline({ seconds: 0.026, stages });
  assert.deepEqual(bars.map((bar) => [bar.name, bar.inner]), [["encode", false], ["rescore", false], ["dense", true], ["multi", true]]);
  assert.equal(bars[0]!.seconds, 0.02);
  assert.ok(Math.abs(bars[3]!.start - 0.022) < 1e-9);
  assert.equal(bars[1]!.counts, "1,200 items");
});

test("a stage whose outer stage is missing is an outer stage", () => {
  assert.equal(timeline({ seconds: 1, stages: [{ stage: "a: b", seconds: 1 }] })[0]!.inner, false);
});

test("the parts of a text are the whole text, and the best passage is one of them", () => {
  const parts = cut([[0, 50], [40, 90], [80, 120]], 150, [40, 90]);
  assert.deepEqual(parts.map(({ start, end }) => [start, end]), [[0, 40], [40, 90], [90, 120], [120, 150]]);
  assert.deepEqual(cut([], 5), [{ start: 0, end: 5, passage: false }]);
  assert.deepEqual(cut([[2, 4]], 5).map(({ passage }) => passage), [false, true, false]);
});

test("kinds that the model leaves out have no weight, unless one was fitted", () => {
  const info = { name: "x", documents: 1, kinds: { dense: 8, sparse: 9 }, exclude_from_hybrid: ["sparse"] } satisfies IndexInfo;
  assert.deepEqual(usualWeights(info), { dense: 1, sparse: 0, bm25: 0.7 });
  const fitted = { ...info, weights: { fitted: { fusion: "bounds", weights: { dense: 0.4, sparse: 0.3 } } } };
  assert.deepEqual(usualWeights(fitted), { dense: 0.4, sparse: 0.3, bm25: 0 });
});

test("numbers are short", () => {
  assert.deepEqual([bytes(999), bytes(76_338_532), bytes(1.5e13)], ["999 bytes", "76.3 MB", "15.0 TB"]);
  assert.deepEqual([milliseconds(0.00012), milliseconds(0.0123), milliseconds(0.5), milliseconds(12)], ["0.12 ms", "12.3 ms", "500 ms", "12.0 s"]);
  assert.deepEqual([counted(1, "document"), counted(2000, "document")], ["1 document", "2,000 documents"]);
  assert.deepEqual([score(0.36491), score(123.456), percent(0.356), percent(0), percent(0.001)], ["0.365", "123.5", "36 %", "0 %", "< 1 %"]);
  assert.equal(shown([1, "a", { b: null }]), '1, a, {"b":null}');
});
