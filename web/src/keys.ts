// The keyboard.

import type { State, View } from "./state.ts";

export interface KeyTargets {
  box: HTMLInputElement;
  main: HTMLElement;
  view: () => View;
  go: (change: Partial<State>) => void;
  mix: () => void;
  help: () => void;
  theme: () => void;
  back: () => boolean;
}

export function listenToKeys(page: KeyTargets): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const handled = isWriting(event.target) ? writing(event, page) : reading(event, page);
    if (handled) event.preventDefault();
  });
}

function isWriting(target: EventTarget | null): target is HTMLInputElement {
  if (target instanceof HTMLInputElement) return target.type !== "range";
  return target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement;
}

/** Keys while a field has the focus. */
function writing(event: KeyboardEvent, page: KeyTargets): boolean {
  if (event.key === "Escape") {
    (event.target as HTMLElement).blur();
    if (event.target === page.box) page.main.focus({ preventScroll: true });
    return true;
  }
  if (event.target !== page.box) return false;
  if (event.key === "ArrowDown") return move(page, 1);
  return false;
}

function reading(event: KeyboardEvent, page: KeyTargets): boolean {
  const slider = event.target instanceof HTMLInputElement; // whose arrows change it
  switch (event.key) {
    case "/":
      page.box.focus();
      page.box.select();
      return true;
    case "ArrowDown":
      return !slider && move(page, 1);
    case "ArrowUp":
      return !slider && move(page, -1);
    case "j":
      return move(page, 1);
    case "k":
      return move(page, -1);
    case "w":
      return why(page);
    case "m":
      if (page.view() === "search") page.mix();
      return true;
    case "f": {
      const filter = document.getElementById("filter");
      filter?.focus();
      return filter !== null;
    }
    case "s":
      page.go({ view: "search", id: "" });
      return true;
    case "c":
      page.go({ view: "compare", id: "" });
      return true;
    case "i":
      page.go({ view: "index", id: "" });
      return true;
    case "t":
      page.theme();
      return true;
    case "?":
      page.help();
      return true;
    case "Escape":
      return page.back();
    default:
      return false;
  }
}

/** Moves the focus among the links that open documents; from the first one up to the box. */
function move(page: KeyTargets, by: number): boolean {
  const links = [...page.main.querySelectorAll<HTMLElement>("a[data-open]")];
  if (!links.length) return false;
  const item = document.activeElement?.closest("li[data-id]");
  const at = links.findIndex((link) => link === document.activeElement || (item && link.closest("li[data-id]") === item));
  const next = at < 0 ? (by > 0 ? 0 : -1) : at + by;
  if (next < 0) {
    page.box.focus();
    return true;
  }
  const link = links[Math.min(next, links.length - 1)]!;
  link.focus({ preventScroll: true });
  (link.closest("li") ?? link).scrollIntoView({ block: "nearest" });
  return true;
}

/** Opens the explanation of a result; the focus stays on its title, so that Enter still opens the document. */
function why(page: KeyTargets): boolean {
  const link = document.activeElement instanceof HTMLElement ? document.activeElement.dataset["open"] : undefined;
  const item = document.activeElement?.closest("li[data-id]") ?? page.main.querySelector("li[data-id]");
  const button = item?.querySelector<HTMLElement>("[data-why]");
  button?.click();
  if (link !== undefined) page.main.querySelector<HTMLElement>(`a[data-open="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
  return button !== null && button !== undefined;
}
