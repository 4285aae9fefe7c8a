import { OWN_ADDRESS, expect, quietCommand, test, waitForToast } from './abide';

test.use({ config: OWN_ADDRESS });

test('a page survives a daemon restart without a reload', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 600, reason: 'before' });
  const id = await abide.session('sh');
  await expect(page.getByRole('article', { name: 'before' })).toBeVisible();
  await page.evaluate(() => Object.assign(window, { same: true }));
  await abide.cli('stop');
  await expect(page.getByText('Reconnecting…')).toBeVisible();
  await expect(page.getByText('Not connected')).toBeAttached();
  await expect(page.getByRole('button', { name: 'Copy abide status' })).toBeVisible();
  await page.getByRole('article', { name: 'before' }).getByRole('button', { name: 'Run in background' }).click();
  await waitForToast(page, 'abide does not answer. It is unknown');
  await abide.cli('status');
  await abide.timers({ total_duration: 600, reason: 'after' });
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
  await expect(page.getByText('Reconnecting…')).toBeHidden();
  await expect(page.getByRole('article', { name: 'before' })).toBeVisible();
  await expect(page.getByRole('article', { name: 'after' })).toBeVisible();
  await expect(page.getByRole('article', { name: 'sh' })).toBeVisible();
  quietCommand(abide, 'sleep 1000');
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
  expect(await page.evaluate(() => 'same' in window)).toBe(true);
  expect(id).toMatch(/^session_/);
});

test('a terminal reconnects after a restart', async ({ abide, inside: page }) => {
  const id = await abide.session('sh');
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await abide.cli('stop');
  await expect(page.getByTestId('terminal-state')).toHaveText(/Connection lost/);
  await page.locator('.xterm').click();
  await page.keyboard.type('x');
  await waitForToast(page, 'The terminal is not connected.');
  await abide.cli('status');
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await page.locator('.xterm').click();
  await page.keyboard.type('echo still $((1 + 1)) here');
  await page.keyboard.press('Enter');
  await expect(page.locator('.xterm-rows')).toContainText('still 2 here');
});
