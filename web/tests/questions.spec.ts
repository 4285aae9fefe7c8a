import { expect, quietCommand, test, waitForToast } from './abide';

const COMMAND = `echo "step one"; echo "step two"; sleep 1000 # ${'a command that is long and never cut in its middle '.repeat(6)}end`;

test('a question shows its exact command and last lines, and yes keeps it running', async ({ abide, inside: page }) => {
  quietCommand(abide, COMMAND);
  const card = page.getByRole('article', { name: 'Command has been idle for 1s. Continue waiting?' });
  await expect(card).toBeVisible();
  await expect(card.locator('.command')).toHaveText(COMMAND);
  const cut = await card.locator('.command').evaluate((box) => box.scrollWidth > box.clientWidth);
  expect(cut).toBe(false);
  await expect(card.getByRole('group', { name: /^Last lines of/ })).toContainText('step two');
  await expect(page.getByTestId('announcer')).toContainText('Continue waiting?');
  await expect(page).toHaveTitle(/^\(1\)/);
  const title = () => card.getAttribute('aria-labelledby');
  const first = await title();
  await card.getByRole('button', { name: 'Yes, keep waiting' }).click();
  // The command keeps running: after another idle time there is another question.
  await expect.poll(title).not.toBe(first);
  await expect(card).toBeVisible();
});

test('no kills the command', async ({ abide, inside: page }) => {
  quietCommand(abide, 'sleep 1000');
  await page.getByRole('button', { name: 'No, kill it' }).click();
  await expect(page.getByRole('heading', { name: 'All quiet' })).toBeVisible();
  // The first view shows the ended session and its result.
  const finished = page.getByRole('region', { name: 'Recently finished' }).getByRole('listitem');
  await expect(finished).toHaveText([/Declined by a person.*sleep 1000/]);
  await page.getByRole('link', { name: 'Sessions', exact: true }).click();
  await expect(page.getByText('declined by a person')).toBeVisible();
});

test('yes for ten minutes stops further questions', async ({ abide, inside: page }) => {
  quietCommand(abide, 'sleep 1000');
  await page.getByRole('button', { name: 'Yes, and stop asking for 10 minutes' }).click();
  await expect(page.getByRole('heading', { name: '1 session running' })).toBeVisible();
  const open = async () => (await abide.ask<{ questions: unknown[] }>('GET', '/v1/questions')).questions;
  await expect.poll(open).toEqual([]);
});

test('a question is answered with keys alone, and only on its card', async ({ abide, inside: page }) => {
  quietCommand(abide, 'sleep 1000');
  const card = page.getByRole('article', { name: /Continue waiting/ });
  await expect(card).toBeVisible();
  await page.keyboard.press('n');
  await expect(card).toBeVisible();
  await page.keyboard.press('j');
  await expect(card).toBeFocused();
  await page.keyboard.press('n');
  await expect(page.getByRole('heading', { name: 'All quiet' })).toBeVisible();
});

test('a late answer shows an error and changes nothing', async ({ abide, inside: page }) => {
  quietCommand(abide, 'sleep 1000');
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
  await page.route('**/v1/questions/*/answer', (route) =>
    route.fulfill({
      status: 409,
      contentType: 'application/problem+json',
      body: JSON.stringify({ detail: 'The question has been answered already: yes.' }),
    }),
  );
  await page.getByRole('button', { name: 'No, kill it' }).click();
  await waitForToast(page, 'Your answer was not accepted');
  await waitForToast(page, 'The question has been answered already: yes.');
  await expect(page.getByRole('button', { name: 'No, kill it' })).toBeEnabled();
});

test('a question that was answered elsewhere disappears', async ({ abide, inside: page }) => {
  quietCommand(abide, 'sleep 1000');
  const card = page.getByRole('article', { name: /Continue waiting/ });
  await expect(card).toBeVisible();
  const { questions } = await abide.ask<{ questions: { question_id: string }[] }>('GET', '/v1/questions');
  await abide.cli('answer', questions[0]?.question_id ?? '', 'no');
  await expect(card).toBeHidden();
});

test('a question is at the top of every view and is answered there', async ({ abide, inside: page }) => {
  await page.keyboard.press('2');
  quietCommand(abide, COMMAND);
  const bar = page.getByRole('complementary', { name: 'Open question' });
  await expect(bar).toContainText('Continue waiting?');
  await expect(bar).toBeInViewport();
  await bar.getByRole('button', { name: 'Answer' }).click();
  const dialog = page.getByRole('dialog', { name: 'Question' });
  await expect(dialog.locator('.command')).toHaveText(COMMAND);
  await dialog.getByRole('button', { name: 'No, kill it' }).click();
  await expect(bar).toBeHidden();
  await expect(dialog).toBeHidden();
});

test('on a phone the question at the top shows its command, and its session has no link to itself', async ({ inside: page, abide }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await page.keyboard.press('2');
  quietCommand(abide, COMMAND);
  const bar = page.getByRole('complementary', { name: 'Open question' });
  await expect(bar.getByText(/step one/)).toBeVisible();
  await bar.getByRole('button', { name: 'Answer' }).click();
  await page.getByRole('dialog', { name: 'Question' }).getByRole('link', { name: 'Open session' }).click();
  const card = page.getByRole('article', { name: /Continue waiting/ });
  await expect(card).toBeVisible();
  await expect(card.getByRole('link', { name: 'Open session' })).toHaveCount(0);
});

test('a command that a rule holds is allowed or refused with a reason for the agent', async ({ abide, inside: page }) => {
  const call = abide.ask<{ text: string }>('POST', '/v1/tools/shell', { command: 'sudo -n true' });
  const card = page.getByRole('article').filter({ hasText: 'sudo -n true' });
  await expect(card).toBeVisible();
  await expect(card).toContainText('runs a command as another user');
  await card.getByLabel('Reason if you say no').fill('use the container instead');
  await card.getByRole('button', { name: 'No', exact: true }).click();
  await expect(card).toBeHidden();
  expect((await call).text).toContain('use the container instead');
});
