import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import type { Page } from '@playwright/test';
import { type Abide, expect, openUnlisted, quietCommand, test, waitForToast } from './abide';

/** Creates one entry of every kind. */
async function furnish(abide: Abide): Promise<{ id: string; timer: string; log: string }> {
  const id = await abide.session('echo hello; cat');
  const [timer = ''] = await abide.timers(
    { total_duration: 600, timeout_duration: 60, reason: 'tea', until: { port: 1 } },
    { total_duration: 0.05, mission: 'a message\nof two lines' },
  );
  const coloured = 'for c in 30 31 32 33 34 35 36 37 90 91 92 93 94 95 96 97; do printf "\\033[${c}mword\\033[0m\\n"; done; echo bad >&2; seq 500';
  const { session_id: log } = await abide.ask<{ session_id: string }>('POST', '/v1/tools/shell', { command: coloured });
  await abide.ask('POST', '/v1/tools/shell', { command: 'exit 3' });
  const denies = '[[rule]]\nname = "always-1"\nrun = ["true", "denied"]\ndo = "deny"\nwhy = "a rule for this test"\n';
  writeFileSync(join(abide.dir, 'policy.toml'), denies, { mode: 0o600 });
  await abide.ask('POST', '/v1/tools/shell', { command: 'true denied' });
  await abide.cli('run', '--sandbox', 'read-only', '--cwd', '/usr/share', '--', 'sh', '-c', 'mkdir -p /usr/share/x || true');
  // Long enough for a scroll area.
  quietCommand(abide, `sleep 1000 # ${'word '.repeat(200)}`);
  return { id, timer, log };
}

type Scheme = 'light' | 'dark';

/** Rules about colours. The themes differ in nothing else (`src/style/themes.test.ts`), so dark is tested for these alone. */
const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];

async function scan(page: Page, where: string, scheme: Scheme = 'light'): Promise<void> {
  const axe = new AxeBuilder({ page });
  if (scheme === 'dark') axe.withRules(COLOUR_RULES);
  else axe.withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']);
  const { violations } = await axe.analyze();
  const found = violations.map(({ id, nodes }) => `${where}: ${id}: ${nodes.map((node) => node.html).join(' | ')}`);
  expect(found).toEqual([]);
}

/** Shows another view without loading the page again. */
async function show(page: Page, path: string): Promise<void> {
  await page.evaluate((path) => {
    history.pushState(null, '', path);
    dispatchEvent(new PopStateEvent('popstate'));
  }, path);
}

for (const colorScheme of ['light', 'dark'] as const) {
  for (const [name, viewport] of Object.entries({ phone: { width: 360, height: 740 }, desk: { width: 1280, height: 800 } })) {
    test(`every view is accessible and fits: ${colorScheme}, ${name}`, async ({ abide, inside: page }) => {
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      const { id, timer, log } = await furnish(abide);
      await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
      await expect(page.getByRole('article', { name: 'tea' })).toBeVisible();
      const paths = ['/', '/timers', `/timers/${timer}`, '/sessions', `/sessions/${id}`, `/sessions/${log}?find=word#L3`, '/messages', '/rules', '/rules?tab=decisions', '/rules?tab=refusals', '/sessions/session_none', '/timers/timer_none', '/no/such/place'];
      for (const path of paths) {
        await show(page, path);
        await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
        if (path.includes(id)) {
          await expect(page.getByTestId('terminal-state')).toHaveText('Live');
          const buttons = await page.locator('.session-head .end > *').all();
          const tops = await Promise.all(buttons.map(async (button) => (await button.boundingBox())?.y));
          expect(new Set(tops).size, 'rows of buttons').toBe(1);
        }
        if (path.includes('decisions')) await expect(page.getByRole('article', { name: 'Denied: true denied' })).toBeVisible();
        if (path.includes('refusals')) await expect(page.getByText('/usr/share/x', { exact: true })).toBeVisible();
        if (path === '/rules') await expect(page.getByRole('article', { name: 'Rule always-1' })).toBeVisible();
        if (path.includes(log)) await expect(page.getByTestId('log-matches')).toHaveText('3 of 16');
        await scan(page, path, colorScheme);
        // Nothing covers the links to the other views.
        for (const view of await page.getByRole('navigation').getByRole('link').all()) await view.click({ trial: true });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
        expect(wide, `${path} is wider than the screen`).toBe(false);
      }
      await show(page, '/timers');
      for (const tab of ['History', 'Statistics']) {
        await page.getByRole('tab', { name: tab }).click();
        await scan(page, tab, colorScheme);
      }
      await show(page, '/sessions?tab=stats');
      await expect(page.getByRole('group', { name: 'Sessions by agent' })).toBeVisible();
      await scan(page, 'statistics of sessions', colorScheme);
      await page.keyboard.press('?');
      await expect(page.getByRole('dialog', { name: 'Keyboard shortcuts' })).toBeVisible();
      await scan(page, 'help', colorScheme);
    });
  }
}

