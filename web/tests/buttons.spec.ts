// Every button, link, field and key that no other test uses.

import type { Page } from '@playwright/test';
import { type Abide, expect, OWN_ADDRESS, note, quietCommand, test, waitForToast } from './abide';

/** Longer than any test, in milliseconds. */
async function noMoreThan(page: Page, longest: number): Promise<void> {
  await page.evaluate((longest) => {
    const real = window.setTimeout.bind(window);
    const later = (act: () => void, pause = 0) => real(act, pause > longest ? 1e9 : pause);
    Object.assign(window, { setTimeout: later });
  }, longest);
}

const heading = (page: Page, name: string | RegExp) => page.getByRole('heading', { name, level: 1 });

test('the links of the first view open their views', async ({ abide, inside: page }) => {
  await abide.ask('POST', '/v1/tools/shell', { command: 'echo one; exit 3' });
  const id = await abide.session('cat');
  await page.getByRole('region', { name: 'Recently finished' }).getByRole('link', { name: 'echo one; exit 3' }).click();
  await expect(page.getByText('exit code 3')).toBeVisible();
  await page.getByRole('link', { name: 'abide', exact: true }).click();
  await page.getByRole('article', { name: 'cat' }).getByRole('link', { name: 'Open' }).click();
  await expect(page.getByText(id)).toBeVisible();
  await page.goBack();
  await page.getByRole('article', { name: 'cat' }).getByRole('link', { name: 'cat' }).click();
  await expect(page.getByText(id)).toBeVisible();
  for (const [link, title] of [
    ['All timers', 'Timers'],
    ['All messages', 'Messages'],
    ['All sessions', 'Sessions'],
  ] as const) {
    await page.getByRole('link', { name: 'abide', exact: true }).click();
    await page.getByRole('link', { name: link }).click();
    await expect(heading(page, title)).toBeVisible();
  }
  await page.goto(`http://${abide.address()}/no/such/place`);
  await page.getByRole('link', { name: 'Go to Now' }).click();
  await expect(heading(page, '1 session running')).toBeVisible();
  await page.goto(`http://${abide.address()}/sessions/session_none`);
  await page.getByRole('link', { name: 'All sessions' }).click();
  await expect(heading(page, 'Sessions')).toBeVisible();
});

test('the first view links to the sessions that it does not show', async ({ abide, inside: page }) => {
  await abide.timers(...Array.from({ length: 26 }, (_, n) => ({ total_duration: 600 + n, reason: `wait ${n}` })));
  await page.getByRole('link', { name: '20 more timers' }).click();
  await expect(page.getByText('26 timers')).toBeVisible();
});

test('a command to try is copied, or an error is shown', async ({ inside: page, context, abide }) => {
  const copy = page.getByRole('button', { name: "Copy abide timer start 10m --reason 'tea'" });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: `http://${abide.address()}` });
  await copy.click();
  await expect(page.getByText('Copied')).toBeAttached();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("abide timer start 10m --reason 'tea'");
  await page.evaluate(() => {
    Object.defineProperty(navigator, 'clipboard', { value: { writeText: () => Promise.reject(new Error('no')) } });
  });
  // A toast stays until it is closed.
  await noMoreThan(page, 5_000);
  const refused = note(page, 'This browser does not allow copying');
  await page.getByRole('button', { name: 'Copy abide setup' }).click();
  await refused.hover();
  await page.getByLabel('Dismiss').click();
  await expect(refused).toBeHidden();
  await page.getByRole('button', { name: 'Copy abide setup' }).click();
  await expect(refused).toBeVisible();
  await page.keyboard.press('F6');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await expect(page.getByLabel('Dismiss')).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(refused).toBeHidden();
});

const PAUSES = ['1 minute', '5 minutes', '15 minutes', '1 hour', '1 day'];
const RESUMES = ['(1m|\\d+s)', '(5m|4m)', '(15m|14m)', '(1h|59m)', '(1d|23h)'];

