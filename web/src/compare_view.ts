// Two modes side by side, with a line for each document that is in both lists.

import { Latest } from "./api.ts";
import { fill, h, s } from "./dom.ts";
import { milliseconds, score } from "./format.ts";
import { ABOUT_MODE, kindName, modesOf } from "./modes.ts";
import { errorNotice, notice } from "./notices.ts";
import { moves, summary, type Move } from "./ranks.ts";
import { N_HITS, searchBody } from "./request.ts";
import type { State } from "./state.ts";
import type { Store } from "./store.ts";
import { fillModes } from "./toolbar.ts";
import type { Answer, Hit } from "./types.ts";

const DEPTH = 30; // to find where a document of one list is in the other

export class CompareView {
  readonly element = h("div", { class: "compare-view" });
  private readonly first = h("select", { id: "first-mode", "aria-label": "First mode" });
  private readonly second = h("select", { id: "second-mode", "aria-label": "Second mode" });
  private readonly notes = [h("p", { class: "note" }), h("p", { class: "note" })] as const;
  private readonly lists = [h("ol", { class: "short-hits" }), h("ol", { class: "short-hits right" })] as const;
  private readonly lines = s("svg", { class: "lines", "aria-hidden": "true" });
  private readonly stage = h("div", { class: "stage-area" });
  private readonly line = h("p", { class: "status", role: "status" });
  private readonly message = h("div", { class: "message" });
  private readonly latest = new Latest();
  private found: Move[] = [];
  private shownFor = "";
  private timer = 0;

  constructor(
    private readonly store: Store,
    private readonly busy: (on: boolean) => void,
  ) {
    this.first.addEventListener("change", () => this.store.go({ mode: this.first.value }));
    this.second.addEventListener("change", () => this.store.go({ against: this.second.value }));
    const swap = (): void => this.store.go({ mode: this.store.state.against, against: this.store.state.mode });
    const swapButton = h("button", { type: "button", class: "icon", "aria-label": "Swap the modes", title: "Swap", on: { click: swap } }, "⇄");
    this.element.append(
      h("div", { class: "compare-head" }, h("div", {}, this.first, this.notes[0]), swapButton, h("div", {}, this.second, this.notes[1])),
      this.line,
      this.message,
      this.stage,
    );
    this.stage.append(this.lists[0], this.lines, this.lists[1]);
    new ResizeObserver(() => this.drawLines()).observe(this.stage);
    for (const type of ["pointerover", "focusin"]) this.stage.addEventListener(type, (event) => this.point(event.target));
    for (const type of ["pointerleave", "focusout"]) this.stage.addEventListener(type, () => this.point(null));
  }

