// What a command without a terminal left is shown from its first line on, as far as the screen has room.

import { appendFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { type Abide, expect, test } from './abide';

/** Lines that fit on the screen; of longer output the last ones are shown. */
const ROWS = 40;

/** The rows that can be seen, without the empty ones at the end. */
async function visibleRows(page: Page): Promise<string[]> {
  const rows = await page.locator('.xterm-rows > div').allTextContents();
  const texts = rows.map((row) => row.replaceAll('\u00a0', ' ').trimEnd());
  while (texts.at(-1) === '') texts.pop();
  return texts;
}

function numbers(from: number, to: number): string[] {
  return Array.from({ length: to - from + 1 }, (_, n) => String(from + n));
}

async function openNewest(abide: Abide, page: Page): Promise<void> {
  const { sessions } = await abide.ask<{ sessions: { session_id: string }[] }>('GET', '/v1/sessions?include_ended=true&limit=1');
  await page.goto(`http://${abide.address()}/sessions/${sessions[0]?.session_id ?? ''}`);
}

for (const lines of [1, 4, 10, 40, 60]) {
  for (const [name, command] of [
    ['with', `seq ${lines}`],
    ['without', `seq ${lines} | head -c -1`],
  ] as const) {
    test(`${lines} lines of finished output ${name} a final newline are shown`, async ({ abide, inside: page }) => {
      await abide.cli('run', '--', command);
      await openNewest(abide, page);
      await expect(page.getByTestId('terminal-state')).toHaveText(/^Ended/);
      await expect.poll(() => visibleRows(page)).toEqual(numbers(Math.max(1, lines - ROWS + 1), lines));
    });
  }
}

test('output that is watched until its end keeps its first line', async ({ abide, inside: page }) => {
  const fifo = join(abide.dir, 'go');
  execFileSync('mkfifo', [fifo]);
  abide.start('run', '--', 'seq 10; cat go');
  await page.getByRole('article', { name: /^seq 10/ }).getByRole('link', { name: 'Open' }).click();
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await expect.poll(() => visibleRows(page)).toEqual(numbers(1, 10));
  appendFileSync(fifo, '11\n');
  await expect(page.getByTestId('terminal-state')).toHaveText(/^Ended/);
  await expect.poll(() => visibleRows(page)).toEqual(numbers(1, 11));
});

test('lines below a cursor that was moved up stay visible', async ({ abide, inside: page }) => {
  await abide.cli('run', '--', String.raw`seq 10; printf '\033[9A'`);
  await openNewest(abide, page);
  await expect(page.getByTestId('terminal-state')).toHaveText(/^Ended/);
  await expect.poll(() => visibleRows(page)).toEqual(numbers(1, 10));
});

test('finished output keeps its first line when the window becomes narrow', async ({ abide, inside: page }) => {
  await abide.cli('run', '--', `echo first; echo ${'word '.repeat(40)}; echo last`);
  await openNewest(abide, page);
  await expect.poll(async () => (await visibleRows(page)).at(-1)).toBe('last');
  const wide = (await visibleRows(page)).length;
  await page.setViewportSize({ width: 390, height: 844 });
  const ends = async () => {
    const rows = await visibleRows(page);
    return [rows.length > wide, rows[0], rows.at(-1)];
  };
  await expect.poll(ends).toEqual([true, 'first', 'last']);
});
