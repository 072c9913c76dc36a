// The line below the search box: mode, filter, chosen facets and switches.

import { fill, h } from "./dom.ts";
import { condition, toggled } from "./filters.ts";
import { ABOUT_MODE, kindName, modesOf } from "./modes.ts";
import type { Store } from "./store.ts";

export class Toolbar {
  readonly element = h("div", { class: "toolbar" });
  private readonly mode = h("select", { id: "mode", "aria-label": "Mode" });
  private readonly filter = h("input", {
    id: "filter",
    type: "text",
    placeholder: 'Filter, such as year >= 2020',
    "aria-label": "Filter",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-describedby": "filter-error",
  });
  private readonly problem = h("pre", { class: "filter-error", id: "filter-error", role: "alert", tabindex: 0, hidden: true });
  private readonly chosen = h("ul", { class: "chosen", "aria-label": "Chosen values" });
  private readonly mix = this.toggle("Weights", "Change what counts (m)", () => ({ mix: !this.store.state.mix, ...(this.store.state.mix && { weights: null }) }));
  private readonly sure = this.toggle("Confident only", "Leave out results that are no better than those of unrelated queries", () => ({ sure: !this.store.state.sure }));
  private readonly rerank = this.toggle("Rerank", "A cross-encoder reads the best 50 again: better and slower", () => ({ rerank: !this.store.state.rerank }));

  constructor(private readonly store: Store) {
    this.mode.addEventListener("change", () => this.store.go({ mode: this.mode.value }));
    this.filter.addEventListener("change", () => this.store.go({ filter: this.filter.value.trim() }));
    this.filter.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.store.go({ filter: this.filter.value.trim() });
    });
    this.element.append(
      h("div", { class: "toolbar-row" }, this.mode, this.filter, this.mix, this.sure, this.rerank),
      this.problem,
      this.chosen,
    );
  }

  update(): void {
    const { state, info } = this.store;
    fillModes(this.mode, modesOf(info), state.mode);
    if (document.activeElement !== this.filter) this.filter.value = state.filter;
    const hybrid = state.mode === "hybrid";
    this.mix.hidden = this.sure.hidden = !hybrid;
    for (const [button, on] of [[this.mix, state.mix], [this.sure, state.sure], [this.rerank, state.rerank]] as const) {
      button.setAttribute("aria-pressed", String(on));
    }
    fill(
      this.chosen,
      ...state.choices.map((choice) => {
        const drop = (): void => this.store.go({ choices: toggled(this.store.state.choices, choice) });
        const text = condition(choice) ?? choice.field;
        return h("li", {}, h("button", { type: "button", "aria-label": `Remove ${text}`, on: { click: drop } }, text, h("span", { "aria-hidden": "true" }, " ×")));
      }),
    );
    this.chosen.hidden = !state.choices.length;
  }

  /** An example of a filter that fits the index. */
  suggest(example: string | null): void {
    if (example) this.filter.placeholder = `Filter, such as ${example}`;
  }

  /** Shows what is wrong with the filter; null: nothing is. */
  error(message: string | null): void {
    this.problem.hidden = message === null;
    // The lines after the message show the place in the filter: only these keep their spaces.
    const [said, ...place] = (message ?? "").split("\n");
    fill(this.problem, h("span", { class: "filter-message" }, said), place.join("\n"));
    if (message === null) this.filter.removeAttribute("aria-invalid");
    else this.filter.setAttribute("aria-invalid", "true");
  }

  private toggle(name: string, about: string, change: () => object): HTMLButtonElement {
    return h("button", { type: "button", class: "toggle", title: about, "aria-pressed": "false", on: { click: () => this.store.go(change()) } }, name);
  }
}

/** Fills a select with modes; an unknown one is shown, so that its error is understood. */
export function fillModes(select: HTMLSelectElement, modes: readonly string[], chosen: string): void {
  const all = modes.includes(chosen) ? modes : [...modes, chosen];
  if (select.dataset["modes"] !== all.join()) {
    select.dataset["modes"] = all.join();
    fill(select, ...all.map((mode) => h("option", { value: mode, title: ABOUT_MODE[mode] ?? "" }, kindName(mode))));
  }
  select.value = chosen;
  select.title = ABOUT_MODE[chosen] ?? "";
}
