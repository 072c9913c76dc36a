// The state of the page, its index, and the moves between states.

import { Api } from "./api.ts";
import { readState, START, writeState, type State } from "./state.ts";
import type { IndexInfo, IndexSummary } from "./types.ts";

export class Store {
  readonly api = new Api();
  state: State = readState(location.search);
  indexes: IndexSummary[] = [];
  info: IndexInfo | null = null; // of the current index
  private readonly listeners: ((before: State) => void)[] = [];

  constructor() {
    addEventListener("popstate", () => this.become(readState(location.search)));
  }

  onChange(listener: (before: State) => void): void {
    this.listeners.push(listener);
  }

  /** Changes the state and the address. `replace` makes no entry in the history. */
  go(change: Partial<State>, { replace = false } = {}): void {
    const next = { ...this.state, ...change };
    const address = this.link(change);
    if (address !== this.address()) {
      if (replace) history.replaceState(null, "", address);
      else history.pushState({ inside: true }, "", address);
    }
    this.become(next);
  }

  /** The address of the state with a change, for links. */
  link(change: Partial<State>): string {
    const written = writeState(this.plain({ ...this.state, ...change }));
    return written || location.pathname;
  }

  /** A state with the choices that belong to an index and a query left out. */
  fresh(index: string): Partial<State> {
    return { ...START, index, view: this.state.view === "index" ? "index" : "search" };
  }

  private address(): string {
    return location.search || location.pathname;
  }

  private plain(state: State): State {
    return this.indexes.length === 1 && state.index === this.indexes[0]!.name ? { ...state, index: "" } : state;
  }

  private become(next: State): void {
    const before = this.state;
    this.state = { ...next, index: next.index || this.indexes[0]?.name || "" };
    for (const listener of this.listeners) listener(before);
  }
}
