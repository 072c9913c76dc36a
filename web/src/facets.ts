// Facets: the values of metadata fields with their counts, to choose from.

import { Latest } from "./api.ts";
import { fill, h, vary } from "./dom.ts";
import { filterOf, sameChoice, toggled } from "./filters.ts";
import { count, shown } from "./format.ts";
import type { State } from "./state.ts";
import type { Store } from "./store.ts";
import type { Facets } from "./types.ts";

const MAX_FIELDS = 5;
const MAX_VALUES = 8;

export class FacetPanel {
  readonly element = h("aside", { class: "facets", "aria-label": "Filters" });
  private readonly latest = new Latest();
  private readonly body = h("div", { class: "facet-groups" });
  private readonly details = h("details", { class: "facet-box" }, h("summary", {}, "Filters"), this.body);
  private fields: { field: string; list: boolean }[] = [];
  private asked = "";

  constructor(private readonly store: Store) {
    const wide = matchMedia("(min-width: 900px)");
    const adapt = (): void => {
      this.details.open = wide.matches;
    };
    wide.addEventListener("change", adapt);
    adapt();
    this.element.append(this.details);
    this.element.hidden = true;
  }

  /** Shows the facets of the search that a state describes, of these fields. */
  async update(state: State, fields: { field: string; list: boolean }[]): Promise<void> {
    if (fields.length) this.fields = fields;
    const query = state.q.trim();
    const filter = filterOf(state.filter, state.choices);
    const asked = JSON.stringify([state.index, query, state.mode, filter, this.fields]);
    if (asked === this.asked) return;
    this.asked = asked;
    try {
      const found = await this.latest.run((signal) =>
        Promise.all(
          this.chosenFields(state).map(({ field }) => {
            const others = state.choices.filter((choice) => choice.field !== field);
            const rest = filterOf(state.filter, others);
            const body = { field, k: MAX_VALUES, ...(query && { query, mode: state.mode }), ...(rest && { filter: rest }) };
            return this.store.api.facets(state.index, body, signal);
          }),
        ),
      );
      if (found) this.draw(found);
    } catch {
      this.asked = ""; // the search itself shows the error
      this.element.hidden = true;
    }
  }

  reset(): void {
    this.latest.cancel();
    this.fields = [];
    this.asked = "";
    fill(this.body);
    this.element.hidden = true;
  }

  /** The best fields, with those that a value was chosen of. */
  private chosenFields(state: State): { field: string; list: boolean }[] {
    const chosen = state.choices.map(({ field, list }) => ({ field, list }));
    const all = [...chosen, ...this.fields];
    return all.filter((one, number) => all.findIndex((other) => other.field === one.field) === number).slice(0, MAX_FIELDS);
  }

  private draw(found: readonly Facets[]): void {
    const { choices } = this.store.state;
    const useful = found.filter(
      (one) =>
        choices.some((choice) => choice.field === one.field) ||
        (one.counts.length > 0 && one.n_values > 1 && !isSparse(one) && (one.n_values < 0.7 * one.n_documents || one.n_documents < 5)),
    );
    fill(this.body, ...useful.map((one) => this.group(one)));
    this.element.hidden = !useful.length;
  }

  private group(one: Facets): HTMLElement {
    const known = this.fields.find(({ field }) => field === one.field);
    const most = Math.max(...one.counts.map((value) => value.count), 1);
    const list = h("ul");
    for (const { value, count: n } of one.counts) {
      const choice = { field: one.field, value, list: known?.list ?? false };
      const on = this.store.state.choices.some((other) => sameChoice(other, choice));
      const choose = (): void => this.store.go({ choices: toggled(this.store.state.choices, choice) });
      const button = h(
        "button",
        { type: "button", class: "facet", "aria-pressed": String(on), on: { click: choose } },
        h("span", { class: "facet-value" }, value === null ? "none" : shown(value)),
        h("span", { class: "facet-count" }, count(n)),
      );
      list.append(h("li", {}, vary(button, "--share", (n / most).toFixed(3))));
    }
    const more = one.n_values - one.counts.length;
    return h("section", { class: "facet-group" }, h("h3", {}, one.field), list, more > 0 && h("p", { class: "note" }, `and ${count(more)} more`));
  }
}

/** A field that almost no document has tells nothing about the others. */
function isSparse(one: Facets): boolean {
  const without = one.counts.find(({ value }) => value === null)?.count ?? 0;
  return without > 0.98 * one.n_documents;
}
