// Frame statistics of a browser: the time between frames, and the long tasks.

import type { Page } from '@playwright/test';

export interface Figures {
  scene: string;
  frames: number;
  median: number;
  p99: number;
  worst: number;
  /** Tasks of more than 50 ms, and their total time. */
  long: number;
  blocked: number;
  nodes: number;
}

interface Trace {
  gaps: number[];
  long: number[];
  stop: () => void;
}

declare global {
  interface Window {
    trace?: Trace;
  }
}

async function begin(page: Page): Promise<void> {
  await page.evaluate(() => {
    const trace: Trace = { gaps: [], long: [], stop: () => undefined };
    let running = true;
    let last = performance.now();
    const frame = (at: number) => {
      trace.gaps.push(at - last);
      last = at;
      if (running) requestAnimationFrame(frame);
    };
    requestAnimationFrame((at) => {
      last = at;
      requestAnimationFrame(frame);
    });
    const watch = new PerformanceObserver((list) => trace.long.push(...list.getEntries().map((entry) => entry.duration)));
    watch.observe({ type: 'longtask' });
    trace.stop = () => {
      running = false;
      trace.long.push(...watch.takeRecords().map((entry) => entry.duration));
      watch.disconnect();
    };
    window.trace = trace;
  });
}

async function end(page: Page, scene: string): Promise<Figures> {
  const { gaps, long, nodes } = await page.evaluate(() => {
    window.trace?.stop();
    return {
      gaps: window.trace?.gaps ?? [],
      long: window.trace?.long ?? [],
      nodes: document.querySelectorAll('*').length,
    };
  });
  const sorted = [...gaps].sort((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return {
    scene,
    frames: gaps.length,
    median: at(0.5),
    p99: at(0.99),
    worst: at(1),
    long: long.length,
    blocked: long.reduce((sum, piece) => sum + piece, 0),
    nodes,
  };
}

/** The frame statistics while `act` runs. */
export async function measure(page: Page, scene: string, act: () => Promise<void>): Promise<Figures> {
  await begin(page);
  await act();
  return end(page, scene);
}

/** Scrolls down by `by` points with every frame, for `frames` frames, and back up. */
export async function scroll(page: Page, by: number, frames: number): Promise<void> {
  await page.evaluate(
    async ({ by, frames }) => {
      for (let n = 0; n < frames * 2; n += 1) {
        window.scrollBy(0, n < frames ? by : -by);
        await new Promise(requestAnimationFrame);
      }
    },
    { by, frames },
  );
}

export function table(rows: Figures[]): string {
  const ms = (value: number) => value.toFixed(1);
  const lines = rows.map(
    (row) =>
      `| ${row.scene} | ${row.frames} | ${ms(row.median)} | ${ms(row.p99)} | ${ms(row.worst)} | ${row.long} | ${ms(row.blocked)} | ${row.nodes} |`,
  );
  return [
    '| scene | frames | median ms | p99 ms | worst ms | work > 50 ms | of it ms | elements |',
    '| --- | --- | --- | --- | --- | --- | --- | --- |',
    ...lines,
  ].join('\n');
}
