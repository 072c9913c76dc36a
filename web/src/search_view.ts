// The search: toolbar, results as one types, facets, weights and times.

import { alignHit } from "./alignment.ts";
import { ApiError, Latest } from "./api.ts";
import { fill, h, type Child } from "./dom.ts";
import { FacetPanel } from "./facets.ts";
import { condition, exampleFilter, facetFields, filterOf, toggled } from "./filters.ts";
import { count, counted, milliseconds, percent } from "./format.ts";
import { hitItem, replaceItems } from "./hits.ts";
import { similarityFloor } from "./modes.ts";
import { errorNotice, notice } from "./notices.ts";
import { CONFIDENT, N_HITS, sameSearch, searchBody } from "./request.ts";
import type { State } from "./state.ts";
import type { Store } from "./store.ts";
import { Toolbar } from "./toolbar.ts";
import type { Answer, FoundDocument, Hit } from "./types.ts";
import { waterfall } from "./waterfall.ts";
import { shortened, WeightPanel } from "./weights.ts";
import { WordLinks } from "./words.ts";

const MAX_HITS = 100;

export class SearchView {
  readonly element = h("div", { class: "search-view" });
  private readonly toolbar: Toolbar;
  private readonly facets: FacetPanel;
  private readonly weights: WeightPanel;
  private readonly status = h("div", { class: "status" });
  private readonly times = h("div", { class: "times-box", hidden: true });
  private readonly words = h("div", { class: "query-words", hidden: true, role: "group", "aria-label": "Words of the query" });
  private readonly message = h("div", { class: "message" });
  private readonly list = h("ol", { class: "hits", "aria-label": "Results" });
  private readonly more = h("div", { class: "more" });
  private readonly latest = new Latest();
  private readonly expanded = new Set<string>();
  private links = new WordLinks();
  private hits: Hit[] = [];
  private shownFor: State | null = null;
  private usual: { key: string; ids: string[] } | null = null; // the ranking without changed weights
  private timer = 0;

  constructor(
    private readonly store: Store,
    private readonly say: (text: string) => void,
    private readonly busy: (on: boolean) => void,
  ) {
    this.toolbar = new Toolbar(store);
    this.facets = new FacetPanel(store);
    this.weights = new WeightPanel(store);
    const column = h("div", { class: "results" }, this.status, this.times, this.message, this.words, this.list, this.more);
    this.element.append(this.toolbar.element, this.weights.element, h("div", { class: "columns" }, this.facets.element, column));
  }

  /** Shows a state. `typing` waits a moment for the next key. */
  update(before: State | null, typing: boolean): void {
    const { state } = this.store;
    this.toolbar.update();
    this.weights.update();
    if (before && before.index !== state.index) this.forget();
    if (this.shownFor && sameSearch(this.shownFor, state)) return;
    clearTimeout(this.timer);
    const wait = typing ? 90 : state.weights && before?.weights !== state.weights ? 40 : 0;
    this.timer = window.setTimeout(() => void this.search(), wait);
  }

  /** Lets go of a pinned word; false if there was none. */
  unpin(): boolean {
    return this.links.unpin();
  }

  private forget(): void {
    this.facets.reset();
    this.expanded.clear();
    this.usual = null;
    this.hits = [];
    this.shownFor = null;
    fill(this.list);
    fill(this.words);
  }

  private async search(): Promise<void> {
    const { state } = this.store;
    if (!state.index) return;
    this.busy(true);
    const began = performance.now();
    try {
      if (!state.q.trim()) await this.browse(state);
      else {
        const answer = await this.latest.run((signal) => this.store.api.search(state.index, searchBody(state), signal));
        if (!answer) return;
        this.show(state, answer, (performance.now() - began) / 1000);
      }
      this.busy(false);
    } catch (error) {
      this.busy(false);
      this.fail(state, error);
    }
  }

  // -- results

  private show(state: State, answer: Answer, seconds: number): void {
    this.shownFor = state;
    this.hits = answer.hits;
    this.toolbar.error(null);
    this.links = new WordLinks();
    const before = this.movesAgainst(state, answer.hits);
    replaceItems(this.list, answer.hits.map((hit) => hitItem(hit, this.context(before))));
    this.drawWords(answer.hits);
    this.drawStatus(answer, seconds);
    this.drawMore(before);
    fill(this.message, this.remark(state, answer));
    this.weights.draw(answer.hits);
    void this.facets.update(state, this.facetFields(answer.hits));
    this.say(answer.hits.length ? `${counted(answer.hits.length, "result")}. Best: ${answer.hits[0]!.title || answer.hits[0]!.id}` : "No results");
  }

