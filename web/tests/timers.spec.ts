import { expect, test, waitForToast } from './abide';

const tea = { total_duration: 600, timeout_duration: 60, reason: 'tea' };

test('a timer shows its times and every button works', async ({ abide, inside: page }) => {
  await abide.timers(tea);
  const card = page.getByRole('article', { name: 'tea' });
  await expect(card).toContainText('total 10m');
  await expect(card).toContainText('standby 1m');
  await expect(card.getByRole('img', { name: /% of 10m has passed/ })).toBeVisible();
  await card.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('menuitem', { name: '5 minutes', exact: true }).click();
  await expect(card.getByText('Paused')).toBeVisible();
  await expect(card).toContainText(/resumes in [45]m/);
  await expect(card.getByRole('button', { name: 'Run in background' })).toBeDisabled();
  await card.getByRole('button', { name: 'Resume' }).click();
  await expect(card.getByText('Running')).toBeVisible();
  await card.getByRole('button', { name: 'Run in background' }).click();
  await expect(card.getByText('In background', { exact: true })).toBeVisible();
  await expect(card.getByRole('button', { name: 'Run in background' })).toBeDisabled();
  await card.getByRole('button', { name: 'Stop timer…' }).click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(card.getByText('In background', { exact: true })).toBeVisible();
  await card.getByRole('button', { name: 'Stop timer…' }).click();
  await page.getByRole('button', { name: 'Stop timer', exact: true }).click();
  await expect(page.getByText('No active timers')).toBeVisible();
});

test('a timer is paused for a custom duration', async ({ abide, inside: page }) => {
  const [id] = await abide.timers(tea);
  const card = page.getByRole('article', { name: 'tea' });
  await card.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('menuitem', { name: 'Another duration…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Pause this timer' });
  await dialog.getByLabel('For how long').fill('soon');
  await expect(dialog.getByText('Not a valid duration.')).toBeVisible();
  await expect(dialog.getByRole('button', { name: 'Pause' })).toBeDisabled();
  await dialog.getByLabel('For how long').fill('1h30m');
  await page.keyboard.press('Enter');
  await expect(card).toContainText(/resumes in 1h(30m|29m)/);
  // The card shows the expected result before the daemon has received the request.
  const status = async () => (await abide.ask<{ status: string }>('GET', `/v1/timers/${id ?? ''}`)).status;
  await expect.poll(status).toBe('paused');
});

test('the bar is animated without rendering its card again', async ({ abide, inside: page }) => {
  await abide.timers(tea);
  const bar = page.getByRole('article', { name: 'tea' }).locator('.bar > i');
  await expect(bar).toHaveClass(/moving/);
  const moved = await bar.evaluate(async (inner) => {
    const width = () => inner.getBoundingClientRect().width;
    const before = width();
    let redrawn = 0;
    const watch = new MutationObserver((changes) => (redrawn += changes.length));
    watch.observe(inner, { attributes: true });
    while (width() <= before) await new Promise(requestAnimationFrame);
    return { redrawn, gone: inner.getAnimations()[0]?.currentTime };
  });
  expect(moved.redrawn).toBe(0);
  expect(Number(moved.gone)).toBeGreaterThan(0);
});

test('a refused action is reverted and shows the reason', async ({ abide, inside: page }) => {
  await abide.timers(tea);
  const card = page.getByRole('article', { name: 'tea' });
  await page.route('**/v1/timers/*/stop', (route) =>
    route.fulfill({
      status: 409,
      contentType: 'application/problem+json',
      body: JSON.stringify({ detail: "Timer 'timer_x' has completed already." }),
    }),
  );
  await card.getByRole('button', { name: 'Stop timer…' }).click();
  await page.getByRole('button', { name: 'Stop timer', exact: true }).click();
  await waitForToast(page, 'The timer was not stopped');
  await waitForToast(page, "Timer 'timer_x' has completed already.");
  await expect(card.getByText('Running')).toBeVisible();
});

test('the list is filtered, sorted and navigated with arrow keys', async ({ abide, inside: page }) => {
  await abide.timers(
    { total_duration: 900, reason: 'slow build' },
    { total_duration: 300, reason: 'fast build' },
    { total_duration: 100, mission: 'water the plants' },
  );
  await page.keyboard.press('2');
  const list = page.getByRole('list', { name: 'Active timers' });
  await expect(list.getByRole('listitem')).toHaveText([/water the plants/, /fast build/, /slow build/]);
  await page.keyboard.press('j');
  await expect(list.locator('[data-main]').nth(0)).toBeFocused();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await expect(list.getByText('slow build').locator('xpath=ancestor-or-self::*[@data-main]')).toBeFocused();
  await page.getByRole('combobox', { name: 'Order' }).selectOption('By reason');
  await expect(list.getByRole('listitem')).toHaveText([/fast build/, /slow build/, /water the plants/]);
  await page.keyboard.press('Escape');
  await page.getByLabel('Find timers').fill('build');
  await expect(list.getByRole('listitem')).toHaveCount(2);
  await page.getByRole('button', { name: 'Actions for slow build' }).click();
  await page.getByRole('menuitem', { name: '1 hour' }).click();
  await page.getByRole('combobox', { name: 'State' }).selectOption('Paused');
  await expect(list.getByRole('listitem')).toHaveText([/slow build/]);
});

