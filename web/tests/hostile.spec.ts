import { expect, quietCommand, test } from './abide';

// Output that tries to escape: markup, scripts, terminal escapes, and characters that change the text
// direction. Every test here fails if any of it takes effect.
const MARKUP = `<img src=x onerror="alert(1)"><script>alert(2)</script></pre></article><h1 id=evil>evil</h1>`;

test('output of a command is always shown as text', async ({ abide, inside: page }) => {
  const id = await abide.session(
    `printf '%s\\n' '${MARKUP}'; printf '\\033]0;evil title\\007\\033]52;c;ZXZpbA==\\007\\033[31mred\\033[0m \\342\\200\\256txt.exe\\n'; cat`,
  );
  const tail = page.getByRole('group', { name: `Last lines of ${id}` });
  await expect(tail).toContainText('<script>alert(2)</script>');
  await expect(page.locator('#evil')).toHaveCount(0);
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.locator('.xterm-rows')).toContainText('<script>alert(2)</script>');
  await expect(page.locator('#evil')).toHaveCount(0);
  await expect(page).toHaveTitle('Session · abide');
});

test('hidden characters of a command are visible in its question', async ({ abide, inside: page }) => {
  quietCommand(abide, `sleep 1000 # \u202e${MARKUP}\u2066\u200b`);
  const command = page.getByRole('article', { name: /Continue waiting/ }).locator('.command');
  await expect(command).toHaveText(`sleep 1000 # U+202E${MARKUP}U+2066U+200B`);
  await expect(page.locator('#evil')).toHaveCount(0);
});

test('reasons, folders and names are shown as text', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 600, reason: MARKUP });
  await expect(page.getByRole('article').filter({ hasText: '<script>alert(2)</script>' })).toBeVisible();
  await page.keyboard.press('2');
  await expect(page.getByRole('listitem').filter({ hasText: '<script>alert(2)</script>' })).toBeVisible();
  await expect(page.locator('#evil')).toHaveCount(0);
  await page.goto(`http://${abide.address()}/%3Cscript%3Ealert(3)%3C/script%3E`);
  await expect(page.getByText('Nothing at')).toBeVisible();
});

test('an address that names no session and no timer is not found', async ({ abide, inside: page }) => {
  for (const path of ['/sessions/stats', '/timers/stats']) {
    await page.goto(`http://${abide.address()}${path}`);
    await expect(page.getByText(`Nothing at ${path}`)).toBeVisible();
  }
});

test('the page has a strict content security policy', async ({ abide, page }) => {
  const response = await page.goto(`http://${abide.address()}/`);
  const policy = response?.headers()['content-security-policy'] ?? '';
  expect(policy).toContain("default-src 'none'");
  expect(policy).toContain("frame-ancestors 'none'");
  expect(policy).not.toContain('unsafe');
});
