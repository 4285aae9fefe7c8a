// Ten thousand timers and two thousand sessions on the page, with constant changes. Prints the time between
// the browser's frames. Run it on an idle machine.

import type { Page } from '@playwright/test';
import { type Abide, expect, test } from '../tests/abide';
import { type Figures, measure, scroll, table } from './frames';

const TIMERS = 10_000;
const RUNNING = 1_000;
const ENDED = 1_000;
/** Sessions that write twice a second. */
const TALKING = 40;
/** Timers that are paused or resumed each second. */
const CHANGES = 60;
/** Duration of a measurement without input, in milliseconds. */
const WATCH = 5_000;

async function many(all: number, atOnce: number, act: (n: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < all) await act(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

async function furnish(abide: Abide): Promise<string[]> {
  const timers: string[] = [];
  for (let from = 0; from < TIMERS; from += 1_000) {
    const batch = Array.from({ length: 1_000 }, (_, n) => ({
      total_duration: 5_000 + ((from + n) * 7_919) % 90_000,
      reason: `wait ${from + n} for ${['the build', 'a deploy', 'the tests', 'a review'][n % 4] ?? ''}`,
    }));
    timers.push(...(await abide.timers(...batch)));
  }
  await many(ENDED, 8, (n) => abide.ask('POST', '/v1/tools/shell', { command: `echo run ${n}; exit ${n % 5}` }));
  await many(RUNNING, 8, (n) =>
    abide.session(n < TALKING ? 'while sleep 0.5; do date; done' : `echo session ${n}; exec sleep 100000`),
  );
  return timers;
}

/** Pauses and resumes timers until it is stopped. */
function stir(abide: Abide, timers: string[]): () => Promise<void> {
  let on = true;
  const work = async () => {
    for (let n = 0; on; n += 1) {
      const id = timers[(n * 131) % 600] ?? '';
      const paused = Math.floor(n / 600) % 2 === 1;
      await abide.ask('POST', `/v1/timers/${id}/${paused ? 'resume' : 'pause'}`, paused ? {} : { pause_duration: 9_000 }).catch(() => undefined);
      await new Promise((done) => setTimeout(done, 1_000 / CHANGES));
    }
  };
  const working = work();
  return async () => {
    on = false;
    await working;
  };
}

async function clear(abide: Abide): Promise<void> {
  const { sessions } = await abide.ask<{ sessions: { session_id: string }[] }>('GET', '/v1/sessions?limit=1000');
  await many(sessions.length, 8, (n) => abide.ask('POST', `/v1/sessions/${sessions[n]?.session_id ?? ''}/kill`));
}

async function type(page: Page, label: string, text: string): Promise<void> {
  await page.getByLabel(label, { exact: true }).pressSequentially(text, { delay: 60 });
  await page.getByLabel(label, { exact: true }).fill('');
}

test('frames', async ({ abide, inside: page }) => {
  const rows: Figures[] = [];
  const scene = async (name: string, act: () => Promise<void>) => {
    rows.push(await measure(page, name, act));
  };
  const watch = () => page.waitForTimeout(WATCH);
  const timers = await furnish(abide);

  await page.reload();
  await scene('the page comes up', async () => {
    await expect(page.getByText(/and 9,994 more timers/)).toBeVisible();
  });
  const calm = stir(abide, timers);
  await page.waitForTimeout(2_000);
  await scene('Now, events come in', watch);
  await scene('Now, scrolled', () => scroll(page, 60, 60));

  await scene('to Timers', () => page.getByRole('link', { name: /^Timers/ }).click());
  await scene('Timers, events come in', watch);
  await scene('Timers, scrolled slowly', () => scroll(page, 20, 120));
  await scene('Timers, scrolled fast', () => scroll(page, 900, 120));
  await scene('Timers, a word is typed', () => type(page, 'Find timers', 'for a deploy'));
  await scene('Timers, sorted', async () => {
    for (const order of ['By reason', 'By state', 'Newest first', 'Next first']) {
      await page.getByRole('combobox', { name: 'Order' }).selectOption(order);
      await page.waitForTimeout(300);
    }
  });

  await scene('to Sessions', () => page.getByRole('link', { name: /^Sessions/ }).click());
  await scene('Sessions, events come in', watch);
  await scene('Sessions, scrolled slowly', () => scroll(page, 20, 120));
  await scene('Sessions, scrolled fast', () => scroll(page, 900, 100));
  await scene('Sessions, a word is typed', () => type(page, 'Find', 'session 99'));
  await calm();

  await page.getByRole('link', { name: /^Timers/ }).click();
  await scene('Timers, 1,000 are made each second', async () => {
    for (let n = 0; n < 5; n += 1) {
      const batch = Array.from({ length: 100 }, (_, k) => ({ total_duration: 500 + k, reason: `more ${n}` }));
      for (let part = 0; part < 10; part += 1) {
        await abide.timers(...batch);
        await page.waitForTimeout(80);
      }
    }
  });
  await clear(abide);
  console.log(`\n${table(rows)}\n`);
});

