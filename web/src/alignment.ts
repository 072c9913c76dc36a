// Late interaction for readers: matches of tokens become links between words of the query and words of the document.

import { CodePoints, wordAt, wordsOf, type Word } from "./text.ts";
import type { Explanation, Hit } from "./types.ts";

export interface Link {
  query: number; // a word of the query
  word: number; // a word of the document
  similarity: number;
}

export interface DocumentWord extends Word {
  field: "text" | "title"; // positions are within the title, or within the passage
  strength: number; // the highest similarity of its links, scaled to 0 to 1
}

export interface Alignment {
  queryWords: Word[];
  words: DocumentWord[]; // only those that a word of the query chose
  links: Link[]; // at most one for each pair
  others: number; // matches of tokens without characters, such as [CLS]
}

/** The words that the query chose. A word of several tokens counts with its best one. `floor` is the similarity of
 * unrelated texts, which becomes a strength of 0. */
export function align(explanation: Explanation, title: string, passage: string, floor = 0): Alignment {
  const query = new CodePoints(explanation.query);
  const fields = { text: new CodePoints(passage), title: new CodePoints(title) };
  const queryWords = wordsOf(explanation.query);
  const fieldWords = { text: wordsOf(passage), title: wordsOf(title) };
  const words = new Map<string, number>();
  const result: Alignment = { queryWords, words: [], links: [], others: 0 };
  const links = new Map<string, Link>();
  for (const match of explanation.multi?.matches ?? []) {
    const field = match.field === "text" || match.field === "title" ? match.field : null;
    const from = match.query_span ? wordAt(queryWords, query.unit(match.query_span[0])) : -1;
    if (from < 0 || !field || !match.span || match.imputed) {
      result.others++;
      continue;
    }
    const offset = field === "text" ? explanation.span[0] : 0;
    const position = fields[field].unit(match.span[0] - offset);
    const number = match.span[0] < offset ? -1 : wordAt(fieldWords[field], position);
    if (number < 0) {
      result.others++;
      continue;
    }
    const word = words.get(`${field} ${number}`) ?? result.words.length;
    if (word === result.words.length) {
      words.set(`${field} ${number}`, word);
      result.words.push({ ...fieldWords[field][number]!, field, strength: 0 });
    }
    const known = links.get(`${from} ${word}`);
    if (known) known.similarity = Math.max(known.similarity, match.similarity);
    else links.set(`${from} ${word}`, { query: from, word, similarity: match.similarity });
    result.words[word]!.strength = Math.max(result.words[word]!.strength, scaled(match.similarity, floor));
  }
  result.links = [...links.values()];
  return result;
}

export function alignHit(hit: Hit, floor = 0): Alignment | null {
  if (!hit.explanation?.multi) return null;
  return align(hit.explanation, hit.title, hit.passage, floor);
}

function scaled(similarity: number, floor: number): number {
  return Math.max(0, Math.min(1, (similarity - floor) / Math.max(1 - floor, 1e-6)));
}

export interface Piece {
  text: string;
  word: number | null; // of the alignment
}

/** A range of a text cut into pieces, so that each chosen word is a piece. */
export function pieces(text: string, words: readonly DocumentWord[], field: string, start = 0, end = text.length): Piece[] {
  const inside = words
    .map((word, number) => ({ word, number }))
    .filter(({ word }) => word.field === field && word.start >= start && word.end <= end)
    .sort((a, b) => a.word.start - b.word.start);
  const result: Piece[] = [];
  let position = start;
  for (const { word, number } of inside) {
    if (word.start > position) result.push({ text: text.slice(position, word.start), word: null });
    result.push({ text: text.slice(word.start, word.end), word: number });
    position = word.end;
  }
  if (position < end) result.push({ text: text.slice(position, end), word: null });
  return result;
}
