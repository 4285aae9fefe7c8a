import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, waitForToast } from './abide';

const ASKS =
  '[[policy.rule]]\nrun = ["touch"]\ndo = "ask"\nwhy = "makes a file"\n' +
  '[[policy.rule]]\nrun = ["true", "denied"]\ndo = "deny"\nwhy = "a rule for this test"\n';

test.use({ config: ASKS });

test('a rule of "always" is listed, asked about, removed, and the decision is recorded', async ({ abide, inside: page }) => {
  const always = '[[rule]]\nname = "always-1"\nrun = ["touch", "made"]\ndo = "allow"\nwhy = "a person always allows it"\n';
  writeFileSync(join(abide.dir, 'policy.toml'), always, { mode: 0o600 });
  await abide.ask('POST', '/v1/tools/shell', { command: 'touch made' });
  await abide.ask('POST', '/v1/tools/shell', { command: 'true denied' });
  await page.keyboard.press('5');
  await expect(page.getByRole('heading', { name: 'Rules', level: 1 })).toBeVisible();
  const own = page.getByRole('region', { name: 'Yours' });
  await expect(own.getByRole('article')).toHaveCount(3);
  await expect(own.getByRole('article', { name: 'Rule always-1' })).toContainText('touch made');
  await expect(page.getByRole('region', { name: 'Built in' })).toContainText('force-push');
  // Only rules that were added on the page can be removed on the page.
  await expect(page.getByRole('button', { name: /^Remove rule/ })).toHaveCount(1);
  await own.getByRole('button', { name: 'Remove rule always-1' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Cancel' }).click();
  expect(readFileSync(join(abide.dir, 'policy.toml'), 'utf8')).toContain('always-1');
  await own.getByRole('button', { name: 'Remove rule always-1' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Remove' }).click();
  await waitForToast(page, 'Rule always-1 removed');
  await expect(own.getByRole('article')).toHaveCount(2);
  expect(readFileSync(join(abide.dir, 'policy.toml'), 'utf8')).not.toContain('always-1');
  await page.getByRole('tab', { name: 'Decisions' }).click();
  const list = page.getByRole('list', { name: 'Decisions' });
  await expect(list.getByRole('article')).toHaveCount(3);
  await expect(list.getByRole('article').first()).toContainText('Rule removed');
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Denied');
  await expect(list.getByRole('article')).toHaveCount(1);
  await expect(list).toContainText('true denied');
  await expect(page).toHaveURL(/event=deny/);
  await page.getByRole('searchbox', { name: 'Search decisions' }).fill('nothing like it');
  await expect(page.getByText('No matching decisions')).toBeVisible();
  await page.getByRole('button', { name: 'Verify the log' }).click();
  await expect(page.getByText(/^Intact: 3 lines/)).toBeVisible();
});

test('a command line is judged and not run', async ({ abide, inside: page }) => {
  await page.keyboard.press('5');
  const form = page.getByRole('form', { name: 'Test a command' });
  const field = form.getByRole('textbox');
  await field.fill(`cd ${abide.dir} && touch evidence`);
  await field.press('Enter');
  await expect(form.getByRole('status')).toContainText('makes a file');
  await expect(form.getByRole('list', { name: 'Commands in it' })).toContainText('touch evidence');
  await field.fill('ls');
  await form.getByRole('button', { name: 'Test' }).click();
  await expect(form.getByRole('status')).toContainText('no rule matches');
  await expect(form.getByRole('status')).toContainText('Allow');
  expect(() => readFileSync(join(abide.dir, 'evidence'))).toThrow();
});

test('invalid rules are reported', async ({ abide, inside: page }) => {
  writeFileSync(join(abide.dir, 'config.toml'), '[policy');
  await page.keyboard.press('5');
  await expect(page.getByText(/so all commands of agents are refused: .*config.toml/)).toBeVisible();
});

test('refusals of a sandbox are listed with their session', async ({ abide, inside: page }) => {
  await page.keyboard.press('5');
  await page.getByRole('tab', { name: 'Sandbox' }).click();
  await expect(page.getByText('No sandbox has refused anything')).toBeVisible();
  await abide.cli('run', '--sandbox', 'read-only', '--cwd', '/usr/share', '--', 'sh', '-c', 'echo x > /usr/share/<b>x 2>/dev/null; true');
  const list = page.getByRole('list', { name: 'Refusals' });
  await page.reload();
  await expect(list).toContainText('/usr/share/<b>x');
  await expect(list).toContainText('1 refusal');
  await list.getByRole('link', { name: /^Open session/ }).click();
  await expect(page).toHaveURL(/\/sessions\//);
});
