// Time to first content with two thousand timers and five hundred sessions: from the request until the first
// card is drawn, and until all lists are fetched. Run it on an idle machine.

import { expect, test } from '../tests/abide';

const TIMERS = 2_000;
const RUNNING = 100;
const ENDED = 400;
const TIMES = 9;

interface Marks {
  first: number;
  all: number;
}

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

test('first content', async ({ abide, inside: page }) => {
  const batch = (from: number) =>
    Array.from({ length: 1_000 }, (_, n) => ({ total_duration: 5_000 + from + n, reason: `wait ${from + n} for the build` }));
  for (let from = 0; from < TIMERS; from += 1_000) await abide.timers(...batch(from));
  for (let n = 0; n < ENDED; n += 1) await abide.ask('POST', '/v1/tools/shell', { command: `echo run ${n}` });
  for (let n = 0; n < RUNNING; n += 1) await abide.session(`echo session ${n}; exec sleep 100000`);
  await page.addInitScript(() => {
    const marks: Partial<Marks> = {};
    Object.assign(window, { marks });
    const look = () => {
      const at = performance.now();
      if (document.querySelector('main h1') && document.querySelector('.card')) marks.first ??= at;
      if (document.body.textContent.includes('Live, abide')) marks.all ??= at;
      if (marks.all === undefined) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  const marks: Marks[] = [];
  for (let n = 0; n < TIMES; n += 1) {
    await page.goto(`http://${abide.address()}/`);
    await expect(page.getByText('1,994 more timers')).toBeVisible();
    await expect(page.getByText(/^Live, abide/)).toBeVisible();
    marks.push(await page.evaluate(() => (window as unknown as { marks: Marks }).marks));
  }
  for (const name of ['first', 'all'] as const) {
    const values = marks.map((mark) => mark[name]);
    const most = Math.max(...values);
    console.log(`${name} content: median ${median(values).toFixed(0)} ms, slowest ${most.toFixed(0)} ms`);
  }
});
