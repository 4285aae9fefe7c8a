// The log of a session without a terminal.

import { execFileSync } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { type Abide, expect, openUnlisted, OWN_ADDRESS, test } from './abide';

async function newest(abide: Abide): Promise<string> {
  const { sessions } = await abide.ask<{ sessions: { session_id: string }[] }>('GET', '/v1/sessions?include_ended=true&limit=1');
  return sessions[0]?.session_id ?? '';
}

/** Runs a command and opens the page of its session. */
async function open(abide: Abide, page: Page, command: string): Promise<string> {
  await abide.ask('POST', '/v1/tools/shell', { command });
  const id = await newest(abide);
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.getByTestId('log-state')).toHaveText(/^Ended/);
  return id;
}

const box = (page: Page) => page.getByRole('group', { name: 'Lines' });
const line = (page: Page, number: number) => page.locator(`[data-line="${number}"]`);
const text = (page: Page, number: number) => line(page, number).locator('.log-text');

for (const [name, command] of [
  ['with', 'seq 10'],
  ['without', 'seq 10 | head -c -1'],
] as const) {
  test(`ten lines ${name} a final newline are shown with their numbers`, async ({ abide, inside: page }) => {
    await open(abide, page, command);
    await expect(page.getByText('10 lines', { exact: true })).toBeVisible();
    await expect(page.locator('.log-text')).toHaveText(Array.from({ length: 10 }, (_, n) => String(n + 1)));
    await expect(page.locator('.log-number').first()).toHaveText('1');
    await expect(text(page, 10)).toBeInViewport();
  });
}

test('a session without output says so', async ({ abide, inside: page }) => {
  await open(abide, page, 'true');
  await expect(page.getByTestId('log-state')).toHaveText('Ended without output');
});

test('any line of a million is shown, by scrolling and by its link', async ({ abide, inside: page }) => {
  const id = await open(abide, page, 'seq -f "line %.0f of many" 1000000');
  await expect(page.getByText('1,000,000 lines')).toBeVisible();
  await expect(text(page, 1)).toHaveText('line 1 of many');
  await page.getByRole('button', { name: 'End', exact: true }).click();
  await expect(text(page, 1_000_000)).toHaveText('line 1000000 of many');
  await expect(text(page, 1_000_000)).toBeInViewport();
  expect(await page.locator('.log-line').count()).toBeLessThan(150);
  await box(page).evaluate((element) => element.scrollTo(0, (element.scrollHeight - element.clientHeight) / 2));
  await expect(text(page, 500_000)).toHaveText('line 500000 of many');
  await page.goto(`http://${abide.address()}/sessions/${id}#L7000`);
  await expect(text(page, 7_000)).toBeInViewport();
  await expect(line(page, 7_000)).toHaveClass(/chosen/);
  await page.getByRole('button', { name: 'Wrap' }).click();
  await page.getByRole('button', { name: 'End', exact: true }).click();
  await expect(text(page, 1_000_000)).toBeInViewport();
});

test('both ends of long wrapped lines are reached', async ({ abide, inside: page }) => {
  await open(abide, page, `for n in $(seq 2000); do echo "$n ${'word '.repeat(80)}end"; done`);
  await page.getByRole('button', { name: 'Wrap' }).click();
  await page.getByRole('button', { name: 'End', exact: true }).click();
  const bottom = async () => {
    const [outer, inner] = [await box(page).boundingBox(), await line(page, 2_000).boundingBox()];
    return Math.round((outer?.y ?? 0) + (outer?.height ?? 0) - (inner?.y ?? 0) - (inner?.height ?? 0));
  };
  await expect.poll(bottom).toBeLessThan(20);
  expect(await bottom()).toBeGreaterThanOrEqual(0);
  expect(await box(page).evaluate((element) => element.scrollWidth - element.clientWidth)).toBe(0);
  await page.getByRole('button', { name: 'Top', exact: true }).click();
  await expect(text(page, 1)).toBeInViewport();
});

