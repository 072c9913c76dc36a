// One document: its text with the passages that the query matched, its metadata, and similar documents.

import { align, type Alignment } from "./alignment.ts";
import { Latest } from "./api.ts";
import { fill, h, type Child } from "./dom.ts";
import { explanationPanel } from "./explain.ts";
import { counted, score, shown } from "./format.ts";
import { similarityFloor } from "./modes.ts";
import { errorNotice } from "./notices.ts";
import { searchBody } from "./request.ts";
import type { State } from "./state.ts";
import type { Store } from "./store.ts";
import { CodePoints } from "./text.ts";
import type { FoundDocument, Hit, Passage, Span } from "./types.ts";
import { shortened } from "./weights.ts";
import { WordLinks } from "./words.ts";

const MAX_TEXT = 200_000; // characters that are shown at once
const MAX_PASSAGES = 50;

export class DocumentView {
  readonly element = h("article", { class: "document-view" });
  private readonly latest = new Latest();
  private shownFor = "";
  private links = new WordLinks();

  constructor(
    private readonly store: Store,
    private readonly busy: (on: boolean) => void,
    private readonly back: () => void,
  ) {}

  update(): void {
    const { state } = this.store;
    const key = JSON.stringify([state.index, state.id, state.q, state.mode]);
    if (key === this.shownFor) return;
    this.shownFor = key;
    void this.load(state);
  }

  unpin(): boolean {
    return this.links.unpin();
  }

  private async load(state: State): Promise<void> {
    if (!state.index) return;
    this.busy(true);
    try {
      const found = await this.latest.run((signal) =>
        Promise.all([
          this.store.api.document(state.index, state.id, signal),
          this.passages(state, signal).catch(() => null), // the document is shown without them
        ]),
      );
      if (!found) return;
      this.draw(found[0], found[1]);
      void this.drawSimilar(state);
    } catch (error) {
      this.shownFor = "";
      fill(this.element, this.backButton(), errorNotice(error, () => this.update()));
    }
    this.busy(false);
  }

  /** The passages of the document by how well they match the query. */
  private async passages(state: State, signal: AbortSignal): Promise<Hit | null> {
    if (!state.q.trim()) return null;
    const body = searchBody({ ...state, filter: "", choices: [], sure: false, rerank: false }, { k: 1, candidates: [state.id], passages: MAX_PASSAGES });
    return (await this.store.api.search(state.index, body, signal)).hits[0] ?? null;
  }

