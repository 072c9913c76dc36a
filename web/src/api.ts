// Calls of the HTTP API. Answers that nobody waits for any more are aborted.

import type { Answer, Facets, FoundDocument, IndexInfo, IndexSummary, Value } from "./types.ts";

const KEY = "plait-key";

export class ApiError extends Error {
  constructor(
    readonly status: number, // 0: no answer
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export type Body = Record<string, unknown>;

export class Api {
  /** The key of this tab. It is not kept when the tab is closed. */
  get key(): string {
    try {
      return sessionStorage.getItem(KEY) ?? "";
    } catch {
      return "";
    }
  }

  set key(value: string) {
    try {
      if (value) sessionStorage.setItem(KEY, value);
      else sessionStorage.removeItem(KEY);
    } catch {
      // A browser without storage asks for the key at each visit.
    }
  }

  async indexes(): Promise<IndexSummary[]> {
    return (await this.call<{ indexes: IndexSummary[] }>("GET", "v1/indexes")).indexes;
  }

  info(index: string, signal?: AbortSignal): Promise<IndexInfo> {
    return this.call("GET", of(index), undefined, signal);
  }

  search(index: string, body: Body, signal?: AbortSignal): Promise<Answer> {
    return this.call("POST", of(index, "search"), body, signal);
  }

  similar(index: string, body: Body, signal?: AbortSignal): Promise<Answer> {
    return this.call("POST", of(index, "similar"), body, signal);
  }

  facets(index: string, body: Body, signal?: AbortSignal): Promise<Facets & { value?: Value }> {
    return this.call("POST", of(index, "facets"), body, signal);
  }

  async count(index: string, filter: string | undefined, signal?: AbortSignal): Promise<number> {
    return (await this.call<{ count: number }>("POST", of(index, "count"), filter ? { filter } : {}, signal)).count;
  }

  async documents(index: string, filter: string | undefined, signal?: AbortSignal): Promise<FoundDocument[]> {
    const given = new URLSearchParams({ limit: "12" });
    if (filter) given.set("filter", filter);
    const path = `${of(index, "documents")}?${given}`;
    return (await this.call<{ documents: FoundDocument[] }>("GET", path, undefined, signal)).documents;
  }

  async document(index: string, id: string, signal?: AbortSignal): Promise<FoundDocument> {
    // A browser takes "." and ".." for steps of a path, however they are written.
    if (id === "." || id === "..") {
      const { documents } = await this.call<{ documents: (FoundDocument | null)[] }>("POST", of(index, "documents/get"), { ids: [id] }, signal);
      if (!documents[0]) throw new ApiError(404, "unknown_document", `there is no document '${id}' in this index`);
      return documents[0];
    }
    return this.call("GET", `${of(index, "documents")}/${encodeURIComponent(id)}?passages=true`, undefined, signal);
  }

  private async call<T>(method: string, path: string, body?: Body, signal?: AbortSignal): Promise<T> {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (body) headers["Content-Type"] = "application/json";
    if (this.key) headers["Authorization"] = `Bearer ${this.key}`;
    let response: Response;
    try {
      response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal: signal ?? null });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "no_answer", "The server does not answer. Is it still running?");
    }
    const answer: unknown = await response.json().catch(() => null);
    if (signal?.aborted) throw new DOMException("superseded", "AbortError");
    if (!response.ok) throw toError(response.status, answer);
    return answer as T;
  }
}

/** Runs one call at a time: a new one aborts the one before, whose answer is dropped. */
export class Latest {
  private current: AbortController | null = null;

  /** The answer, or null if a newer call took its place meanwhile. */
  async run<T>(call: (signal: AbortSignal) => Promise<T>): Promise<T | null> {
    this.cancel();
    const mine = (this.current = new AbortController());
    try {
      const answer = await call(mine.signal);
      return this.current === mine ? answer : null;
    } catch (error) {
      if (this.current !== mine) return null;
      throw error;
    }
  }

  cancel(): void {
    this.current?.abort();
    this.current = null;
  }
}

function of(index: string, call = ""): string {
  return `v1/indexes/${encodeURIComponent(index)}${call && `/${call}`}`;
}

/** The error of an answer, also if something between the page and the server gave it. */
export function toError(status: number, answer: unknown): ApiError {
  const error = (answer as { error?: { code?: unknown; message?: unknown } } | null)?.error;
  if (error && typeof error.message === "string") return new ApiError(status, String(error.code ?? ""), error.message);
  return new ApiError(status, "unknown", `The server answered with status ${status}.`);
}
