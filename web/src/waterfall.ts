// The times of a search as a small waterfall.

import { h, vary } from "./dom.ts";
import { milliseconds } from "./format.ts";
import { timeline } from "./timeline.ts";
import type { Timings } from "./types.ts";

/** The stages on the server; `seconds` is from the request to the answer, as the page saw it. */
export function waterfall(timings: Timings, seconds: number): HTMLElement {
  const total = Math.max(timings.seconds, 1e-6);
  const list = h("ol", { class: "waterfall" });
  for (const bar of timeline(timings)) {
    const piece = h("span", { class: "span" });
    vary(piece, "--start", (bar.start / total).toFixed(4));
    vary(piece, "--share", (bar.seconds / total).toFixed(4));
    list.append(
      h(
        "li",
        { class: bar.inner ? "inner" : "", title: bar.counts },
        h("span", { class: "stage" }, bar.name),
        h("span", { class: "track" }, piece),
        h("span", { class: "time" }, milliseconds(bar.seconds)),
      ),
    );
  }
  const rest = Math.max(0, seconds - timings.seconds);
  return h(
    "div",
    { class: "times" },
    list,
    h("p", { class: "note" }, `${milliseconds(timings.seconds)} in the search, ${milliseconds(rest)} for the server, the network and this page.`),
  );
}
