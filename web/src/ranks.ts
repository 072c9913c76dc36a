// Rankings side by side: who moved where.

export interface Move {
  id: string;
  from: number | null; // rank in the first list, from 1
  to: number | null; // rank in the second list
}

/** One move for each document of either list, in the order of the first list and then of the second. */
export function moves(first: readonly string[], second: readonly string[]): Move[] {
  const rankIn = (list: readonly string[], id: string): number | null => list.indexOf(id) + 1 || null;
  const rest = second.filter((id) => !first.includes(id));
  return [...first, ...rest].map((id) => ({ id, from: rankIn(first, id), to: rankIn(second, id) }));
}

/** What a comparison of the best k of both lists says in a line. */
export function summary(all: readonly Move[], k: number): string {
  const within = (rank: number | null): boolean => rank !== null && rank <= k;
  const shared = all.filter((move) => within(move.from) && within(move.to));
  const size = Math.max(all.filter((move) => within(move.from)).length, all.filter((move) => within(move.to)).length);
  if (!size) return "Both lists are empty.";
  const moved = shared.filter((move) => move.from !== move.to);
  const start = `${shared.length} of ${size} documents are in both lists`;
  if (!shared.length) return "No document is in both lists.";
  if (!moved.length) return `${start}, all at the same rank.`;
  const farthest = Math.max(...moved.map((move) => Math.abs(move.from! - move.to!)));
  return `${start}; ${moved.length} moved, by up to ${farthest} ${farthest === 1 ? "rank" : "ranks"}.`;
}

/** How a document moved against an earlier ranking: positive is up; "new" was not in it. */
export function shift(before: readonly string[] | null, id: string, rank: number): number | "new" {
  if (!before) return 0;
  const earlier = before.indexOf(id) + 1;
  return earlier ? earlier - rank : "new";
}
