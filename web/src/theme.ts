// Light or dark: as the system says, or as the reader chose.

import { fill, s } from "./dom.ts";

const KEPT = "plait-theme";

export function startTheme(button: HTMLElement): () => void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = (): string | null => {
    try {
      return localStorage.getItem(KEPT);
    } catch {
      return null;
    }
  };
  const show = (): void => {
    const chosen = kept();
    const isDark = chosen ? chosen === "dark" : dark.matches;
    document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
    fill(button, icon(isDark));
  };
  const toggle = (): void => {
    const next = document.documentElement.dataset["theme"] === "dark" ? "light" : "dark";
    try {
      // A choice that equals that of the system follows the system again.
      if ((next === "dark") === dark.matches) localStorage.removeItem(KEPT);
      else localStorage.setItem(KEPT, next);
    } catch {
      document.documentElement.dataset["theme"] = next;
      return;
    }
    show();
  };
  dark.addEventListener("change", show);
  button.addEventListener("click", toggle);
  show();
  return toggle;
}

function icon(isDark: boolean): SVGSVGElement {
  const sun = "M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4";
  const svg = s("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true" });
  if (isDark) svg.append(s("circle", { cx: 12, cy: 12, r: 4 }), s("path", { d: sun }));
  else svg.append(s("path", { d: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z" }));
  return svg;
}
