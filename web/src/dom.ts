// Elements without HTML: every text becomes a text node, so that no document can add markup to the page.

export type Child = Node | string | number | null | undefined | false;
type Handler = (event: never) => void;
export interface Props {
  class?: string;
  on?: Record<string, Handler>;
  [attribute: string]: string | number | boolean | null | undefined | Record<string, Handler>;
}

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. An attribute that is false, null or undefined is left out; true is an empty attribute. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  dress(element, props);
  append(element, children);
  return element;
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag) as SVGElementTagNameMap[K];
  dress(element, props);
  append(element, children);
  return element;
}

/** Replaces the children of an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** A number for the style sheet, such as the width of a bar. Inline style attributes are forbidden; this is not one. */
export function vary<E extends HTMLElement | SVGElement>(element: E, name: string, value: number | string): E {
  element.style.setProperty(name, String(value));
  return element;
}

/** The element of an id in index.html. */
export function byId<E extends HTMLElement>(id: string): E {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no element #${id}`);
  return element as E;
}

function dress(element: Element, props: Props): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value as Record<string, Handler>)) {
        element.addEventListener(event, handler as EventListener);
      }
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}