for (const colorScheme of ['light', 'dark'] as const) {
  test(`menus and dialogs of a card are accessible: ${colorScheme}`, async ({ abide, inside: page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await abide.timers({ total_duration: 600, reason: 'tea' });
    await abide.session('cat');
    const tea = page.getByRole('article', { name: 'tea' });
    await tea.getByRole('button', { name: 'Pause' }).click();
    await expect(page.getByRole('menu')).toBeVisible();
    await scan(page, 'the menu of a card', colorScheme);
    await page.getByRole('menuitem', { name: 'Another duration…' }).click();
    await page.getByLabel('For how long').fill('soon');
    await scan(page, 'a timer is paused for a custom duration', colorScheme);
    await page.keyboard.press('Escape');
    await page.getByRole('article', { name: 'cat' }).getByRole('button', { name: 'Kill' }).click();
    await expect(page.getByRole('alertdialog')).toBeVisible();
    await scan(page, 'the question before a kill', colorScheme);
    await openUnlisted(abide, page, { sandboxed_by: 'namespaces' });
    await page.getByRole('button', { name: 'Run again…' }).click();
    await expect(page.getByLabel('Sandbox')).toBeVisible();
    await scan(page, 'the question before a command is run again', colorScheme);
  });

  test(`menus of a list and errors are accessible: ${colorScheme}`, async ({ abide, inside: page }) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await abide.timers({ total_duration: 600, reason: 'tea' });
    await page.keyboard.press('c');
    await page.getByLabel('Folder').fill('/no/such/folder');
    await page.getByRole('button', { name: 'Start' }).click();
    await expect(page.getByRole('dialog').getByRole('alert')).toBeVisible();
    await scan(page, 'a new terminal that is refused', colorScheme);
    await page.keyboard.press('Escape');
    // An open dialog handles all keys.
    await expect(page.getByRole('dialog')).toBeHidden();
    await page.keyboard.press('2');
    await page.getByRole('button', { name: 'Actions for tea' }).click();
    await expect(page.getByRole('menu')).toBeVisible();
    await scan(page, 'the menu of a row', colorScheme);
  });
}

test('the login is accessible', async ({ abide, page }) => {
  await page.goto(`http://${abide.address()}/`);
  await expect(page.getByRole('heading', { name: 'Log in' })).toBeVisible();
  await scan(page, 'login');
});

test('the theme is kept after a reload', async ({ inside: page }) => {
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.getByRole('button', { name: 'Theme: system' }).click();
  await page.getByRole('button', { name: 'Theme: light' }).click();
  await expect(page.getByRole('button', { name: 'Theme: dark' })).toBeVisible();
  const dark = await back();
  expect(dark).not.toBe(light);
  await page.reload();
  await expect(page.getByRole('button', { name: 'Theme: dark' })).toBeVisible();
  expect(await back()).toBe(dark);
});

test('every view is reached with shortcuts, and shortcuts can be switched off', async ({ inside: page }) => {
  await page.keyboard.press('Tab');
  await expect(page.getByRole('link', { name: 'Skip to content' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.locator('main')).toBeFocused();
  const views: [string, string][] = [
    ['2', 'Timers'],
    ['3', 'Sessions'],
    ['4', 'Messages'],
    ['5', 'Rules'],
    ['1', 'All quiet'],
  ];
  for (const [key, name] of views) {
    await page.keyboard.press(key);
    await expect(page.getByRole('heading', { name, level: 1 })).toBeVisible();
  }
  await page.keyboard.press('?');
  await page.getByRole('switch', { name: 'Single-letter shortcuts' }).click();
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toBeHidden();
  await page.keyboard.press('2');
  await expect(page.getByRole('heading', { name: 'All quiet' })).toBeVisible();
});

test('an empty list shows a command to try', async ({ inside: page }) => {
  await expect(page.getByText('abide run --idle 60s -- make test')).toBeVisible();
  await expect(page.getByText("abide timer start 10m --reason 'tea'")).toBeVisible();
  await page.keyboard.press('3');
  await expect(page.getByText('No sessions yet')).toBeVisible();
});

test('notification permission is requested after a click, and a denial is reported', async ({ inside: page, context }) => {
  expect(await page.evaluate(() => Notification.permission)).not.toBe('granted');
  await context.clearPermissions();
  await page.getByRole('button', { name: 'Notify me of questions' }).click();
  await waitForToast(page, 'This browser does not allow notifications');
});

test('live regions do not change with time', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 0.05, mission: 'a message' }, { total_duration: 600, reason: 'tea' });
  await expect(page.locator('.feed').getByText('Mission: a message')).toBeVisible();
  await abide.cli('stop');
  await expect(page.getByText('Reconnecting…')).toBeVisible();
  const loud = page.locator('[aria-live], [role="status"], [role="alert"]');
  await expect(loud.getByText('abide does not answer')).toBeVisible();
  const moving = loud.locator('time:not([aria-hidden="true"] *), .numbers:not([aria-hidden="true"] *)');
  await expect(moving).toHaveCount(0);
  await expect(page.getByText(/^(Next try in|Trying)/)).toBeVisible();
});