  private draw(found: FoundDocument, hit: Hit | null): void {
    this.links = new WordLinks();
    const alignment = hit?.explanation?.multi ? align(hit.explanation, found.title, hit.passage, similarityFloor(this.store.info)) : null;
    const title = h("h1", { tabindex: -1, dir: "auto" }, found.title || found.id);
    const passages = hit?.passages ?? (hit ? [{ passage: hit.passage, span: hit.span, score: hit.score }] : []);
    const aside = h("aside", { class: "beside", "aria-label": "About this document" }, facts(found), passageList(passages, found), h("section", { class: "similar", hidden: true }));
    fill(
      this.element,
      this.backButton(),
      h(
        "div",
        { class: "document-columns" },
        h("div", { class: "reading" }, title, this.queryWords(alignment), this.body(found, hit, alignment, passages), hit?.explanation && this.why(hit, alignment)),
        aside,
      ),
    );
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  private backButton(): HTMLElement {
    return h("button", { type: "button", class: "quiet back", on: { click: this.back } }, "← Back");
  }

  private queryWords(alignment: Alignment | null): Child {
    if (!alignment) return null;
    const chosen = new Set(alignment.links.map((link) => link.query));
    const words = alignment.queryWords.map((word, number) => (chosen.has(number) ? this.links.queryWord(number, word.text) : h("span", {}, word.text)));
    return h("div", { class: "query-words", role: "group", "aria-label": "Words of the query" }, h("span", { class: "note" }, "Your words"), ...words);
  }

  private why(hit: Hit, alignment: Alignment | null): HTMLElement {
    return h("details", { class: "panel" }, h("summary", {}, "Why this document?"), explanationPanel({ ...hit, rank: hit.explanation?.rank ?? 1 }, alignment, this.links));
  }

  /** The text. Each passage that was scored has a line beside it; the best one has its words coloured. */
  private body(found: FoundDocument, hit: Hit | null, alignment: Alignment | null, passages: readonly Passage[]): HTMLElement {
    const text = new CodePoints(found.text);
    const whole = h("div", { class: "document-text", dir: "auto" });
    const best = hit?.span;
    const known = found.passages ?? passages.map((passage) => passage.span);
    const spans = cut(known, [...found.text].length, best);
    for (const span of spans) {
      const part = text.slice(span.start, span.end);
      if (best && span.start === best[0] && span.end === best[1] && alignment) {
        whole.append(h("div", { class: "part best", id: `p${span.start}` }, ...this.links.text(alignment, "text", part, 0, part.length, true)));
      } else {
        whole.append(h("div", { class: span.passage ? "part" : "part other", id: `p${span.start}` }, part.slice(0, MAX_TEXT), part.length > MAX_TEXT && "…"));
      }
    }
    return whole;
  }

  private async drawSimilar(state: State): Promise<void> {
    const place = this.element.querySelector<HTMLElement>(".similar");
    const answer = await this.store.api.similar(state.index, { id: state.id, k: 8 }).catch(() => null);
    if (!place?.isConnected || !answer?.hits.length) return;
    place.hidden = false;
    fill(
      place,
      h("h2", {}, "Similar documents"),
      h(
        "ol",
        { class: "short-hits" },
        ...answer.hits.map((hit) =>
          h(
            "li",
            { "data-id": hit.id },
            h("a", { href: this.store.link({ view: "document", id: hit.id, q: "" }), "data-open": hit.id, "data-plain": "" }, hit.title || hit.id),
            h("span", { class: "score" }, score(hit.score)),
          ),
        ),
      ),
    );
  }
}

/** The parts of a text: passages, and what is between them. Overlapping passages lose their overlap, but for the best. */
export function cut(spans: readonly Span[], length: number, best?: Span): { start: number; end: number; passage: boolean }[] {
  const parts: { start: number; end: number; passage: boolean }[] = [];
  const fixed = best ?? [0, 0];
  const ordered = [...spans].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let position = 0;
  const add = (start: number, end: number, passage: boolean): void => {
    if (start > position) parts.push({ start: position, end: start, passage: false });
    if (end > Math.max(start, position)) parts.push({ start: Math.max(start, position), end, passage });
    position = Math.max(position, end);
  };
  for (const [start, end] of ordered) {
    const isBest = start === fixed[0] && end === fixed[1];
    if (isBest || end <= fixed[0] || start >= fixed[1]) add(start, end, true);
    else if (start < fixed[0]) add(start, fixed[0], true);
    else add(Math.max(start, fixed[1]), end, true);
  }
  if (position < length) parts.push({ start: position, end: length, passage: false });
  return parts;
}

function facts(found: FoundDocument): HTMLElement {
  const list = h("dl", { class: "facts" }, h("dt", {}, "id"), h("dd", {}, found.id));
  for (const [field, value] of Object.entries(found.metadata)) list.append(h("dt", {}, field), h("dd", {}, shown(value)));
  list.append(h("dt", {}, "length"), h("dd", {}, `${counted([...found.text].length, "character")}${found.passages ? `, ${counted(found.passages.length, "passage")}` : ""}`));
  return list;
}

function passageList(passages: readonly Passage[], found: FoundDocument): Child {
  if (passages.length < 2) return null;
  const text = new CodePoints(found.text);
  const show = (span: Span) => (): void => {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    document.getElementById(`p${span[0]}`)?.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "center" });
  };
  return h(
    "section",
    {},
    h("h2", {}, "Passages, best first"),
    h(
      "ol",
      { class: "short-hits" },
      ...passages.slice(0, 8).map(({ span, score: value }) =>
        h("li", {}, h("button", { type: "button", class: "quiet", on: { click: show(span) } }, shortened(text.slice(span[0], span[1]), 60)), h("span", { class: "score" }, score(value))),
      ),
    ),
  );
}