test('a text is found, counted and stepped through', async ({ abide, inside: page }) => {
  await open(abide, page, 'seq -f "item %.0f" 30000; echo "Item (1)"');
  await expect(text(page, 1)).toBeVisible();
  await page.keyboard.press('/');
  await page.keyboard.type('item 777');
  const matches = page.getByTestId('log-matches');
  await expect(matches).toHaveText('1 of 11');
  await expect(text(page, 777)).toBeInViewport();
  await expect(text(page, 777).locator('mark')).toHaveText('item 777');
  await page.keyboard.press('Enter');
  await expect(matches).toHaveText('2 of 11');
  await expect(text(page, 7_770)).toBeInViewport();
  await page.keyboard.press('Shift+Enter');
  await expect(matches).toHaveText('1 of 11');
  await page.getByRole('button', { name: 'Previous match' }).click();
  await expect(matches).toHaveText('11 of 11');
  await expect(text(page, 7_779)).toBeInViewport();
  await expect(page).toHaveURL(/\?find=item\+777#L7779$/);
  // The search ignores case, and no character is special.
  await page.getByLabel('Find in the log').fill('ITEM (1)');
  await expect(matches).toHaveText('1 of 1');
  await expect(text(page, 30_001)).toBeInViewport();
  await page.getByRole('button', { name: 'Regular expression' }).click();
  await expect(matches).toHaveText('No matches');
  await page.getByLabel('Find in the log').fill('^item \\d$');
  await expect(matches).toHaveText(/of 9$/);
  await page.getByLabel('Find in the log').fill('item (');
  await expect(matches).toContainText('unclosed group');
});

test('more matches than one answer has are stepped through', async ({ abide, inside: page }) => {
  const id = await open(abide, page, 'seq 10020');
  await page.goto(`http://${abide.address()}/sessions/${id}?find=.&regex=1#L10000`);
  const matches = page.getByTestId('log-matches');
  await expect(matches).toHaveText('10,000 of 10,020');
  await page.getByRole('button', { name: 'Next match' }).click();
  await expect(matches).toHaveText('10,001 of 10,020');
  await expect(text(page, 10_001)).toBeInViewport();
});

test('streams, times and colours are shown', async ({ abide, inside: page }) => {
  // The two streams may arrive in either order.
  await open(abide, page, String.raw`echo bad >&2; printf '\033[32mgreen\033[0m 10%%\r\033[32mgreen\033[0m 99%%\n'`);
  const bad = page.locator('.log-line', { hasText: 'bad' });
  const green = page.locator('.log-line', { hasText: 'green' });
  await expect(bad).toHaveClass(/stderr/);
  await expect(bad.getByTitle('stderr')).toBeVisible();
  await expect(green).not.toHaveClass(/stderr/);
  await expect(green.locator('.log-text')).toHaveText('green 99%');
  await expect(green.locator('.colour-2')).toHaveText('green');
  await expect(page.locator('.log-time')).toHaveCount(0);
  await page.getByRole('button', { name: 'Times' }).click();
  await expect(bad.locator('.log-time')).toHaveText(/^\d\d:\d\d:\d\d\.\d{3}$/);
  await page.reload();
  await expect(bad.locator('.log-time')).toBeVisible();
});

test('output is shown as text with hidden characters made visible', async ({ abide, inside: page }) => {
  await open(abide, page, String.raw`printf '<img src=x onerror=alert(1)>\nab\342\200\256cd\n'`);
  await expect(text(page, 1)).toHaveText('<img src=x onerror=alert(1)>');
  await expect(text(page, 2)).toHaveText('abU+202Ecd');
});

test('lines are selected, linked and copied', async ({ abide, inside: page }) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const id = await open(abide, page, 'seq -f "row %.0f" 50');
  await page.getByRole('link', { name: 'Line 3', exact: true }).click();
  await page.getByRole('link', { name: 'Line 5', exact: true }).click({ modifiers: ['Shift'] });
  await expect(page).toHaveURL(/#L3-L5$/);
  await expect(page.locator('.log-line.chosen')).toHaveCount(3);
  await page.getByRole('button', { name: 'Copy 3 lines' }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe('row 3\nrow 4\nrow 5\n');
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await page.getByRole('button', { name: 'Copy all' }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain('row 50\n');
});

test('a growing log is followed until a person scrolls up', async ({ abide, inside: page }) => {
  const fifo = join(abide.dir, 'go');
  execFileSync('mkfifo', [fifo]);
  abide.start('run', '--', 'seq 2000; cat go; cat go');
  await page.getByRole('article', { name: /^seq 2000/ }).getByRole('link', { name: 'Open' }).click();
  const follow = page.getByRole('button', { name: 'Follow' });
  await expect(follow).toHaveAttribute('aria-pressed', 'true');
  await expect(text(page, 2_000)).toBeInViewport();
  // The end stays in sight when the log gets lower.
  const size = page.viewportSize() ?? { width: 1280, height: 720 };
  await page.setViewportSize({ width: size.width, height: size.height - 150 });
  await expect(text(page, 2_000)).toBeInViewport();
  appendFileSync(fifo, Array.from({ length: 100 }, (_, n) => `new ${n}\n`).join(''));
  await expect(text(page, 2_100)).toHaveText('new 99');
  await expect(text(page, 2_100)).toBeInViewport();
  const position = () => box(page).evaluate((element) => element.scrollTop);
  const bottom = await position();
  await box(page).hover();
  await page.mouse.wheel(0, -1_000);
  await expect(follow).toHaveAttribute('aria-pressed', 'false');
  await expect.poll(position).toBe(bottom - 1_000);
  appendFileSync(fifo, 'the last one\n');
  await expect(page.getByTestId('log-state')).toHaveText('Ended');
  await expect(page.getByText('2,101 lines')).toBeVisible();
  expect(await position()).toBe(bottom - 1_000);
  await page.getByRole('button', { name: 'End', exact: true }).click();
  await expect(text(page, 2_101)).toHaveText('the last one');
});

test('the log of a session on another machine is read again while it runs', async ({ abide, inside: page }) => {
  const all = ['one', 'two'].map((text, place) => ({ number: place + 1, at: 0, stream: 'stdout', text }));
  let written = 1;
  await page.route(/\/lines/, (route) => route.fulfill({ json: { lines: all.slice(0, written), total: written, dropped: 0 } }));
  await openUnlisted(abide, page, { machine: 'lab', status: 'running' });
  await expect(text(page, 1)).toHaveText('one');
  written = 2;
  await expect(text(page, 2)).toHaveText('two');
});

test.describe('with an address of its own', () => {
  test.use({ config: OWN_ADDRESS });

  test('an older log stays where it is when the lists are fetched again', async ({ abide, inside: page }) => {
    await open(abide, page, 'seq 2000');
    // More sessions have ended since than a list has.
    await page.route(/\/v1\/sessions\?/, (route) => route.fulfill({ json: { sessions: [], next: null, total: 0 } }));
    let known = 0;
    let answer: () => void = () => undefined;
    const gate = new Promise<void>((done) => (answer = done));
    await page.route(/\/v1\/sessions\/session_[^/]*$/, async (route) => {
      known += 1;
      await gate;
      await route.continue();
    });
    await box(page).evaluate((element) => element.scrollTo(0, (element.scrollHeight - element.clientHeight) / 2));
    await expect(text(page, 1_000)).toBeInViewport();
    await abide.cli('stop');
    await expect(page.getByText('Reconnecting…')).toBeVisible();
    await abide.cli('status');
    await expect.poll(() => known).toBe(1);
    await expect(text(page, 1_000)).toBeInViewport();
    const answered = page.waitForResponse(/\/v1\/sessions\/session_[^/]*$/);
    answer();
    await (await answered).finished();
    await expect(text(page, 1_000)).toBeInViewport();
  });
});

test('a search in all sessions links to the line, and Back keeps the search', async ({ abide, inside: page }) => {
  await abide.cli('run', '--', 'seq -f "row %.0f" 5000; echo needle 7; seq 100');
  await page.getByRole('link', { name: 'Sessions', exact: true }).click();
  await page.getByLabel('Search in').selectOption('In the logs');
  await page.getByLabel('Find', { exact: true }).fill('needle \\d');
  const match = page.getByRole('list', { name: 'Matching lines' }).getByRole('listitem');
  await match.getByRole('link').click();
  await expect(text(page, 5_001)).toBeInViewport();
  await expect(text(page, 5_001).locator('mark')).toHaveText('needle 7');
  await expect(page.getByTestId('log-matches')).toHaveText('1 of 1');
  await page.goBack();
  await expect(page.getByLabel('Find', { exact: true })).toHaveValue('needle \\d');
  await expect(match).toContainText('needle 7');
});

test('the log of a terminal is a view beside its screen', async ({ abide, inside: page }) => {
  const id = await abide.session('echo shown; cat');
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.locator('.xterm-rows')).toContainText('shown');
  await page.getByRole('button', { name: 'Log', exact: true }).click();
  await expect(text(page, 1)).toHaveText('shown');
  await page.getByRole('button', { name: 'Terminal', exact: true }).click();
  await expect(page.locator('.xterm-rows')).toContainText('shown');
});

test('a long line fits a phone when it is wrapped', async ({ abide, inside: page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await open(abide, page, `echo first; echo ${'word '.repeat(60)}; echo last`);
  await page.getByRole('button', { name: 'Wrap' }).click();
  await text(page, 3).scrollIntoViewIfNeeded();
  await expect(text(page, 3)).toBeInViewport();
  expect(await box(page).evaluate((element) => element.scrollWidth - element.clientWidth)).toBe(0);
  expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
});

test('a linked line on a phone is not behind the bar of the views', async ({ abide, inside: page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const id = await open(abide, page, `seq 300; # ${'word '.repeat(30)}`);
  await page.goto(`http://${abide.address()}/sessions/${id}#L300`);
  const room = async () => {
    const [bar, shown] = [await page.getByRole('navigation').boundingBox(), await line(page, 300).boundingBox()];
    return (bar?.y ?? 0) - (shown?.y ?? 0) - (shown?.height ?? 0);
  };
  await expect.poll(room).toBeGreaterThanOrEqual(0);
});

test('a line that is too long is cut, and says how much is left out', async ({ abide, inside: page }) => {
  await open(abide, page, 'head -c 20000 /dev/zero | tr "\\0" x; echo; echo after');
  await expect(text(page, 1)).toHaveText(/x\[… 3616 bytes left out …\]x/);
  await expect(line(page, 1)).toContainText('Download the log to see the 3.6 kB that are left out.');
  await expect(text(page, 2)).toHaveText('after');
});