test('an older response does not replace a newer one', async ({ abide, inside: page }) => {
  const [id] = await abide.timers(tea);
  let release: () => void = () => undefined;
  const released = new Promise<void>((done) => (release = done));
  let early: () => void = () => undefined;
  const readEarly = new Promise<void>((done) => (early = done));
  let late: () => void = () => undefined;
  const toldLate = new Promise<void>((done) => (late = done));
  await page.route(
    '**/v1/timers/history*',
    async (route) => {
      const response = await route.fetch();
      early();
      await released;
      await route.fulfill({ response });
      late();
    },
    { times: 1 },
  );
  await page.getByRole('link', { name: /^Timers/ }).click();
  await page.getByRole('tab', { name: 'History' }).click();
  await readEarly;
  await abide.ask('POST', `/v1/timers/${id ?? ''}/stop`, {});
  const rows = page.getByRole('list', { name: 'Finished timers' }).getByRole('listitem');
  await expect(rows).toHaveCount(1);
  release();
  await toldLate;
  // Long enough for the page to receive the response and render it.
  await page.evaluate(async () => {
    await fetch('/v1/timers/stats');
    for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame);
  });
  await expect(rows).toHaveCount(1);
});

test('history and statistics contain ended timers', async ({ abide, inside: page }) => {
  const [stopped] = await abide.timers({ total_duration: 500, reason: 'stopped one' }, { total_duration: 0.05, mission: 'done one' });
  await abide.ask('POST', `/v1/timers/${stopped ?? ''}/stop`, { reason: 'not needed' });
  await page.getByRole('link', { name: 'Timers', exact: true }).click();
  await page.getByRole('tab', { name: 'History' }).click();
  const list = page.getByRole('list', { name: 'Finished timers' });
  await expect(list.getByRole('listitem').filter({ hasText: 'stopped one' })).toContainText('not needed');
  await expect(list.getByRole('listitem').filter({ hasText: 'done one' })).toContainText('Completed');
  await page.getByRole('tab', { name: 'Statistics' }).click();
  await expect(page.getByText('calls saved', { exact: true })).toBeVisible();
  await expect(page.getByRole('img', { name: /Timers that ended each day/ }).locator('canvas')).toBeVisible();
  await page.getByText('Show as a table').click();
  await expect(page.getByRole('row').last()).toContainText('1');
});

test('a card stays under the pointer when its timer is paused', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 300, reason: 'first' }, { total_duration: 600, reason: 'second' });
  const titles = page.getByRole('region', { name: 'Timers' }).getByRole('heading', { level: 3 });
  await expect(titles).toHaveText([/first/, /second/]);
  const card = page.getByRole('article', { name: 'first' });
  await card.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('menuitem', { name: '1 hour' }).click();
  await expect(card.getByText('Paused')).toBeVisible();
  await card.hover();
  await abide.timers({ total_duration: 100, reason: 'third' });
  await expect(titles).toHaveText([/first/, /second/, /third/]);
  await page.mouse.move(5, 5);
  await expect(titles).toHaveText([/third/, /second/, /first/]);
});