  update(typing: boolean): void {
    const { state, info } = this.store;
    fillModes(this.first, modesOf(info), state.mode);
    fillModes(this.second, modesOf(info), state.against);
    const key = JSON.stringify([state.index, searchBody(state), state.against]);
    if (key === this.shownFor) return;
    this.shownFor = key;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.search(state), typing ? 120 : 0);
  }

  private async search(state: State): Promise<void> {
    if (!state.index) return;
    if (!state.q.trim()) {
      this.latest.cancel();
      this.show([], []);
      fill(this.line);
      fill(this.message, notice("empty", "Type a query to compare two modes."));
      return;
    }
    this.busy(true);
    try {
      const ask = (mode: string, signal: AbortSignal): Promise<Answer> =>
        this.store.api.search(state.index, searchBody(state, { mode, explain: false, k: DEPTH, ...(mode !== "hybrid" && { min_score: undefined }) }), signal);
      const answers = await this.latest.run((signal) => Promise.all([ask(state.mode, signal), ask(state.against, signal)]));
      if (!answers) return;
      fill(this.message);
      this.show(answers[0].hits, answers[1].hits);
      [state.mode, state.against].forEach((mode, number) => {
        const seconds = answers[number]!.timings?.seconds;
        fill(this.notes[number]!, `${ABOUT_MODE[mode] ?? ""}${seconds === undefined ? "" : ` · ${milliseconds(seconds)}`}`);
      });
    } catch (error) {
      this.shownFor = "";
      this.show([], []);
      fill(this.line);
      fill(this.message, errorNotice(error, () => this.update(false)));
    }
    this.busy(false);
  }

  private show(first: readonly Hit[], second: readonly Hit[]): void {
    this.found = moves(first.map((hit) => hit.id), second.map((hit) => hit.id));
    const { mode, against } = this.store.state;
    for (const [number, hits] of [first, second].entries()) {
      const other = number ? mode : against;
      this.lists[number]!.setAttribute("aria-label", `Results of ${kindName(number ? against : mode)}`);
      fill(this.lists[number]!, ...hits.slice(0, N_HITS).map((hit) => this.item(hit, number === 1, other)));
    }
    const alone = this.found.some(({ from, to }) => (from ?? DEPTH) > N_HITS !== (to ?? DEPTH) > N_HITS);
    fill(this.line, summary(this.found, N_HITS), alone && ` Dashed: its rank in the other list, – if it is beyond ${DEPTH}.`);
    this.drawLines();
  }

  private item(hit: Hit, right: boolean, other: string): HTMLElement {
    const move = this.found.find((one) => one.id === hit.id)!;
    const there = right ? move.from : move.to;
    const about = there === null ? `not in the best ${DEPTH} of ${kindName(other)}` : there === hit.rank ? "the same rank" : `rank ${there} in ${kindName(other)}`;
    const by = there === null ? 0 : there - hit.rank;
    const change = by === 0 ? "" : `${by > 0 ? "▲" : "▼"}${Math.abs(by)}`;
    return h(
      "li",
      { "data-id": hit.id, class: there === null || there > N_HITS ? "alone" : "" },
      h("span", { class: "rank" }, hit.rank),
      h("a", { href: this.store.link({ view: "document", id: hit.id }), "data-open": hit.id, "aria-label": `${hit.title || hit.id}, ${about}` }, hit.title || hit.id),
      right && h("span", { class: `moved ${by > 0 ? "up" : "down"}`, "aria-hidden": "true" }, change),
      h("span", { class: "score" }, score(hit.score)),
    );
  }

  /** Lines between the items of one document. Their positions are those of the items on the screen. */
  private drawLines(): void {
    const area = this.lines.getBoundingClientRect();
    if (!area.width || !this.element.isConnected) return;
    this.lines.setAttribute("viewBox", `0 0 ${area.width} ${area.height}`);
    const middle = (list: HTMLElement, id: string): number | null => {
      const item = [...list.children].find((one) => (one as HTMLElement).dataset["id"] === id);
      if (!item) return null;
      const box = item.getBoundingClientRect();
      return box.top + box.height / 2 - area.top;
    };
    fill(this.lines);
    for (const move of this.found) {
      const [from, to] = [middle(this.lists[0], move.id), middle(this.lists[1], move.id)];
      if (from === null && to === null) continue;
      const kind = from === null || to === null ? "alone" : move.to! < move.from! ? "up" : move.to! > move.from! ? "down" : "same";
      const width = area.width;
      if (from !== null && to !== null) {
        this.lines.append(s("path", { d: `M0 ${from}C${width / 2} ${from} ${width / 2} ${to} ${width} ${to}`, class: kind, "data-id": move.id }));
        continue;
      }
      // In one list only: a short line to its rank in the other, or to a dash.
      const [start, y, by, rank] = from !== null ? [0, from, 1, move.to] : [width, to!, -1, move.from];
      const length = width * 0.16 * by;
      const place = { x: start + length + 4 * by, y: y + 3.5, "text-anchor": by > 0 ? "start" : "end", "data-id": move.id };
      this.lines.append(s("path", { d: `M${start} ${y}h${length}`, class: kind, "data-id": move.id }), s("text", place, rank ?? "–"));
    }
  }

  private point(target: EventTarget | null): void {
    const item = target instanceof Element ? target.closest<HTMLElement>("[data-id]") : null;
    const id = item?.dataset["id"];
    this.stage.classList.toggle("pointing-at", id !== undefined);
    for (const element of this.stage.querySelectorAll<HTMLElement | SVGElement>("[data-id]")) {
      element.classList.toggle("lit", id !== undefined && element.dataset["id"] === id);
    }
  }
}
