import assert from "node:assert/strict";
import { test } from "node:test";
import { bestPart, CodePoints, wordAt, wordsOf } from "../src/text.ts";

test("positions count code points, not UTF-16 units", () => {
  const text = new CodePoints("a😀b𝒞d");
  assert.equal(text.slice(1, 2), "😀");
  assert.equal(text.slice(2, 3), "b");
  assert.equal(text.slice(3, 5), "𝒞d");
});

test("a lone surrogate is one position", () => {
  assert.equal(new CodePoints("\ud800x😀y").slice(2, 4), "😀y");
});

test("positions outside a text are moved to its ends", () => {
  assert.equal(new CodePoints("abc").slice(-5, 99), "abc");
  assert.equal(new CodePoints("😀").slice(1, 9), "");
});

test("words keep apostrophes and stop at dots", () => {
  assert.deepEqual(wordsOf("don't shutil.copy (x)").map((word) => word.text), ["don't", "shutil", ".", "copy", "(", "x", ")"]);
});

test("words of other scripts are words", () => {
  assert.deepEqual(wordsOf("Größe naïve किताब").map((word) => word.text), ["Größe", "naïve", "किताब"]);
});

test("a position between words belongs to none", () => {
  const words = wordsOf("one two");
  assert.equal(wordAt(words, 2), 0);
  assert.equal(wordAt(words, 3), -1);
  assert.equal(wordAt(words, 4), 1);
  assert.equal(wordAt([], 0), -1);
});

test("the best part contains the strongest mark", () => {
  const text = `${"filler ".repeat(200)}needle ${"filler ".repeat(200)}`;
  const at = text.indexOf("needle");
  const weak = [0, 7, 14, 21].map((start) => ({ start, end: start + 6, strength: 0.3 }));
  const part = bestPart(text, [...weak, { start: at, end: at + 6, strength: 0.9 }], 300);
  assert.ok(part.start <= at && part.end >= at + 6);
  assert.ok(part.end - part.start < 330);
});

test("a short text is shown whole", () => {
  assert.deepEqual(bestPart("short", [], 300), { start: 0, end: 5 });
});

test("a part begins and ends at words", () => {
  const text = "abcdefghij ".repeat(100);
  const part = bestPart(text, [{ start: 550, end: 560, strength: 1 }], 100);
  assert.ok(/^(abcdefghij ?)+$/.test(text.slice(part.start, part.end)));
});
