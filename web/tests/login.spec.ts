import { expect, test } from './abide';
import { pageFromDisk } from './from-disk';

test('the login view shows the command to run and accepts the code', async ({ abide, page }) => {
  await page.goto(`http://${abide.address()}/timers`);
  await expect(page.getByRole('heading', { name: 'Log in' })).toBeVisible();
  await expect(page.getByText('abide open', { exact: true })).toBeVisible();
  await page.getByLabel('Or paste the link or code it prints').fill('not-a-code');
  await page.getByRole('button', { name: 'Log in' }).click();
  await expect(page.getByRole('alert')).not.toBeEmpty();
  await page.getByLabel('Or paste the link or code it prints').fill(await abide.link());
  await page.getByRole('button', { name: 'Log in' }).click();
  await expect(page.getByRole('heading', { name: 'Timers', level: 1 })).toBeVisible();
});

test('a link that is opened in a tab with the page logs in', async ({ abide, page }) => {
  const origin = `http://${abide.address()}/`;
  await pageFromDisk(page, origin);
  await page.goto(origin);
  await expect(page.getByRole('heading', { name: 'Log in' })).toBeVisible();
  await page.goto(await abide.link());
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
  expect(page.url()).toBe(origin);
});

test('the code is removed from the URL and works once', async ({ abide, page, browser }) => {
  const link = await abide.link();
  await page.goto(link);
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
  expect(page.url()).toBe(`http://${abide.address()}/`);
  const stranger = await (await browser.newContext()).newPage();
  await stranger.goto(link);
  await expect(stranger.getByRole('heading', { name: 'Log in' })).toBeVisible();
  await expect(stranger.getByRole('alert')).not.toBeEmpty();
  await stranger.context().close();
});

test('logging out ends the login', async ({ inside: page }) => {
  await page.getByRole('button', { name: 'Log out' }).click();
  await expect(page.getByRole('heading', { name: 'Log in' })).toBeVisible();
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Log in' })).toBeVisible();
});

test('a person can log in again right after logging out', async ({ abide, inside: page }) => {
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Or paste the link or code it prints').fill(await abide.link());
  await page.getByRole('button', { name: 'Log in' }).click();
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
  await expect(page.getByRole('heading', { name: 'All quiet' })).toBeVisible();
});

test('a script cannot read the cookie', async ({ inside: page }) => {
  expect(await page.evaluate(() => document.cookie)).toBe('');
});

test('many pages of one browser are connected at once', async ({ abide, context, inside: page }) => {
  const address = `http://${abide.address()}/`;
  for (let n = 0; n < 9; n += 1) {
    const another = await context.newPage();
    await pageFromDisk(another, address);
    await another.goto(`${address}timers`);
    await expect(another.getByText(/^Live, abide/)).toBeVisible();
  }
  // Closed pages do not use up connections.
  for (const view of ['timers', 'sessions', 'messages', 'timers', 'sessions', 'messages', 'timers', 'sessions']) {
    await page.goto(address + view);
    await expect(page.getByText(/^Live, abide/)).toBeVisible();
  }
});
