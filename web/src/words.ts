// Words of texts as elements, and the links between words of the query and of documents: hover, focus or press.

import type { Alignment } from "./alignment.ts";
import { pieces } from "./alignment.ts";
import { h, vary } from "./dom.ts";
import { score } from "./format.ts";

interface Shown {
  element: HTMLElement;
  query: Map<number, number>; // words of the query that chose it, with similarities
}

/** All words that are on the page for one query. */
export class WordLinks {
  private readonly queryWords = new Map<number, HTMLElement>();
  private words: Shown[] = [];
  private pinned: HTMLElement | null = null;

  /** A word of the query: points out the words that it chose. */
  queryWord(number: number, text: string): HTMLElement {
    const element = h("button", { type: "button", class: "query-word", "aria-pressed": "false" }, text);
    this.queryWords.set(number, element);
    this.listen(element, () => this.showChosen(number));
    return element;
  }

  /** A range of a text, with a mark for each word that the query chose. */
  text(alignment: Alignment, field: "text" | "title", text: string, start: number, end: number, reachable: boolean): Node[] {
    return pieces(text, alignment.words, field, start, end).map((piece) => {
      if (piece.word === null) return document.createTextNode(piece.text);
      const links = alignment.links.filter((link) => link.word === piece.word);
      const names = links.map((link) => `${alignment.queryWords[link.query]?.text} ${score(link.similarity)}`);
      // A title is a link, which may not contain buttons: its words can only be pointed at.
      const button = field === "text" && { role: "button", tabindex: reachable ? 0 : -1, "aria-pressed": "false" };
      const element = h("mark", button || {}, piece.text);
      if (button) element.setAttribute("aria-label", `${piece.text}, chosen by ${names.join(", ")}`);
      element.title = `chosen by ${names.join(", ")}`;
      vary(element, "--strength", alignment.words[piece.word]!.strength.toFixed(3));
      const shown: Shown = { element, query: new Map(links.map((link) => [link.query, link.similarity])) };
      this.words.push(shown);
      this.listen(element, () => this.showChoosers(shown), field === "text");
      return element;
    });
  }

  /** A row of a table that shows one link: points out both ends. */
  row(element: HTMLElement, query: number): void {
    this.listen(element, () => this.showChosen(query));
  }

  /** Forgets elements that left the page. */
  prune(): void {
    this.words = this.words.filter((word) => word.element.isConnected);
  }

  private listen(element: HTMLElement, show: () => void, presses = true): void {
    const enter = (): void => {
      if (!this.pinned) show();
    };
    const leave = (): void => {
      if (!this.pinned) this.clear();
    };
    const press = (event: Event): void => {
      event.stopPropagation();
      const same = this.pinned === element;
      this.pinned?.setAttribute("aria-pressed", "false");
      this.pinned = null;
      this.clear();
      if (same) return;
      this.pinned = element;
      element.setAttribute("aria-pressed", "true");
      show();
    };
    element.addEventListener("pointerenter", enter);
    element.addEventListener("pointerleave", leave);
    element.addEventListener("focus", enter);
    element.addEventListener("blur", leave);
    if (!presses) return;
    element.addEventListener("click", press);
    if (element.tagName !== "BUTTON") {
      element.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        press(event);
      });
    }
  }

  private showChosen(query: number): void {
    this.clear();
    document.body.classList.add("pointing");
    this.queryWords.get(query)?.classList.add("lit");
    for (const word of this.words) {
      const similarity = word.query.get(query);
      if (similarity === undefined) continue;
      word.element.classList.add("lit");
      word.element.dataset["similarity"] = similarity.toFixed(2);
    }
  }

  private showChoosers(shown: Shown): void {
    this.clear();
    document.body.classList.add("pointing");
    shown.element.classList.add("lit");
    for (const [query, similarity] of shown.query) {
      const element = this.queryWords.get(query);
      element?.classList.add("lit");
      if (element) element.dataset["similarity"] = similarity.toFixed(2);
    }
  }

  /** Lets go of a pinned word; false if there was none. */
  unpin(): boolean {
    if (!this.pinned) return false;
    this.pinned.setAttribute("aria-pressed", "false");
    this.pinned = null;
    this.clear();
    return true;
  }

  private clear(): void {
    document.body.classList.remove("pointing");
    for (const element of [...this.queryWords.values(), ...this.words.map((word) => word.element)]) {
      element.classList.remove("lit");
      delete element.dataset["similarity"];
    }
  }
}
