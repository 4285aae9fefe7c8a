// Questions as browser notifications: shown only if they are allowed and switched on.

import type { Page } from '@playwright/test';
import { expect, quietCommand, test, waitForToast } from './abide';

interface Shown {
  title: string;
  body: string;
  closed: boolean;
}

/** Records each notification that the page creates; the real one is created as well. */
async function noteNotifications(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const made: Notification[] = [];
    const closed = new WeakSet<Notification>();
    class Noted extends Notification {
      constructor(title: string, options?: NotificationOptions) {
        super(title, options);
        made.push(this);
      }

      override close(): void {
        closed.add(this);
        super.close();
      }
    }
    Object.assign(window, {
      Notification: Noted,
      shown: () => made.map((note) => ({ title: note.title, body: note.body, closed: closed.has(note) })),
      clickNotification: () => made[0]?.dispatchEvent(new Event('click')),
      away: false,
    });
    // A headless browser never hides a page.
    Object.defineProperty(Document.prototype, 'hidden', { get: () => (window as unknown as { away: boolean }).away });
  });
  await page.reload();
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
}

const shown = (page: Page) => page.evaluate(() => (window as unknown as { shown: () => Shown[] }).shown());
const leave = (page: Page) => page.evaluate(() => Object.assign(window, { away: true }));

async function allow(page: Page): Promise<void> {
  await page.context().grantPermissions(['notifications']);
  await noteNotifications(page);
}

const bell = (page: Page) => page.getByRole('button', { name: 'Notify me of questions' });

test('a notification shows the question and its command, and a click opens it', async ({ abide, inside: page }) => {
  await allow(page);
  await bell(page).click();
  await expect(bell(page)).toHaveAttribute('aria-pressed', 'true');
  await page.getByRole('link', { name: /^Messages/ }).click();
  await leave(page);
  quietCommand(abide, 'sleep 1000 # \u202e dlrow');
  await expect.poll(() => shown(page)).toHaveLength(1);
  const title = 'Command has been idle for 1s. Continue waiting?';
  expect(await shown(page)).toEqual([{ title, body: 'sleep 1000 # U+202E dlrow', closed: false }]);
  await page.evaluate(() => (window as unknown as { clickNotification: () => void }).clickNotification());
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeFocused();
  expect((await shown(page))[0]?.closed).toBe(true);
});

test('a notification is closed when the question is answered elsewhere', async ({ abide, inside: page }) => {
  await allow(page);
  await bell(page).click();
  await leave(page);
  quietCommand(abide, 'sleep 1000');
  await expect.poll(() => shown(page)).toHaveLength(1);
  const { questions } = await abide.ask<{ questions: { question_id: string }[] }>('GET', '/v1/questions');
  await abide.cli('answer', questions[0]?.question_id ?? '', 'no');
  await expect.poll(async () => (await shown(page))[0]?.closed).toBe(true);
});

test('no notification for a visible page or without opting in', async ({ abide, inside: page }) => {
  await allow(page);
  await leave(page);
  quietCommand(abide, 'sleep 1000');
  const cards = page.getByRole('article', { name: /Continue waiting/ });
  await expect(cards).toHaveCount(1);
  expect(await shown(page)).toEqual([]);
  await page.evaluate(() => Object.assign(window, { away: false }));
  await bell(page).click();
  quietCommand(abide, 'sleep 1001');
  await expect(cards).toHaveCount(2);
  expect(await shown(page)).toEqual([]);
});

test('without permission no notification is shown, and the page says what to do', async ({ abide, inside: page }) => {
  await noteNotifications(page);
  await bell(page).click();
  await waitForToast(page, 'This browser does not allow notifications');
  await expect(bell(page)).toHaveAttribute('aria-pressed', 'false');
  await leave(page);
  quietCommand(abide, 'sleep 1000');
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
  expect(await shown(page)).toEqual([]);
});

test('a browser without notifications for pages does not break the page', async ({ abide, inside: page }) => {
  await page.context().grantPermissions(['notifications']);
  await page.addInitScript(() => {
    const illegal = () => {
      throw new TypeError('Illegal constructor');
    };
    const asked = () => Promise.resolve('granted');
    Object.assign(window, { Notification: Object.assign(illegal, { permission: 'granted', requestPermission: asked }) });
    Object.defineProperty(Document.prototype, 'hidden', { get: () => true });
  });
  await page.reload();
  await bell(page).click();
  quietCommand(abide, 'sleep 1000');
  await waitForToast(page, 'This browser does not support notifications');
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
});
