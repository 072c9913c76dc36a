// Empty states, errors, and what to do about them.

import { ApiError } from "./api.ts";
import { h, type Child } from "./dom.ts";
import type { Store } from "./store.ts";

export function notice(kind: "empty" | "error" | "hint", title: string, ...children: Child[]): HTMLElement {
  return h("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : "note" }, h("p", { class: "notice-title" }, title), ...children);
}

/** The message of an error. What the server says about a filter has lines of its own, with a caret below the position. */
export function errorNotice(error: unknown, retry?: () => void): HTMLElement {
  const known = error instanceof ApiError ? error : new ApiError(0, "unknown", String(error));
  const [first, ...lines] = known.message.split("\n");
  return notice(
    "error",
    TITLES[known.status] ?? "That did not work",
    h("p", {}, first ?? ""),
    lines.length > 0 && h("pre", { tabindex: 0 }, lines.join("\n")),
    known.status === 401
      ? h("p", {}, h("button", { type: "button", on: { click: () => location.reload() } }, "Enter a key"))
      : retry && h("p", {}, h("button", { type: "button", on: { click: retry } }, "Try again")),
  );
}

const TITLES: Record<number, string> = {
  0: "No answer",
  400: "The server cannot read that",
  401: "This server asks for a key",
  403: "Not allowed",
  404: "Not found",
  422: "The server cannot read that",
  429: "The server is busy",
  503: "The server is not ready",
  504: "That took too long",
};

/** The field for the API key. */
export function keyForm(store: Store, wrong: boolean, done: () => void): HTMLElement {
  const input = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const submit = (event: Event): void => {
    event.preventDefault();
    store.api.key = input.value.trim();
    done();
  };
  return h(
    "form",
    { class: "notice key-form", on: { submit } },
    h("label", { class: "notice-title", for: "key" }, "This server asks for a key"),
    h("p", {}, wrong ? "It does not accept the key that you gave." : "It is kept until you close this tab."),
    h("div", { class: "field-row" }, input, h("button", { type: "submit", class: "main" }, "Continue")),
  );
}