test('the menu of a row has every action and every pause', async ({ abide, inside: page }) => {
  const [id] = await abide.timers({ total_duration: 600, reason: 'tea' });
  await page.keyboard.press('2');
  const row = page.getByRole('list', { name: 'Active timers' }).getByRole('listitem');
  const choose = async (name: string) => {
    await row.getByRole('button', { name: 'Actions for tea' }).click();
    await page.getByRole('menuitem', { name, exact: true }).click();
  };
  const status = async () => (await abide.ask<{ status: string }>('GET', `/v1/timers/${id ?? ''}`)).status;
  for (const length of PAUSES) {
    await choose(length);
    await expect(row).toContainText('Paused');
    await expect.poll(status).toBe('paused');
    await row.getByRole('button', { name: 'Actions for tea' }).click();
    await expect(page.getByRole('menuitem', { name: 'Run in background' })).toHaveAttribute('aria-disabled', 'true');
    await page.keyboard.press('Escape');
    await choose('Resume');
    await expect(row).toContainText('Running');
    await expect.poll(status).toBe('running');
  }
  const dialog = page.getByRole('dialog', { name: 'Pause this timer' });
  await choose('Another duration…');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await expect(dialog).toBeHidden();
  await expect(row).toContainText('Running');
  await choose('Another duration…');
  await dialog.getByLabel('For how long').fill('2h');
  await dialog.getByRole('button', { name: 'Pause' }).click();
  await expect(row).toContainText('Paused');
  await choose('Resume');
  await choose('Run in background');
  await expect(row).toContainText('In background');
  await row.getByRole('button', { name: 'Actions for tea' }).click();
  await expect(page.getByRole('menuitem', { name: 'Run in background' })).toHaveAttribute('aria-disabled', 'true');
  await page.getByRole('menuitem', { name: 'Stop timer…' }).click();
  await page.getByRole('button', { name: 'Stop timer', exact: true }).click();
  await expect(page.getByText('No active timers')).toBeVisible();
});

test('a card has every pause', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 600, reason: 'tea' });
  const card = page.getByRole('article', { name: 'tea' });
  for (const [place, length] of PAUSES.entries()) {
    await card.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('menuitem', { name: length, exact: true }).click();
    await expect(card).toContainText(new RegExp(`resumes in ${RESUMES[place] ?? ''}`));
    await card.getByRole('button', { name: 'Resume' }).click();
    await expect(card.getByText('Running')).toBeVisible();
  }
});

test('timers are sorted by each order, filtered by each state, and reset', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 900, reason: 'b' });
  await abide.timers({ total_duration: 300, reason: 'c' });
  const [paused] = await abide.timers({ total_duration: 600, reason: 'a' });
  await abide.ask('POST', `/v1/timers/${paused ?? ''}/pause`, { pause_duration: 600 });
  await page.keyboard.press('2');
  const names = page.getByRole('list', { name: 'Active timers' }).locator('[data-main]');
  const orders: [string, string[]][] = [
    ['By reason', ['a', 'b', 'c']],
    ['Newest first', ['a', 'c', 'b']],
    ['By state', ['a', 'c', 'b']],
    ['Next first', ['c', 'a', 'b']],
  ];
  for (const [order, wanted] of orders) {
    await page.getByRole('combobox', { name: 'Order' }).selectOption(order);
    await expect(names).toHaveText(wanted);
  }
  const states: [string, string[]][] = [
    ['Running', ['c', 'b']],
    ['Paused', ['a']],
    ['All states', ['c', 'a', 'b']],
  ];
  for (const [state, wanted] of states) {
    await page.getByRole('combobox', { name: 'State' }).selectOption(state);
    await expect(names).toHaveText(wanted);
  }
  await page.getByRole('combobox', { name: 'State' }).selectOption('In background');
  await expect(page.getByText('No matching timers')).toBeVisible();
  await page.getByRole('button', { name: 'Show all' }).click();
  await expect(names).toHaveText(['c', 'a', 'b']);
});

