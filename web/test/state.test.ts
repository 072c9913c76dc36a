import assert from "node:assert/strict";
import { test } from "node:test";
import { readState, readWeights, START, writeState, type State } from "../src/state.ts";

test("an address gives back the state that it was written from", () => {
  const state: State = {
    ...START,
    view: "compare",
    index: "notes",
    q: 'what is "a loom" & why? 😀',
    mode: "multi",
    against: "dense",
    filter: "year >= 2020 and topic != 'x'",
    choices: [
      { field: "topic", value: "a:b", list: false },
      { field: "tags: new", value: "nlp", list: true },
      { field: "year", value: 2020, list: false },
      { field: "done", value: false, list: false },
      { field: "lang", value: null, list: false },
    ],
    sure: true,
    rerank: true,
  };
  assert.deepEqual(readState(writeState(state)), state);
});

test("weights are in the address and open their panel", () => {
  const state = readState(writeState({ ...START, q: "x", weights: { dense: 0.5, bm25: 0 }, mix: true }));
  assert.deepEqual([state.weights, state.mix], [{ dense: 0.5, bm25: 0 }, true]);
});

test("the start has no address", () => {
  assert.equal(writeState(START), "");
});

test("what cannot be read in an address is left out", () => {
  const state = readState("?view=nonsense&facet=topic&facet=:1&facet=a:{}&facet=%25:1&facet=b:[1]&weights=dense:-1,evil:3,multi:NaN&mode=");
  assert.deepEqual(state, { ...START, mix: true });
});

test("weights are numbers from 0 on, of kinds that exist", () => {
  assert.equal(readWeights("dense:1e999,__proto__:1"), null);
  assert.deepEqual(readWeights("dense:5000,multi:0.25"), { dense: 100, multi: 0.25 });
});

test("a very long query is cut", () => {
  assert.equal(readState(`?q=${"x".repeat(50_000)}`).q.length, 20_000);
});
