// Filters from chosen values of facets, and the fields that facets are made of.

import type { Choice } from "./state.ts";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$/;
const RESERVED = new Set(["and", "or", "not", "in", "like", "is", "null", "true", "false", "id", "title", "text"]);

/** A field as a filter writes it; null if its name cannot be written. */
export function fieldName(field: string): string | null {
  if (NAME.test(field) && !field.split(".").some((part) => RESERVED.has(part.toLowerCase()))) return field;
  return field.includes("`") ? null : `\`${field}\``;
}

/** The condition of one value. */
export function condition(choice: Choice): string | null {
  const name = fieldName(choice.field);
  if (name === null) return null;
  if (choice.value === null) return `${name} is null`;
  if (choice.list) return `${JSON.stringify(choice.value)} in ${name}`;
  return `${name} = ${JSON.stringify(choice.value)}`;
}

/** The filter of a search: values of one field are alternatives, and everything else must hold. */
export function filterOf(written: string, choices: readonly Choice[]): string | undefined {
  const byField = new Map<string, string[]>();
  for (const choice of choices) {
    const text = condition(choice);
    if (text !== null) byField.set(choice.field, [...(byField.get(choice.field) ?? []), text]);
  }
  const parts = [...byField.values()].map((texts) => (texts.length > 1 ? `(${texts.join(" or ")})` : texts[0]!));
  if (written.trim()) parts.unshift(parts.length ? `(${written.trim()})` : written.trim());
  return parts.length ? parts.join(" and ") : undefined;
}

export function sameChoice(one: Choice, other: Choice): boolean {
  return one.field === other.field && one.value === other.value;
}

/** The choices with one more, or with one less if it was there. */
export function toggled(choices: readonly Choice[], choice: Choice): Choice[] {
  const others = choices.filter((one) => !sameChoice(one, choice));
  return others.length < choices.length ? others : [...others, choice];
}

/** The fields of some documents that may be facets: short values, and lists of short values. Fields in which nearly every
 * document has another value, such as addresses, come last. */
export function facetFields(metadata: readonly Record<string, unknown>[]): { field: string; list: boolean }[] {
  const fields = new Map<string, { list: boolean; count: number; values: Set<unknown> }>();
  const see = (field: string, value: unknown, list: boolean): void => {
    if (!["string", "number", "boolean"].includes(typeof value)) return;
    if (typeof value === "string" && value.length > 60) return;
    const seen = fields.get(field) ?? { list, count: 0, values: new Set() };
    seen.count++;
    seen.values.add(value);
    fields.set(field, seen);
  };
  for (const document of metadata) {
    for (const [field, value] of Object.entries(document)) {
      if (Array.isArray(value)) value.slice(0, 20).forEach((element) => see(field, element, true));
      else if (value !== null && typeof value === "object") {
        Object.entries(value).forEach(([inner, one]) => see(`${field}.${inner}`, one, false));
      } else see(field, value, false);
    }
  }
  const repeated = (field: string): boolean => {
    const { count, values } = fields.get(field)!;
    return values.size < count * 0.9 || count < 4;
  };
  return [...fields.keys()]
    .filter((field) => fieldName(field) !== null)
    .sort((a, b) => Number(repeated(b)) - Number(repeated(a)))
    .map((field) => ({ field, list: fields.get(field)!.list }));
}

/** A condition that some of these documents pass, as an example of a filter; null if they have no fields. */
export function exampleFilter(fields: readonly { field: string; list: boolean }[], metadata: readonly Record<string, unknown>[]): string | null {
  for (const { field, list } of fields) {
    for (const document of metadata) {
      const value = list ? (document[field] as unknown[] | undefined)?.[0] : document[field];
      const isShort = typeof value === "number" || typeof value === "boolean" || (typeof value === "string" && value.length <= 20);
      if (isShort) return typeof value === "number" && !list ? `${fieldName(field)} >= ${value}` : condition({ field, value, list });
    }
  }
  return null;
}