  private context(before: readonly string[] | null) {
    return { store: this.store, links: this.links, expanded: this.expanded, before };
  }

  /** The ranking that moves are shown against: the one with the usual weights. */
  private movesAgainst(state: State, hits: readonly Hit[]): readonly string[] | null {
    const key = JSON.stringify([state.index, searchBody({ ...state, weights: null })]);
    const ids = hits.map((hit) => hit.id);
    if (!state.weights) this.usual = { key, ids };
    else if (this.usual?.key !== key) {
      this.usual = null;
      void this.fetchUsual(state, key);
    }
    return state.weights ? (this.usual?.ids ?? null) : null;
  }

  /** For a link with weights: the ranking without them. */
  private async fetchUsual(state: State, key: string): Promise<void> {
    const body = searchBody({ ...state, weights: null }, { explain: false });
    const answer = await this.store.api.search(state.index, body).catch(() => null);
    if (!answer || this.shownFor !== state) return;
    this.usual = { key, ids: answer.hits.map((hit) => hit.id) };
    replaceItems(this.list, this.hits.map((hit) => hitItem(hit, this.context(this.usual!.ids))));
  }

  private drawWords(hits: readonly Hit[]): void {
    const first = hits.find((hit) => hit.explanation?.multi);
    const alignment = first && alignHit(first, similarityFloor(this.store.info));
    this.words.hidden = !alignment;
    if (!alignment) return;
    const chosen = new Set(hits.flatMap((hit) => alignHit(hit)?.links.map((link) => link.query) ?? []));
    fill(
      this.words,
      h("span", { class: "note" }, "Your words"),
      ...alignment.queryWords.map((word, number) => (chosen.has(number) ? this.links.queryWord(number, word.text) : h("span", {}, word.text))),
      h("span", { class: "legend", "aria-hidden": "true" }, "weak", h("i", {}), "strong"),
    );
  }

  private drawStatus(answer: Answer, seconds: number): void {
    const { timings } = answer;
    const total = this.store.indexes.find((one) => one.name === this.store.state.index)?.documents;
    const toggle = (event: Event): void => {
      this.times.hidden = !this.times.hidden;
      (event.currentTarget as HTMLElement).setAttribute("aria-expanded", String(!this.times.hidden));
    };
    fill(
      this.status,
      h("span", {}, h("b", {}, count(answer.hits.length)), total !== undefined && ` of ${counted(total, "document")}`),
      timings &&
        h("button", { type: "button", class: "quiet", "aria-expanded": String(!this.times.hidden), on: { click: toggle } }, milliseconds(timings.seconds)),
    );
    fill(this.times, timings && waterfall(timings, seconds));
  }

  private drawMore(before: readonly string[] | null): void {
    const full = this.hits.length > 0 && this.hits.length % N_HITS === 0 && this.hits.length < MAX_HITS;
    const load = async (): Promise<void> => {
      const state = this.shownFor;
      if (!state) return;
      const body = searchBody(state, { offset: this.hits.length });
      const answer = await this.latest.run((signal) => this.store.api.search(state.index, body, signal));
      if (!answer) return;
      const first = this.hits.length;
      const next = answer.hits.map((hit, number) => ({ ...hit, rank: first + number + 1 }));
      this.hits = [...this.hits, ...next];
      const items = next.map((hit) => hitItem(hit, this.context(before)));
      this.list.append(...items);
      items[0]?.querySelector<HTMLElement>("a")?.focus();
      if (answer.hits.length < N_HITS) fill(this.more);
      else this.drawMore(before);
    };
    fill(this.more, full && h("button", { type: "button", on: { click: () => void load().catch((error: unknown) => fill(this.more, errorNotice(error))) } }, "Show more"));
  }

  /** What a reader should know before the results. */
  private remark(state: State, answer: Answer): Child {
    const [best] = answer.hits;
    if (!best) return this.nothing(state, answer);
    const remarks: Child[] = (answer.warnings ?? []).map((warning) => notice("hint", warning));
    const fixed = best.explanation?.corrections ?? [];
    if (fixed.length) {
      const words = fixed.map(([given, used]) => `“${used}” instead of “${given}”`).join(", ");
      remarks.push(notice("hint", `Searched for ${words}.`));
    }
    const sure = best.confidence;
    if (sure !== null && sure !== undefined && sure < CONFIDENT) {
      remarks.push(
        notice(
          "hint",
          "Perhaps nothing here is about that.",
          h("p", {}, `${sure < 0.005 ? "Nearly all" : percent(1 - sure)} of the queries that are about nothing in this index find something as close. These are the nearest documents.`),
        ),
      );
    }
    return remarks.length ? h("div", {}, ...remarks) : null;
  }

