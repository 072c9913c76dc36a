// Positions in texts. The server counts code points; JavaScript counts UTF-16 units.

/** Turns positions in code points into positions in UTF-16 units. */
export class CodePoints {
  private readonly starts: number[] | null;

  constructor(readonly text: string) {
    this.starts = /[\ud800-\udfff]/.test(text) ? [] : null;
    if (this.starts) {
      for (let unit = 0; unit < text.length; unit += (text.codePointAt(unit) ?? 0) > 0xffff ? 2 : 1) {
        this.starts.push(unit);
      }
    }
  }

  /** The UTF-16 position of a code point; positions outside the text are moved to its ends. */
  unit(point: number): number {
    if (point <= 0) return 0;
    if (!this.starts) return Math.min(point, this.text.length);
    return this.starts[point] ?? this.text.length;
  }

  slice(start: number, end: number): string {
    return this.text.slice(this.unit(start), this.unit(end));
  }
}

export interface Word {
  start: number; // UTF-16 units
  end: number;
  text: string;
}

const WORD = /[\p{L}\p{N}\p{M}_]+(?:['’][\p{L}\p{N}\p{M}_]+)*|[^\s]/gu;

/** The words of a text; a mark between spaces or words is a word by itself. */
export function wordsOf(text: string): Word[] {
  return [...text.matchAll(WORD)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
    text: match[0],
  }));
}

/** The number of the word that contains a position, or -1. Words are in order and do not overlap. */
export function wordAt(words: readonly Word[], position: number): number {
  let low = 0;
  let high = words.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const word = words[middle]!;
    if (position < word.start) high = middle - 1;
    else if (position >= word.end) low = middle + 1;
    else return middle;
  }
  return -1;
}

/** The part of a text, of about `size` characters, whose marks have the largest sum of squared strengths: one close
 * match counts more than several weak ones. It begins and ends at
 * words. A text that is only a little longer than `size` is shown whole. */
export function bestPart(
  text: string,
  marks: readonly { start: number; end: number; strength: number }[],
  size: number,
): { start: number; end: number } {
  if (text.length <= size * 1.25) return { start: 0, end: text.length };
  const sorted = [...marks].sort((a, b) => a.start - b.start);
  let best = { start: 0, sum: -1 };
  for (const first of sorted) {
    const inside = sorted.filter((mark) => mark.start >= first.start && mark.end <= first.start + size * 0.8);
    const sum = inside.reduce((total, mark) => total + mark.strength ** 2, 0);
    if (sum > best.sum + 1e-9) best = { start: first.start, sum };
  }
  const wanted = best.start < size * 0.5 ? 0 : best.start - Math.round(size * 0.15);
  let start = Math.max(0, Math.min(wanted, text.length - size));
  let end = Math.min(text.length, start + size);
  while (start > 0 && !/\s/.test(text[start - 1]!)) start--;
  while (end < text.length && !/\s/.test(text[end]!)) end++;
  return { start, end };
}
