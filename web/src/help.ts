// The dialog with keys and operators.

import { fill, h } from "./dom.ts";

const KEYS: [string, string][] = [
  ["/", "the search box"],
  ["↓ or j, ↑ or k", "the next result, the one before"],
  ["Enter", "open the result"],
  ["w", "why this result has its rank"],
  ["m", "weights"],
  ["f", "the filter"],
  ["s, c, i", "search, compare, index"],
  ["t", "light or dark"],
  ["Esc", "back"],
];

const OPERATORS: [string, string][] = [
  ['"exact phrase"', "the words one after another"],
  ["-word", "documents without the word"],
  ["title:word", "the word in the title"],
  ["year:2020", "this value of a field"],
  ["comp*", "words that begin so"],
];

export function fillHelp(dialog: HTMLDialogElement): void {
  const list = (rows: [string, string][], tag: "kbd" | "code"): HTMLElement =>
    h("dl", { class: "keys" }, ...rows.flatMap(([key, about]) => [h("dt", {}, h(tag, {}, key)), h("dd", {}, about)]));
  const close = h("button", { type: "button", class: "icon", "aria-label": "Close", on: { click: () => dialog.close() } }, "×");
  fill(
    dialog,
    h("div", { class: "panel-head" }, h("h2", { id: "help-title" }, "Keys and operators"), close),
    list(KEYS, "kbd"),
    h("h3", {}, "In a query"),
    list(OPERATORS, "code"),
    h("h3", {}, "In the filter"),
    list([['year >= 2020 and topic = "food"', "comparisons, and, or, not"], ['"news" in tags', "a value of a list"], ['name like "%oven%"', "a part of a text"]], "code"),
    h("p", { class: "note" }, "Colours show late interaction: the stronger the colour, the closer the word is to a word of the query. Point at a word, or press it, to see its partners."),
  );
}
