import { expect, note, test } from './abide';

test('a message comes as it is written, and is sent again on request', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 0.05, mission: 'look at the build' });
  await expect(page.getByRole('region', { name: 'Messages' })).toContainText('Mission: look at the build');
  await page.keyboard.press('4');
  const message = page.getByRole('article', { name: 'Message to default' });
  await expect(message).toContainText('Not seen yet');
  await page.route('**/v1/messages/*/wake', (route) =>
    route.fulfill({
      status: 409,
      contentType: 'application/problem+json',
      body: JSON.stringify({ detail: 'No waker is configured for agent default.' }),
    }),
  );
  await message.getByRole('button', { name: 'Send again' }).click();
  await expect(note(page, 'No waker is configured for agent default.')).toBeVisible();
  await page.getByLabel('Which').selectOption('Waking failed');
  await expect(page.getByText('No message is like that')).toBeVisible();
});
