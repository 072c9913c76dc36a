// Why a document has its rank: what each list gave, and the words and terms that matched.

import type { Alignment } from "./alignment.ts";
import { h, vary, type Child } from "./dom.ts";
import { count, percent, score } from "./format.ts";
import { ABOUT_KIND, kindName } from "./modes.ts";
import type { Explanation, Hit } from "./types.ts";
import type { WordLinks } from "./words.ts";

const MAX_ROWS = 12; // of a table of words or terms

export function explanationPanel(hit: Hit, alignment: Alignment | null, links: WordLinks): HTMLElement {
  const why = hit.explanation;
  const panel = h("div", { class: "why" });
  if (!why) return panel;
  panel.append(
    section("How each list ranked it", partsTable(why, hit)),
    ...(alignment ? [section("Late interaction, word by word", wordsTable(why, alignment, links))] : []),
    ...(why.bm25?.length ? [section("Words of the full text", bm25Table(why))] : []),
    ...(why.sparse?.length ? [section("Sparse terms", sparseTable(why))] : []),
  );
  if (why.conditions.length) panel.append(h("p", { class: "note" }, `Meets ${why.conditions.join(", ")}.`));
  if (why.multi?.note) panel.append(h("p", { class: "note" }, why.multi.note));
  return panel;
}

/** One stacked bar of what each list gave to a score. */
export function shareBar(why: Explanation): HTMLElement {
  const bar = h("span", { class: "shares", "aria-hidden": "true" });
  for (const part of why.parts) {
    if (part.share <= 0) continue;
    const piece = h("span", { class: `kind-${part.kind}`, title: `${kindName(part.kind)}: ${percent(part.share)}` });
    bar.append(vary(piece, "--share", part.share.toFixed(4)));
  }
  return bar;
}

/** "dense 2 · multi 1": the rank in each list. */
export function rankList(why: Explanation): HTMLElement {
  const list = h("span", { class: "ranks" });
  for (const part of why.parts) {
    if (part.kind === "smoothing") continue;
    const rank = part.rank === null ? "–" : `${part.rank}`;
    const about = part.rank === null ? "not in this list" : `rank ${rank} in this list: ${ABOUT_KIND[part.kind] ?? ""}`;
    list.append(
      h("span", { class: "rank-in", title: about }, h("i", { class: `dot kind-${part.kind}` }), kindName(part.kind), h("b", {}, rank)),
    );
  }
  return list;
}

function section(title: string, ...children: Child[]): HTMLElement {
  return h("section", {}, h("h4", {}, title), ...children);
}

function partsTable(why: Explanation, hit: Hit): HTMLElement {
  const table = h("table", { class: "figures" }, head("list", "rank", "score", "share"));
  const body = h("tbody");
  for (const part of why.parts) {
    body.append(
      h(
        "tr",
        { title: ABOUT_KIND[part.kind] ?? "" },
        h("th", { scope: "row" }, h("i", { class: `dot kind-${part.kind}` }), kindName(part.kind)),
        h("td", {}, part.rank === null ? "–" : part.rank),
        h("td", {}, part.score === null ? "not found" : score(part.score)),
        h("td", { class: "bar-cell" }, meter(part.share, `kind-${part.kind}`), percent(part.share)),
      ),
    );
  }
  if (why.parts.length > 1) {
    body.append(
      h("tr", { class: "total" }, h("th", { scope: "row" }, "fused"), h("td", {}, why.rank ?? hit.rank), h("td", {}, score(why.score ?? hit.score)), h("td")),
    );
  }
  table.append(body);
  return scrolled(table);
}

function wordsTable(why: Explanation, alignment: Alignment, links: WordLinks): HTMLElement {
  const table = h("table", { class: "figures" }, head("query", "chose", "similarity"));
  const body = h("tbody");
  const best = [...alignment.links].sort((a, b) => b.similarity - a.similarity);
  const top = best[0]?.similarity ?? 1;
  for (const link of best.slice(0, MAX_ROWS)) {
    const row = h(
      "tr",
      {},
      h("th", { scope: "row" }, alignment.queryWords[link.query]?.text ?? ""),
      h("td", { class: "left" }, alignment.words[link.word]?.text ?? ""),
      h("td", { class: "bar-cell" }, meter(link.similarity / top, "kind-multi"), score(link.similarity)),
    );
    links.row(row, link.query);
    body.append(row);
  }
  table.append(body);
  const total = why.multi ? ` They add up to ${score(why.multi.score)}` : "";
  const others = alignment.others ? `, with ${alignment.others} that stand for no word` : "";
  return h("div", {}, scrolled(table), h("p", { class: "note" }, `Each word of the query chooses one word of the passage.${total}${total && others}${total && "."}`));
}

function bm25Table(why: Explanation): HTMLElement {
  const words = why.bm25 ?? [];
  const top = Math.max(...words.map((word) => word.score), 1e-9);
  const table = h("table", { class: "figures" }, head("word", "here", "documents", "score"));
  table.append(
    h(
      "tbody",
      {},
      ...words.slice(0, MAX_ROWS).map((word) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, word.word),
          h("td", {}, `${count(word.count)} ×`),
          h("td", {}, count(word.documents)),
          h("td", { class: "bar-cell" }, meter(word.score / top, "kind-bm25"), score(word.score)),
        ),
      ),
    ),
  );
  return scrolled(table);
}

function sparseTable(why: Explanation): HTMLElement {
  const terms = why.sparse ?? [];
  const top = Math.max(...terms.map((term) => term.score), 1e-9);
  const table = h("table", { class: "figures" }, head("term", "in the query", "in the passage", "score"));
  table.append(
    h(
      "tbody",
      {},
      ...terms.slice(0, MAX_ROWS).map((term) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, term.surface || `term ${term.term}`),
          h("td", {}, score(term.query_weight)),
          h("td", {}, score(term.weight)),
          h("td", { class: "bar-cell" }, meter(term.score / top, "kind-sparse"), score(term.score)),
        ),
      ),
    ),
  );
  return scrolled(table);
}

function head(...names: string[]): HTMLElement {
  return h("thead", {}, h("tr", {}, ...names.map((name) => h("th", { scope: "col" }, name))));
}

export function meter(share: number, kind: string): HTMLElement {
  return h("span", { class: "meter", "aria-hidden": "true" }, vary(h("span", { class: kind }), "--share", Math.max(0, Math.min(1, share)).toFixed(4)));
}

/** A table that scrolls by itself where the page is narrow. */
function scrolled(table: HTMLElement): HTMLElement {
  return h("div", { class: "scrolled", tabindex: 0, role: "group", "aria-label": "Table" }, table); // a narrow window scrolls it, also by keys
}