test('a timer has a page with both durations, its condition and its history', async ({ abide, inside: page }) => {
  const [id] = await abide.timers({ ...tea, until: { file: '/no/such/file' } });
  await page.getByRole('article', { name: 'tea' }).getByRole('link', { name: 'tea' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('tea');
  await expect(page.getByRole('region', { name: 'Total' })).toContainText(/(9:\d\d|10:00)\s*left of 10m/);
  await expect(page.getByRole('region', { name: 'Standby' })).toContainText('No call is standing by');
  await expect(page.getByRole('region', { name: 'Condition' })).toContainText('/no/such/file is present');
  const standby = abide.ask('POST', `/v1/timers/${id ?? ''}/continue`, { timeout_duration: 50 });
  await expect(page.getByRole('region', { name: 'Standby' })).toContainText(/0:[45]\d\s*left of 50s/);
  const history = page.getByRole('region', { name: 'History' });
  await expect(history).toContainText('Created for agent default');
  await expect(history).toContainText('Due');
  await page.getByRole('button', { name: 'Stop timer…' }).click();
  await page.getByRole('button', { name: 'Stop timer', exact: true }).click();
  await expect(history).toContainText('Stopped; nobody was notified');
  await expect(page.getByRole('region', { name: 'Total' })).toContainText('passed of 10m');
  await standby.catch(() => undefined);
  await page.reload();
  await expect(history).toContainText('Stopped; nobody was notified');
  await page.goto(`http://${abide.address()}/timers/timer_00000000`);
  await expect(page.getByText('There is no timer timer_00000000')).toBeVisible();
});

test('a timer is started on the page, with a condition', async ({ abide, inside: page }) => {
  await page.keyboard.press('2');
  await page.getByRole('button', { name: 'New timer' }).click();
  const dialog = page.getByRole('dialog', { name: 'New timer' });
  await dialog.getByLabel('Reason').fill('the report');
  await dialog.getByLabel('Duration').fill('half an hour');
  await expect(dialog.getByText('Not a valid duration.')).toBeVisible();
  await dialog.getByLabel('Duration').fill('30m');
  await dialog.getByLabel('Complete early').selectOption('When a file exists');
  await dialog.getByLabel('File', { exact: true }).fill('relative/path');
  await dialog.getByRole('button', { name: 'Start' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('the report');
  await expect(page.getByRole('region', { name: 'Condition' })).toContainText('relative/path is present');
  const { timers } = await abide.ask<{ timers: { total_duration: number }[] }>('GET', '/v1/timers');
  expect(timers.map((timer) => timer.total_duration)).toEqual([1_800]);
});

test('the list of timers shows progress on a phone', async ({ abide, inside: page }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  await abide.timers(tea);
  await page.keyboard.press('2');
  await expect(page.getByRole('list', { name: 'Active timers' }).getByRole('img', { name: /% of 10m has passed/ })).toBeVisible();
});

test('filters and the order of timers are part of the address', async ({ abide, inside: page }) => {
  await abide.timers(...['step 10', 'step 2', 'step 1', 'other'].map((reason) => ({ total_duration: 600, reason })));
  await page.keyboard.press('2');
  await page.getByLabel('Find timers').fill('step');
  await page.getByRole('combobox', { name: 'Order' }).selectOption('By reason');
  const rows = page.getByRole('list', { name: 'Active timers' }).getByRole('listitem');
  await expect(rows).toHaveText([/step 1\D/, /step 2/, /step 10/]);
  await expect(page).toHaveURL(/\/timers\?q=step&sort=reason$/);
  await page.reload();
  await expect(rows).toHaveText([/step 1\D/, /step 2/, /step 10/]);
  await rows.first().getByRole('link').click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('step 1');
  await page.goBack();
  await expect(page.getByLabel('Find timers')).toHaveValue('step');
  await page.getByRole('tab', { name: 'History' }).click();
  await page.reload();
  await expect(page.getByRole('tab', { name: 'History' })).toHaveAttribute('aria-selected', 'true');
});

test('checks of a condition are listed with their timer and not among the other sessions', async ({ abide, inside: page }) => {
  await abide.ask('POST', '/v1/tools/shell', { command: 'echo one' });
  await abide.timers({ total_duration: 600, reason: 'tea', until: { command: 'false', every: 0.2 } });
  const card = page.getByRole('article', { name: 'tea' });
  await expect(card).toContainText('last check: `false` exited with code 1');
  await expect(page.getByRole('region', { name: 'Recently finished' }).getByRole('listitem')).toHaveText([/echo one/]);
  await card.getByRole('link', { name: 'tea' }).click();
  await expect(page.getByRole('region', { name: 'Checks of its command' }).getByRole('listitem').first()).toContainText('false');
  await page.keyboard.press('3');
  const rows = page.getByRole('list', { name: 'Sessions' }).getByRole('listitem');
  await expect(rows).toHaveText([/echo one/]);
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Condition checks');
  await expect(rows.first()).toContainText('false');
  await expect(page).toHaveURL(/\/sessions\?state=checks$/);
});

test('a check that runs is not counted as a running session', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 600, reason: 'tea', until: { command: 'sleep 600', every: 1 } });
  await page.getByRole('article', { name: 'tea' }).getByRole('link', { name: 'tea' }).click();
  await expect(page.getByRole('region', { name: 'Checks of its command' })).toContainText('Running');
  await expect(page.getByRole('link', { name: 'Sessions', exact: true })).toBeVisible();
  await page.keyboard.press('1');
  await expect(page.getByRole('region', { name: 'Running sessions' })).toContainText('No running sessions');
});

test('output in the reason why a wait ended is shown as output', async ({ abide, inside: page }) => {
  const session = await abide.session('echo two  mangos; exit 3');
  const [id] = await abide.timers({ total_duration: 600, reason: 'tea', until: { session, output: 'plum' } });
  await page.goto(`http://${abide.address()}/timers/${id ?? ''}`);
  const condition = page.getByRole('region', { name: 'Condition' });
  await expect(condition.getByRole('group', { name: 'Last lines' })).toHaveText('two  mangos');
});
