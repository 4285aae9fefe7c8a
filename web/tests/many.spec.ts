// With any amount of data, only visible rows are drawn, and only changed rows are rendered again.

import type { Locator, Page } from '@playwright/test';
import { expect, test } from './abide';

/** Records which rows of a list change from now on, except for countdowns and bars. */
async function watchRows(list: Locator): Promise<() => Promise<string[]>> {
  await list.evaluate((element) => {
    const changed = new Set<string>();
    const observer = new MutationObserver((changes) => {
      for (const { target } of changes) {
        const row = target.parentElement?.closest('[data-row]') ?? (target as Element).closest('[data-row]');
        changed.add(row?.getAttribute('data-row') ?? 'the list itself');
      }
    });
    const attributeFilter = ['class', 'title', 'tabindex', 'aria-posinset', 'aria-setsize'];
    observer.observe(element, { subtree: true, childList: true, attributeFilter });
    Object.assign(element, { changedRows: changed });
  });
  return () => list.evaluate((element) => [...(element as unknown as { changedRows: Set<string> }).changedRows]);
}

/** Waits for a frame and the work that follows it. */
async function settle(page: Page): Promise<void> {
  await page.evaluate(async () => {
    for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame);
  });
}

test('ten thousand timers: a change draws one row, and scrolling leaves rows alone', async ({ abide, inside: page }) => {
  const ids: string[] = [];
  for (let from = 0; from < 10_000; from += 1_000) {
    const batch = Array.from({ length: 1_000 }, (_, n) => ({ total_duration: 5_000 + (from + n) * 60, reason: `wait ${from + n}` }));
    ids.push(...(await abide.timers(...batch)));
  }
  await expect(page.getByRole('link', { name: /9,994 more timers/ })).toBeVisible();
  expect(await page.locator('.timer-card').count()).toBe(6);
  await page.getByRole('link', { name: /^Timers/ }).click();
  await expect(page.getByText('10,000 timers')).toBeVisible();
  const list = page.getByRole('list', { name: 'Active timers' });

  const changed = await watchRows(list);
  for (const id of ids.slice(5_000, 5_020)) await abide.ask('POST', `/v1/timers/${id}/pause`, { pause_duration: 9_000 });
  const seen = ids[2] ?? '';
  await abide.ask('POST', `/v1/timers/${seen}/pause`, { pause_duration: 9_000 });
  await expect(list.locator(`[data-row="${seen}"]`)).toContainText('Paused');
  expect(await changed()).toEqual([seen]);

  // A little scrolling draws nothing; more scrolling draws only the rows that become visible.
  const row = list.locator(`[data-row="${ids[14] ?? ''}"]`);
  await row.evaluate((element) => Object.assign(element, { untouched: true }));
  const untouched = await watchRows(row);
  await page.evaluate(() => window.scrollBy(0, 400));
  await settle(page);
  await expect(list.locator(`[data-row="${ids[22] ?? ''}"]`)).toBeVisible();
  expect(await row.evaluate((element) => 'untouched' in element)).toBe(true);
  expect(await untouched()).toEqual([]);

  await list.locator('[data-main]').first().focus();
  await page.keyboard.press('End');
  await expect(list.locator('[aria-posinset="10000"] [data-main]')).toBeFocused();
  expect(await list.getByRole('listitem').count()).toBeLessThan(60);
});

test('hundreds of sessions: few are drawn, and older ones are loaded while scrolling', async ({ abide, inside: page }) => {
  const run = (n: number) => abide.ask('POST', '/v1/tools/shell', { command: `echo run ${n}` });
  await abide.timers({ total_duration: 600, reason: 'tea', until: { command: 'false', every: 500 } });
  const all = () => abide.ask<{ sessions: object[] }>('GET', '/v1/sessions?include_ended=true');
  await expect.poll(async () => (await all()).sessions.length).toBe(1);
  await run(0);
  for (let from = 1; from < 260; from += 37) await Promise.all(Array.from({ length: 37 }, (_, n) => run(from + n)));
  await page.reload();
  await page.getByRole('link', { name: /^Sessions/ }).click();
  await expect(page.getByText('200+ sessions')).toBeVisible();
  const list = page.getByRole('list', { name: 'Sessions' });
  expect(await list.getByRole('listitem').count()).toBeLessThan(60);
  await list.locator('[data-main]').first().focus();
  await page.keyboard.press('End');
  await expect(page.getByText('260 sessions')).toBeVisible();
  await page.keyboard.press('End');
  await expect(list.locator('[aria-posinset="260"]')).toContainText('echo run 0');
  expect(await list.getByRole('listitem').count()).toBeLessThan(60);
  // A filter that matches none of the sessions which are loaded first.
  await page.goto(`http://${abide.address()}/sessions?state=checks`);
  await expect(page.getByText('1 session', { exact: true })).toBeVisible();
});

test('the menu of a row is created when opened, and returns the focus', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 600, reason: 'tea' });
  await page.getByRole('link', { name: /^Timers/ }).click();
  const button = page.getByRole('button', { name: 'Actions for tea' });
  await button.focus();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('menuitem', { name: '1 minute', exact: true })).toBeVisible();
  await expect(button).toHaveAttribute('aria-expanded', 'true');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('menu')).toHaveCount(0);
  await expect(button).toBeFocused();
});
