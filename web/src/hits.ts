// The list of results.

import { alignHit, type Alignment } from "./alignment.ts";
import { h, vary, type Child } from "./dom.ts";
import { explanationPanel, rankList, shareBar } from "./explain.ts";
import { percent, score, shown } from "./format.ts";
import { similarityFloor } from "./modes.ts";
import { shift } from "./ranks.ts";
import { toggled } from "./filters.ts";
import type { Store } from "./store.ts";
import { bestPart } from "./text.ts";
import type { Hit, Value } from "./types.ts";
import type { WordLinks } from "./words.ts";

const SHORT = 340; // characters of a passage in the list
const MAX_CHIPS = 6; // fields of metadata in the list

export interface HitContext {
  store: Store;
  links: WordLinks;
  expanded: Set<string>; // ids whose explanation is open
  before: readonly string[] | null; // ids in the order that moves are shown against
}

/** A result as an item of the list. */
export function hitItem(hit: Hit, context: HitContext): HTMLLIElement {
  const item = h("li", { class: "hit", "data-id": hit.id });
  drawHit(item, hit, context);
  return item;
}

function drawHit(item: HTMLLIElement, hit: Hit, context: HitContext): void {
  const { store, links } = context;
  const open = context.expanded.has(hit.id);
  const alignment = alignHit(hit, similarityFloor(store.info));
  const title = hit.title || hit.id;
  const words = alignment && hit.title ? links.text(alignment, "title", hit.title, 0, hit.title.length, false) : [title];
  const link = h("a", { class: "hit-title", href: store.link({ view: "document", id: hit.id }), "data-open": hit.id }, ...words);
  item.classList.toggle("open", open);
  item.replaceChildren(
    h("div", { class: "rank", "aria-label": `Rank ${hit.rank}` }, String(hit.rank), moved(context.before, hit)),
    h(
      "div",
      { class: "hit-body" },
      h("div", { class: "hit-head" }, h("h3", {}, link), scoreOf(hit)),
      headings(hit),
      passage(hit, alignment, links, open),
      chips(hit, store),
      hit.explanation && foot(item, hit, context, open),
      open && explanationPanel(hit, alignment, links),
    ),
  );
}

function foot(item: HTMLLIElement, hit: Hit, context: HitContext, open: boolean): HTMLElement {
  const toggle = (): void => {
    if (!context.expanded.delete(hit.id)) context.expanded.add(hit.id);
    drawHit(item, hit, context);
    context.links.prune();
    item.querySelector<HTMLElement>("[data-why]")?.focus();
  };
  const button = h(
    "button",
    { type: "button", class: "quiet", "data-why": hit.id, "aria-expanded": String(open), on: { click: toggle } },
    open ? "Hide why" : "Why?",
  );
  const why = hit.explanation!;
  return h("div", { class: "hit-foot" }, why.parts.length > 1 && shareBar(why), rankList(why), button);
}

function moved(before: readonly string[] | null, hit: Hit): Child {
  const by = shift(before, hit.id, hit.rank);
  if (by === 0) return null;
  if (by === "new") return h("span", { class: "moved up" }, "new");
  const label = `${by > 0 ? "up" : "down"} ${Math.abs(by)}`;
  return h("span", { class: `moved ${by > 0 ? "up" : "down"}`, role: "img", "aria-label": label }, `${by > 0 ? "▲" : "▼"}${Math.abs(by)}`);
}

function scoreOf(hit: Hit): HTMLElement {
  const sure = hit.confidence;
  if (sure === null || sure === undefined) return h("span", { class: "score" }, score(hit.score));
  const about = `Confidence ${percent(sure, 1)}: the share of queries about nothing here whose best result scores less`;
  return h(
    "span",
    { class: "score", title: about },
    score(hit.score),
    vary(h("span", { class: "ring", role: "img", "aria-label": `confidence ${percent(sure)}` }), "--share", sure.toFixed(3)),
  );
}

function headings(hit: Hit): Child {
  const path = [...(hit.headings ?? []), ...(hit.location ? [hit.location] : [])];
  return path.length ? h("p", { class: "headings" }, path.join(" › ")) : null;
}

/** The passage, or the part of it that matched best, with its words coloured. */
export function passage(hit: Hit, alignment: Alignment | null, links: WordLinks, whole: boolean): HTMLElement {
  const marks = (alignment?.words ?? []).filter((word) => word.field === "text");
  const part = whole ? { start: 0, end: hit.passage.length } : bestPart(hit.passage, marks, SHORT);
  const words = alignment
    ? links.text(alignment, "text", hit.passage, part.start, part.end, whole)
    : [hit.passage.slice(part.start, part.end)];
  return h(
    "p",
    { class: whole ? "passage whole" : "passage", dir: "auto" },
    part.start > 0 && "… ",
    ...words,
    part.end < hit.passage.length && " …",
  );
}

function chips(hit: Hit, store: Store): Child {
  const fields = Object.entries(hit.metadata).filter(([, value]) => value !== null && value !== "" && typeof value !== "object");
  if (!fields.length) return null;
  const list = h("ul", { class: "chips", "aria-label": "Metadata" });
  for (const [field, value] of fields.slice(0, MAX_CHIPS)) {
    if (typeof value === "string" && value.length > 60) continue;
    const choose = (): void =>
      store.go({ choices: toggled(store.state.choices, { field, value: value as Value, list: false }) });
    list.append(
      h("li", {}, h("button", { type: "button", tabindex: -1, title: `Only ${field} ${shown(value)}`, on: { click: choose } }, h("span", {}, field), " ", shown(value))),
    );
  }
  return list.children.length ? list : null;
}

/** Replaces a list and moves its items from their old positions to the new ones. */
export function replaceItems(list: HTMLElement, items: readonly HTMLElement[]): void {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const tops = new Map<string, number>();
  for (const item of list.children) {
    if (item instanceof HTMLElement) tops.set(item.dataset["id"] ?? "", item.getBoundingClientRect().top);
  }
  const focused = document.activeElement instanceof HTMLElement ? focusKey(document.activeElement, list) : null;
  list.replaceChildren(...items);
  if (focused) list.querySelector<HTMLElement>(focused)?.focus({ preventScroll: true });
  if (still || document.hidden) return;
  for (const item of items) {
    const top = tops.get(item.dataset["id"] ?? "");
    const delta = top === undefined ? 0 : top - item.getBoundingClientRect().top;
    if (Math.abs(delta) > 2 && Math.abs(delta) < 3000) {
      item.animate([{ transform: `translateY(${delta}px)` }, { transform: "none" }], { duration: 220, easing: "cubic-bezier(.2,.7,.2,1)" });
    }
  }
}

function focusKey(element: HTMLElement, list: HTMLElement): string | null {
  if (!list.contains(element)) return null;
  for (const name of ["open", "why"]) {
    const id = element.dataset[name];
    if (id !== undefined) return `[data-${name}="${CSS.escape(id)}"]`;
  }
  return null;
}
