import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, told } from './abide';

test('a message comes as it is written; where nothing wakes its agent, sending it again is refused', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 0.05, mission: 'look at the build' });
  await expect(page.getByRole('region', { name: 'Messages' })).toContainText('Mission: look at the build');
  await page.keyboard.press('4');
  const message = page.getByRole('article', { name: 'Message to default' });
  await expect(message).toContainText('Not seen');
  await message.getByRole('button', { name: 'Send again' }).click();
  await told(page, 'The message was not sent again');
  await told(page, 'agent default');
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Delivery failed');
  await expect(page.getByText('No matching messages')).toBeVisible();
});

test.describe('with a waker', () => {
  const command = 'test -e "$ABIDE_DIR/up" || { echo the sink is down >&2; exit 3; }';
  test.use({ config: `[[wakers]]\ncommand = ["sh", "-c", ${JSON.stringify(command)}]\nafter = 0\n` });

  test('what failed is told, and is sent again on request', async ({ abide, inside: page }) => {
    await abide.timers({ total_duration: 0.05, mission: 'look at the build' });
    await page.keyboard.press('4');
    const message = page.getByRole('article', { name: 'Message to default' });
    const deliveries = message.getByRole('list', { name: 'Deliveries' });
    await expect(deliveries).toContainText('the sink is down');
    writeFileSync(join(abide.dir, 'up'), '');
    await message.getByRole('button', { name: 'Send again' }).click();
    await told(page, 'The message is being sent again');
    await expect(deliveries).toContainText('delivered');
  });
});
