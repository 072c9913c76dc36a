import assert from "node:assert/strict";
import { test } from "node:test";
import { condition, facetFields, fieldName, filterOf, toggled, exampleFilter } from "../src/filters.ts";
import type { Choice } from "../src/state.ts";

const choice = (field: string, value: Choice["value"], list = false): Choice => ({ field, value, list });

test("values are written as filters read them", () => {
  assert.equal(condition(choice("topic", 'a "b" \\ c')), 'topic = "a \\"b\\" \\\\ c"');
  assert.equal(condition(choice("year", 2020)), "year = 2020");
  assert.equal(condition(choice("done", true)), "done = true");
  assert.equal(condition(choice("lang", null)), "lang is null");
  assert.equal(condition(choice("tags", "nlp", true)), '"nlp" in tags');
});

test("unusual names of fields are in backticks", () => {
  assert.equal(fieldName("content type"), "`content type`");
  assert.equal(fieldName("title"), "`title`");
  assert.equal(fieldName("and"), "`and`");
  assert.equal(fieldName("author.name"), "author.name");
  assert.equal(fieldName("a`b"), null);
});

test("values of one field are alternatives, and fields must all hold", () => {
  const choices = [choice("topic", "food"), choice("topic", "craft"), choice("year", 2020)];
  assert.equal(filterOf("", choices), '(topic = "food" or topic = "craft") and year = 2020');
  assert.equal(filterOf("a = 1 or b = 2", choices.slice(2)), "(a = 1 or b = 2) and year = 2020");
  assert.equal(filterOf(" a = 1 ", []), "a = 1");
  assert.equal(filterOf(" ", []), undefined);
});

test("a value that is chosen twice is not chosen", () => {
  const chosen = toggled([], choice("topic", "food"));
  assert.deepEqual(toggled(chosen, choice("topic", "food")), []);
  assert.equal(toggled(chosen, choice("topic", "craft")).length, 2);
});

test("facets are made of short values, and fields with unique values come last", () => {
  const metadata = Array.from({ length: 8 }, (_, n) => ({ url: `x${n}`, topic: "a", text: "y".repeat(99), tags: ["p", "q"], author: { name: "z" }, none: null }));
  assert.deepEqual(facetFields(metadata), [
    { field: "topic", list: false },
    { field: "tags", list: true },
    { field: "author.name", list: false },
    { field: "url", list: false },
  ]);
});

test("a field that is called __proto__ is a field", () => {
  assert.deepEqual(facetFields([JSON.parse('{"__proto__": "x"}') as Record<string, unknown>]), [{ field: "__proto__", list: false }]);
});

test("an example of a filter is one that a document passes", () => {
  const documents = [{ note: "x".repeat(50) }, { note: null, year: 2020, tags: ["a"] }];
  assert.equal(exampleFilter([{ field: "note", list: false }, { field: "year", list: false }], documents), "year >= 2020");
  assert.equal(exampleFilter([{ field: "tags", list: true }], documents), '"a" in tags');
  assert.equal(exampleFilter([], documents), null);
});