test('sessions are picked, opened and killed from their list and from their own page', async ({ abide, inside: page }) => {
  await abide.ask('POST', '/v1/tools/shell', { command: 'echo over' });
  await abide.session('cat -u');
  await abide.session('cat -v');
  await page.keyboard.press('3');
  const rows = page.getByRole('list', { name: 'Sessions' }).getByRole('listitem');
  await expect(rows).toHaveCount(3);
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Ended');
  await expect(rows).toHaveText([/echo over/]);
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Running');
  await expect(rows).toHaveText([/cat -v/, /cat -u/]);
  await rows.first().getByRole('button', { name: 'Kill' }).click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await rows.first().getByRole('button', { name: 'Kill' }).click();
  await page.getByRole('button', { name: 'Kill it' }).click();
  await expect(rows).toHaveText([/cat -u/]);
  await rows.getByRole('link', { name: 'cat -u' }).click();
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await page.getByRole('button', { name: 'Kill' }).click();
  await page.getByRole('button', { name: 'Kill it' }).click();
  await expect(page.getByText('killed by a person')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Kill' })).toBeHidden();
  await page.keyboard.press('3');
  await page.getByLabel('Find', { exact: true }).fill('no such command');
  await expect(page.getByText('No matching sessions')).toBeVisible();
});

test('the dialog for a new terminal can be cancelled and needs a command', async ({ inside: page }) => {
  await page.keyboard.press('3');
  await page.getByRole('button', { name: 'New terminal' }).click();
  const dialog = page.getByRole('dialog', { name: 'New terminal' });
  await dialog.getByLabel('Command').fill(' ');
  await expect(dialog.getByRole('button', { name: 'Start' })).toBeDisabled();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await expect(dialog).toBeHidden();
  await expect(page.getByRole('button', { name: 'New terminal' })).toBeFocused();
});

test('older messages are loaded, and unseen ones are filtered', async ({ abide, inside: page }) => {
  await abide.timers(...Array.from({ length: 120 }, (_, n) => ({ total_duration: 0.05, mission: `mission ${n}` })));
  await page.keyboard.press('4');
  const messages = page.getByRole('article', { name: 'Message to default' });
  await expect(page.getByText('100 of 120 shown')).toBeVisible();
  await expect(messages).toHaveCount(100);
  await page.getByRole('button', { name: 'Show older' }).click();
  await expect(messages).toHaveCount(120);
  await expect(page.getByRole('button', { name: 'Show older' })).toBeHidden();
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Not seen');
  await expect(messages).toHaveCount(120);
  const read = async () => (await abide.ask<{ more: number }>('POST', '/v1/tools/read_messages', {})).more;
  while ((await read()) > 0) await expect(messages).not.toHaveCount(120);
  await expect(page.getByText('No matching messages')).toBeVisible();
});

async function asked(abide: Abide, page: Page) {
  quietCommand(abide, 'sleep 1000');
  const card = page.getByRole('article', { name: /Continue waiting/ });
  await expect(card).toBeVisible();
  return card;
}

test('a question links to its session and is answered there too', async ({ abide, inside: page }) => {
  const card = await asked(abide, page);
  await card.getByRole('link', { name: 'Open session' }).click();
  await expect(page.getByRole('link', { name: 'Download the log' })).toBeVisible();
  await card.getByRole('button', { name: 'No, kill it' }).click();
  await expect(page.getByText('declined by a person')).toBeVisible();
});

test('y and q answer the question that has the focus', async ({ abide, inside: page }) => {
  const card = await asked(abide, page);
  await page.keyboard.press('k');
  await page.keyboard.press('j');
  await card.focus();
  const answer = page.waitForRequest(/\/answer$/);
  await page.keyboard.press('y');
  expect((await answer).postDataJSON()).toEqual({ answer: 'yes' });
  await expect(card).toHaveCount(1);
  await expect(card.getByRole('button', { name: 'Yes, keep waiting' })).toBeVisible();
  await card.focus();
  await page.keyboard.press('q');
  await expect(heading(page, '1 session running')).toBeVisible();
});

test('help, theme, notifications and logout in the navigation', async ({ inside: page, context }) => {
  const keys = page.getByRole('dialog', { name: 'Keyboard shortcuts' });
  await page.getByRole('button', { name: 'Keyboard shortcuts' }).click();
  await keys.getByRole('switch').click();
  await keys.getByRole('button', { name: 'Close' }).click();
  await expect(keys).toBeHidden();
  await page.keyboard.press('d');
  await expect(page.getByRole('button', { name: 'Theme: system' })).toBeVisible();
  await page.keyboard.press('?');
  await keys.getByRole('switch').click();
  await page.keyboard.press('Escape');
  // An open dialog handles all keys.
  await expect(keys).toBeHidden();
  await page.keyboard.press('d');
  await expect(page.getByRole('button', { name: 'Theme: light' })).toBeVisible();
  await context.grantPermissions(['notifications']);
  const bell = page.getByRole('button', { name: 'Notify me of questions' });
  await bell.click();
  await expect(bell).toHaveAttribute('aria-pressed', 'true');
  await bell.click();
  await expect(bell).toHaveAttribute('aria-pressed', 'false');
  await page.route('**/v1/logout', (route) => route.abort());
  await page.getByRole('button', { name: 'Log out' }).click();
  await waitForToast(page, 'You are still logged in');
});

test.describe('at an address of its own', () => {
  test.use({ config: OWN_ADDRESS });

  test('"Try now" reconnects at once', async ({ abide, inside: page }) => {
    // The reconnect delay does not end by itself, so only the button can reconnect.
    await noMoreThan(page, 200);
    await abide.cli('stop');
    await expect(page.getByText('Reconnecting…')).toBeVisible();
    await abide.cli('status');
    await page.getByRole('button', { name: 'Try now' }).click();
    await expect(page.getByText(/^Live, abide/)).toBeVisible();
  });
});

test('older timers are loaded when the history is scrolled to its end', async ({ abide, inside: page }) => {
  await abide.timers(...Array.from({ length: 230 }, (_, n) => ({ total_duration: 0.05, mission: `mission ${n}` })));
  await page.keyboard.press('2');
  await page.getByRole('tab', { name: 'History' }).click();
  const list = page.getByRole('list', { name: 'Finished timers' });
  await expect(list.locator('[aria-setsize="200"], [aria-setsize="230"]').first()).toBeVisible();
  await list.locator('[data-main]').first().focus();
  await page.keyboard.press('End');
  await expect(list.locator('[aria-setsize="230"]').first()).toBeAttached();
});
