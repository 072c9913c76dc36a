// The start of the page: header, views, keys.

import { ApiError } from "./api.ts";
import { CompareView } from "./compare_view.ts";
import { DocumentView } from "./document_view.ts";
import { byId, fill, h } from "./dom.ts";
import { counted } from "./format.ts";
import { fillHelp } from "./help.ts";
import { IndexView } from "./index_view.ts";
import { listenToKeys } from "./keys.ts";
import { errorNotice, keyForm, notice } from "./notices.ts";
import { SearchView } from "./search_view.ts";
import type { State, View } from "./state.ts";
import { Store } from "./store.ts";
import { startTheme } from "./theme.ts";

const TABS: [View, string][] = [["search", "Search"], ["compare", "Compare"], ["index", "Index"]];

class Page {
  readonly store = new Store();
  private readonly main = byId("main");
  private readonly box = byId<HTMLInputElement>("query");
  private readonly help = byId<HTMLDialogElement>("help");
  private readonly search = new SearchView(this.store, (text) => this.say(text), (on) => this.busy(on));
  private readonly compare = new CompareView(this.store, (on) => this.busy(on));
  private readonly document = new DocumentView(this.store, (on) => this.busy(on), () => this.back());
  private readonly index = new IndexView(this.store);
  private typing = false; // the last change came from the box
  private infoFor = "";
  private ready = false;

  constructor() {
    const toggleTheme = startTheme(byId("theme"));
    fillHelp(this.help);
    byId("help-button").addEventListener("click", () => this.help.showModal());
    this.store.onChange((before) => this.update(before));
    this.listenToBox();
    this.listenToLinks();
    listenToKeys({
      box: this.box,
      main: this.main,
      view: () => this.store.state.view,
      go: (change) => this.store.go(change),
      mix: () => this.store.go({ mix: !this.store.state.mix, ...(this.store.state.mix && { weights: null }) }),
      help: () => this.help.showModal(),
      theme: toggleTheme,
      back: () => this.search.unpin() || this.document.unpin() || this.back(),
    });
  }

  /** Asks for the indexes, and for a key if the server wants one. */
  async start(wrongKey = false): Promise<void> {
    try {
      this.store.indexes = await this.store.api.indexes();
    } catch (error) {
      const refused = error instanceof ApiError && error.status === 401;
      const again = (): void => void this.start(refused && this.store.api.key !== "");
      fill(this.main, refused ? keyForm(this.store, this.store.api.key !== "" || wrongKey, again) : errorNotice(error, again));
      if (refused) byId("key").focus();
      return;
    }
    if (!this.store.indexes.length) {
      fill(this.main, notice("empty", "This server has no index yet.", h("p", {}, "Make one with ", h("code", {}, "plait index documents.jsonl --to my-index"), ", and serve it with ", h("code", {}, "plait serve my-index"), ".")));
      return;
    }
    this.ready = true;
    this.drawWhich();
    this.store.go({}, { replace: true });
    if (!this.store.state.q && this.store.state.view === "search" && matchMedia("(pointer: fine)").matches) this.box.focus();
  }

  // -- header

  private drawWhich(): void {
    const { indexes } = this.store;
    const choose = (event: Event): void => this.store.go(this.store.fresh((event.target as HTMLSelectElement).value));
    const select = h(
      "select",
      { id: "index", "aria-label": "Index", on: { change: choose } },
      ...indexes.map((one) => h("option", { value: one.name }, `${one.name} (${counted(one.documents, "document")})`)),
    );
    fill(byId("which"), indexes.length > 1 ? select : h("span", { class: "which-name" }, indexes[0]!.name));
  }

  private drawTabs(): void {
    const { view } = this.store.state;
    fill(
      byId("tabs"),
      ...TABS.map(([name, title]) => h("a", { href: this.store.link({ view: name, id: "" }), "data-view": name, "aria-current": view === name ? "page" : null }, title)),
    );
  }

  private listenToBox(): void {
    let began = false; // this spell of typing has its entry in the history
    this.box.addEventListener("input", () => {
      const view = this.store.state.view === "compare" ? "compare" : "search";
      this.typing = true;
      this.store.go({ q: this.box.value, view, id: "" }, { replace: began });
      this.typing = false;
      began = true;
    });
    this.box.addEventListener("blur", () => (began = false));
    byId<HTMLFormElement>("box").addEventListener("submit", (event) => {
      event.preventDefault();
      began = false;
      const view = this.store.state.view === "compare" ? "compare" : "search";
      this.store.go({ q: this.box.value, view, id: "" });
    });
  }

  /** Links within the page change its state; with a modifier key the browser opens them as it always does. */
  private listenToLinks(): void {
    document.addEventListener("click", (event) => {
      const link = event.target instanceof Element ? event.target.closest("a") : null;
      if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      if (link.id === "home") {
        event.preventDefault();
        this.store.go(this.store.fresh(this.store.state.index));
        this.store.go({ view: "search" }, { replace: true });
        this.box.focus();
      } else if (link.dataset["open"] !== undefined) {
        event.preventDefault();
        this.store.go({ view: "document", id: link.dataset["open"], ...(link.dataset["plain"] !== undefined && { q: "" }) });
      } else if (link.dataset["view"]) {
        event.preventDefault();
        this.store.go({ view: link.dataset["view"] as View, id: "" });
      }
    });
  }

  // -- views

  private update(before: State): void {
    if (!this.ready) return;
    const { state } = this.store;
    if (document.activeElement !== this.box || this.box.value.trim() !== state.q.trim()) this.box.value = state.q;
    this.drawTabs();
    const select = document.getElementById("index");
    if (select instanceof HTMLSelectElement) select.value = state.index;
    document.title = [state.view === "document" ? state.id : state.q, state.index, "plait"].filter(Boolean).join(" · ");
    if (this.infoFor !== state.index) void this.loadInfo(state.index, before);
    if (!this.store.info) return; // loadInfo comes back here
    const view = { search: this.search, compare: this.compare, document: this.document, index: this.index }[state.view];
    if (this.main.firstElementChild !== view.element) {
      const last = before.view === "document" ? before.id : "";
      fill(this.main, view.element);
      if (before.view !== state.view && state.view !== "document") scrollTo(0, 0);
      if (last) this.main.querySelector<HTMLElement>(`[data-open="${CSS.escape(last)}"]`)?.focus();
    }
    if (state.view === "search") this.search.update(before, this.typing);
    else if (state.view === "compare") this.compare.update(this.typing);
    else if (state.view === "document") this.document.update();
    else this.index.update();
  }

  /** The facts of the index, which modes, weights and colours depend on. */
  private async loadInfo(index: string, before: State): Promise<void> {
    this.infoFor = index;
    this.store.info = null;
    const info = await this.store.api.info(index).catch((error: unknown) => error);
    if (this.infoFor !== index) return;
    if (info instanceof Error) {
      this.infoFor = "";
      fill(this.main, errorNotice(info, () => this.store.go({ index: this.store.indexes[0]?.name ?? "" })));
      return;
    }
    this.store.info = info as Store["info"];
    this.update(before);
  }

  private back(): boolean {
    if (history.state && (history.state as { inside?: boolean }).inside) history.back();
    else if (this.store.state.view !== "search") this.store.go({ view: "search", id: "" });
    else return false;
    return true;
  }

  private busy(on: boolean): void {
    byId("progress").classList.toggle("on", on);
  }

  private say(text: string): void {
    byId("said").textContent = text;
  }
}

void new Page().start();
