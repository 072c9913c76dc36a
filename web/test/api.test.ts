import assert from "node:assert/strict";
import { test } from "node:test";
import { Latest, toError } from "../src/api.ts";

test("an answer that came too late is dropped, and its call is aborted", async () => {
  const latest = new Latest();
  let aborted = false;
  const slow = latest.run(
    (signal) =>
      new Promise<string>((resolve, reject) => {
        signal.addEventListener("abort", () => {
          aborted = true;
          reject(new Error("aborted"));
        });
        setTimeout(() => resolve("old"), 50);
      }),
  );
  const fast = latest.run(() => Promise.resolve("new"));
  assert.deepEqual([await slow, await fast, aborted], [null, "new", true]);
});

test("an old answer is dropped even if it cannot be aborted", async () => {
  const latest = new Latest();
  const slow = latest.run(() => new Promise<string>((resolve) => setTimeout(() => resolve("old"), 20)));
  await latest.run(() => Promise.resolve("new"));
  assert.equal(await slow, null);
});

test("the error of the newest call is thrown", async () => {
  await assert.rejects(new Latest().run(() => Promise.reject(new Error("no"))), /no/);
});

test("an error has the message of the server, or at least its status", () => {
  assert.equal(toError(422, { error: { code: "invalid_filter", message: "cannot read" } }).message, "cannot read");
  assert.equal(toError(502, null).message, "The server answered with status 502.");
  assert.equal(toError(500, { error: "text" }).status, 500);
});
