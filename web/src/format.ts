// Numbers for readers.

export function count(value: number): string {
  return value.toLocaleString("en");
}

/** "1 document", "2 documents". */
export function counted(value: number, one: string): string {
  return `${count(value)} ${one}${value === 1 ? "" : "s"}`;
}

export function score(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(1) : value.toFixed(3);
}

export function percent(share: number, digits = 0): string {
  if (share > 0 && share < 0.5 * 10 ** (-2 - digits)) return `< ${(10 ** -digits).toFixed(digits)} %`;
  return `${(100 * share).toFixed(digits)} %`;
}

export function milliseconds(seconds: number): string {
  const value = 1000 * seconds;
  if (value >= 10_000) return `${seconds.toFixed(1)} s`;
  return `${value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function bytes(value: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let shown = value;
  while (shown >= 1000 && unit < units.length - 1) {
    shown /= 1000;
    unit++;
  }
  return `${unit && shown < 100 ? shown.toFixed(1) : shown.toFixed(0)} ${units[unit]}`;
}

/** A value of metadata in one line. */
export function shown(value: unknown): string {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.map(shown).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