  private nothing(state: State, answer: Answer): HTMLElement {
    const all = h("button", { type: "button", on: { click: () => this.store.go({ sure: false }) } }, "Show the nearest documents");
    if (state.sure && state.mode === "hybrid") {
      return notice("empty", "Nothing here is about that.", h("p", {}, "No document scores better than unrelated queries do."), h("p", {}, all));
    }
    const filter = filterOf(state.filter, state.choices);
    const warnings = (answer.warnings ?? []).map((warning) => h("p", {}, warning));
    if (filter) {
      const clear = h("button", { type: "button", on: { click: () => this.store.go({ filter: "", choices: [] }) } }, "Search without the filter");
      return notice("empty", "No results.", h("p", {}, "The filter is ", h("code", {}, filter), "."), ...warnings, h("p", {}, clear));
    }
    const hybrid = h("button", { type: "button", on: { click: () => this.store.go({ mode: "hybrid" }) } }, "Search with every kind");
    const exact = state.mode === "bm25" || state.mode === "sparse";
    return notice("empty", "No results.", h("p", {}, exact ? "No document has these words." : "Operators such as a phrase in quotes or -word leave documents out."), exact && h("p", {}, hybrid));
  }

  /** Fields with an index first: somebody wants to filter by them. */
  private facetFields(found: readonly { metadata: Record<string, unknown> }[]): { field: string; list: boolean }[] {
    const indexed = this.store.info?.fields ?? [];
    const fields = facetFields(found.map((one) => one.metadata));
    fields.sort((a, b) => Number(indexed.includes(b.field)) - Number(indexed.includes(a.field)));
    this.toolbar.suggest(exampleFilter(fields, found.map((one) => one.metadata)));
    return fields;
  }

  private fail(state: State, error: unknown): void {
    this.shownFor = null;
    const filtered = error instanceof ApiError && error.status < 500 && /filter/i.test(error.code + error.message) && state.filter.trim() !== "";
    this.toolbar.error(filtered ? error.message : null);
    this.say(error instanceof Error ? error.message : "That did not work");
    if (filtered) {
      if (this.list.children.length) return; // the results before stay
      const clear = h("button", { type: "button", on: { click: () => this.store.go({ filter: "" }) } }, "Search without the filter");
      fill(this.message, notice("empty", "The filter cannot be read.", h("p", {}, clear)));
      return;
    }
    fill(this.message, errorNotice(error, () => void this.search()));
    for (const part of [this.list, this.status, this.more]) fill(part);
    this.words.hidden = this.times.hidden = true;
  }

  // -- without a query

  private async browse(state: State): Promise<void> {
    const filter = filterOf(state.filter, state.choices);
    const found = await this.latest.run((signal) =>
      Promise.all([this.store.api.documents(state.index, filter, signal), this.store.api.count(state.index, filter, signal)]),
    );
    if (!found) return;
    const [documents, n] = found;
    this.shownFor = state;
    this.hits = [];
    this.toolbar.error(null);
    this.words.hidden = this.times.hidden = true;
    fill(this.status, h("span", {}, h("b", {}, count(n)), ` ${n === 1 ? "document" : "documents"}${filter ? " with this filter" : ""}`));
    fill(this.message, documents.length ? null : this.emptyIndex(filter));
    replaceItems(this.list, documents.map((document) => this.documentItem(document)));
    fill(this.more, n > documents.length && h("p", { class: "note" }, `and ${counted(n - documents.length, "more document").replace("more documents", "more")}. Type to find the right ones.`));
    this.weights.draw([]);
    void this.facets.update(state, this.facetFields(documents));
  }

  private emptyIndex(filter: string | undefined): HTMLElement {
    if (filter) {
      const last = this.store.state.choices.at(-1);
      const drop = last && h("button", { type: "button", on: { click: () => this.store.go({ choices: toggled(this.store.state.choices, last) }) } }, `Without ${condition(last)}`);
      return notice("empty", "No document passes the filter.", drop ? h("p", {}, drop) : null);
    }
    return notice("empty", "This index is empty.", h("p", {}, "Add documents with ", h("code", {}, `POST v1/indexes/${this.store.state.index}/documents`), ", or with ", h("code", {}, "plait index"), "."));
  }

  private documentItem(found: FoundDocument): HTMLElement {
    const link = h("a", { class: "hit-title", href: this.store.link({ view: "document", id: found.id }), "data-open": found.id }, found.title || found.id);
    return h("li", { class: "hit plain", "data-id": found.id }, h("div", { class: "hit-body" }, h("h3", {}, link), h("p", { class: "passage", dir: "auto" }, shortened(found.text, 180))));
  }
}
