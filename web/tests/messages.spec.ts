import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, waitForToast } from './abide';

test('a message is counted as unread until it is viewed, and links to its timer', async ({ abide, inside: page }) => {
  const [id] = await abide.timers({ total_duration: 0.05, mission: 'look at the build' });
  const newest = page.getByRole('region', { name: 'Messages' });
  await expect(newest).toContainText('Mission: look at the build');
  await expect(newest.getByRole('link', { name: /has completed/ })).toHaveAttribute('href', `/timers/${id}`);
  const link = page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Messages' });
  await expect(link).toHaveText(/Messages\s*1$/);
  await page.keyboard.press('4');
  await expect(link).toHaveText(/Messages$/);
  const message = page.getByRole('article', { name: 'Message to default' });
  await expect(message).toContainText('Not seen');
  // This agent has no waker, so the message cannot be sent again.
  await expect(message.getByRole('button', { name: 'Send again' })).toHaveCount(0);
  await message.getByRole('link', { name: 'Open timer' }).click();
  await expect(page).toHaveURL(new RegExp(id ?? ''));
  await expect(page.getByRole('region', { name: 'History' })).toContainText('Message to default');
  await page.reload();
  await expect(link).toHaveText(/Messages$/);
  await page.goBack();
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Delivery failed');
  await expect(page.getByText('No matching messages')).toBeVisible();
  await expect(page).toHaveURL(/\/messages\?show=failed$/);
});

test.describe('with a waker', () => {
  const command = 'test -e "$ABIDE_DIR/up" || { echo the sink is down >&2; exit 3; }';
  test.use({ config: `[[wakers]]\ncommand = ["sh", "-c", ${JSON.stringify(command)}]\nafter = 0\n` });

  test('a failed delivery is shown and sent again on request', async ({ abide, inside: page }) => {
    await abide.timers({ total_duration: 0.05, mission: 'look at the build' });
    await page.keyboard.press('4');
    const message = page.getByRole('article', { name: 'Message to default' });
    const deliveries = message.getByRole('list', { name: 'Deliveries' });
    await expect(deliveries).toContainText('the sink is down');
    writeFileSync(join(abide.dir, 'up'), '');
    await message.getByRole('button', { name: 'Send again' }).click();
    await waitForToast(page, 'The message is being sent again');
    await expect(deliveries).toContainText('delivered');
  });
});

test('the output in a message is shown as output', async ({ abide, inside: page }) => {
  const id = await abide.session('echo "a  mango"; cat');
  await expect(page.getByRole('group', { name: `Last lines of ${id}` })).toContainText('a  mango');
  await abide.cli('session', 'kill', id);
  await page.keyboard.press('4');
  const message = page.getByRole('article', { name: 'Message to default' });
  await expect(message.getByRole('group', { name: 'Last lines' })).toHaveText('a  mango');
  await expect(message).toContainText('Last lines:');
});
