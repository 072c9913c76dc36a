// The stages of a search as bars on one line of time.

import type { Stage, Timings } from "./types.ts";

export interface Bar {
  name: string;
  start: number; // seconds
  seconds: number;
  inner: boolean;
  counts: string;
}

const WITHIN = ": "; // between the name of a stage and the name of an inner stage

/** Outer stages one after another, each with its inner stages below it. Stages of one name are added up. */
export function timeline(timings: Timings): Bar[] {
  const stages = summed(timings.stages);
  const outer = stages.filter((stage) => !isInner(stage, stages));
  const bars: Bar[] = [];
  let start = 0;
  for (const stage of outer) {
    bars.push(bar(stage, stage.stage, start, false));
    let within = start;
    for (const inner of stages) {
      if (!inner.stage.startsWith(stage.stage + WITHIN)) continue;
      bars.push(bar(inner, inner.stage.slice(stage.stage.length + WITHIN.length), within, true));
      within += inner.seconds;
    }
    start += stage.seconds;
  }
  return bars;
}

function isInner(stage: Stage, stages: readonly Stage[]): boolean {
  const outer = stage.stage.split(WITHIN)[0];
  return outer !== stage.stage && stages.some((other) => other.stage === outer);
}

function summed(stages: readonly Stage[]): Stage[] {
  const sums = new Map<string, Stage>();
  for (const stage of stages) {
    const sum = sums.get(stage.stage);
    if (!sum) {
      sums.set(stage.stage, { ...stage });
      continue;
    }
    for (const [name, value] of Object.entries(stage)) {
      if (typeof value === "number") sum[name] = Number(sum[name] ?? 0) + value;
    }
  }
  return [...sums.values()];
}

function bar(stage: Stage, name: string, start: number, inner: boolean): Bar {
  const counts = Object.entries(stage)
    .filter(([key]) => key !== "stage" && key !== "seconds")
    .map(([key, value]) => `${typeof value === "number" ? value.toLocaleString("en") : value} ${key}`);
  return { name, start, seconds: stage.seconds, inner, counts: counts.join(", ") };
}
