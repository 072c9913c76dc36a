// The weights of hybrid search: sliders, and a chart of what each list and the fusion say.

import { fill, h, s } from "./dom.ts";
import { ABOUT_KIND, kindName, kindsOf, usualWeights } from "./modes.ts";
import type { Kind, Weights } from "./state.ts";
import type { Store } from "./store.ts";
import type { Hit } from "./types.ts";

const MAX_WEIGHT = 2;
const N_SHOWN = 10; // documents of the chart
const MAX_RANK = 14; // lower ranks are drawn at the lower edge

export class WeightPanel {
  readonly element = h("section", { class: "mix panel", "aria-label": "Weights", hidden: true });
  private readonly sliders = h("div", { class: "sliders" });
  private readonly chart = h("div", { class: "chart" });
  private drawnFor = "";

  constructor(private readonly store: Store) {
    const reset = h("button", { type: "button", class: "quiet", on: { click: () => this.store.go({ weights: null, mix: true }) } }, "Reset");
    this.element.append(
      h("div", { class: "panel-head" }, h("h2", {}, "What counts"), h("span", { class: "note" }, "Drag a weight and watch the ranking move."), reset),
      h("div", { class: "mix-body" }, this.sliders, this.chart),
    );
  }

  /** Shows the panel in mode hybrid if it is open, with the weights of the state. */
  update(): void {
    const { state, info } = this.store;
    this.element.hidden = !state.mix || state.mode !== "hybrid" || !info;
    if (this.element.hidden || !info) return;
    const usual = usualWeights(info);
    if (this.drawnFor !== `${info.name} ${kindsOf(info)}`) {
      this.drawnFor = `${info.name} ${kindsOf(info)}`;
      fill(this.sliders, ...kindsOf(info).map((kind) => this.slider(kind)));
    }
    for (const kind of kindsOf(info)) {
      const weight = state.weights?.[kind] ?? usual[kind] ?? 0;
      const input = this.sliders.querySelector<HTMLInputElement>(`#weight-${kind}`);
      if (input && document.activeElement !== input) input.value = String(weight);
      const output = this.sliders.querySelector(`output[for="weight-${kind}"]`);
      if (output) output.textContent = weight.toFixed(2);
    }
  }

  private slider(kind: Kind): HTMLElement {
    const id = `weight-${kind}`;
    const slide = (event: Event): void => {
      const { info, state } = this.store;
      if (!info) return;
      const weights: Weights = { ...usualWeights(info), ...state.weights };
      weights[kind] = Number((event.target as HTMLInputElement).value);
      this.store.go({ weights, mix: true }, { replace: true });
    };
    return h(
      "div",
      { class: "slider" },
      h("label", { for: id }, h("i", { class: `dot kind-${kind}` }), kindName(kind)),
      h("input", { id, type: "range", min: 0, max: MAX_WEIGHT, step: 0.05, "aria-describedby": `${id}-about`, on: { input: slide } }),
      h("output", { for: id }),
      h("p", { class: "note", id: `${id}-about` }, ABOUT_KIND[kind] ?? ""),
    );
  }

  /** Draws the ranks of the best documents in each list and after the fusion. */
  draw(hits: readonly Hit[]): void {
    const top = hits.slice(0, N_SHOWN).filter((hit) => hit.explanation);
    const kinds = [...new Set(top.flatMap((hit) => hit.explanation!.parts.map((part) => part.kind)))].filter((kind) => kind !== "smoothing");
    if (top.length < 2 || kinds.length < 2) {
      fill(this.chart);
      return;
    }
    fill(this.chart, bumpChart(top, kinds, this.chart.clientWidth < 440));
  }
}

/** A line for each document through its rank in each list, to its rank after the fusion. */
export function bumpChart(hits: readonly Hit[], kinds: readonly string[], narrow: boolean): SVGSVGElement {
  const [width, row, top, right] = narrow ? [340, 24, 26, 116] : [600, 24, 26, 232];
  const height = top + MAX_RANK * row + 14;
  const columns = [...kinds, "fused"];
  const x = (column: number): number => 26 + (column * (width - right - 26)) / (columns.length - 1);
  const y = (rank: number): number => top + (Math.min(rank, MAX_RANK) - 0.5) * row;
  const chart = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chartLabel(hits, kinds) });
  columns.forEach((name, column) => {
    chart.append(
      s("line", { class: "axis", x1: x(column), x2: x(column), y1: top, y2: height - 14 }),
      s("text", { class: "axis-name", x: x(column), y: 14, "text-anchor": "middle" }, kindName(name)),
    );
  });
  for (const hit of hits) {
    const ranks = kinds.map((kind) => hit.explanation!.parts.find((part) => part.kind === kind)?.rank ?? null);
    const points = [...ranks, hit.rank].map((rank, column) => [x(column), y(rank ?? MAX_RANK)] as const);
    const group = s("g", { class: hit.rank === 1 ? "line first" : "line" });
    group.append(s("title", {}, `${hit.title || hit.id}: ${kinds.map((kind, n) => `${kindName(kind)} ${ranks[n] ?? "not found"}`).join(", ")}, fused ${hit.rank}`));
    group.append(s("path", { d: curve(points) }));
    points.forEach(([px, py], column) => {
      const rank = column < ranks.length ? ranks[column] : hit.rank;
      group.append(s("circle", { cx: px, cy: py, r: 9 }), s("text", { x: px, y: py + 3.5, "text-anchor": "middle" }, rank === null || rank === undefined ? "–" : rank > MAX_RANK ? "+" : rank));
    });
    group.append(s("text", { class: "name", x: x(columns.length - 1) + 16, y: y(hit.rank) + 4 }, fitting(hit.title || hit.id, right - 26)));
    chart.append(group);
  }
  return chart;
}

/** The text, or as much of it as has room in so many units of the chart, in the bold letters of the first line. */
function fitting(text: string, room: number): string {
  const pen = document.createElement("canvas").getContext("2d");
  if (!pen) return shortened(text, Math.floor(room / 8));
  pen.font = `650 11.5px ${getComputedStyle(document.body).fontFamily}`;
  let shown = text.slice(0, 60);
  while (shown.length > 1 && pen.measureText(shown.length < text.length ? `${shown}…` : shown).width > room) shown = shown.slice(0, -1).trimEnd();
  return shown.length < text.length ? `${shown}…` : shown;
}

function curve(points: readonly (readonly [number, number])[]): string {
  return points
    .map(([x, y], number) => {
      if (!number) return `M${x} ${y}`;
      const [px, py] = points[number - 1]!;
      const middle = (px + x) / 2;
      return `C${middle} ${py} ${middle} ${y} ${x} ${y}`;
    })
    .join("");
}

function chartLabel(hits: readonly Hit[], kinds: readonly string[]): string {
  return `Ranks of ${hits.length} documents in ${kinds.map(kindName).join(", ")}, and after the fusion. The explanation of each result has the same numbers.`;
}

export function shortened(text: string, size: number): string {
  return text.length > size ? `${text.slice(0, size - 1).trimEnd()}…` : text;
}
