// The pictures for the guide's first walk-through: the question about its command, on a desktop and on a phone.

import { resolve } from 'node:path';
import type { Page } from '@playwright/test';
import { type Abide, expect, test } from '../tests/abide';
import { draw } from './draw';

const PICTURES = resolve(import.meta.dirname, '../../guide/src/pictures');

/** The command of the walk-through, idle for as long as the text says. */
async function ask(abide: Abide, page: Page): Promise<void> {
  abide.start('run', '--agent', 'claude-code', '--idle', '30s', '--', 'echo building; sleep 60; echo built');
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
}

test.describe('a desktop', () => {
  test.use({ viewport: { width: 1100, height: 640 }, deviceScaleFactor: 1.5 });

  test('the first question, light', async ({ abide, inside: page }) => {
    await ask(abide, page);
    await draw(page, resolve(PICTURES, 'question-page.png'));
  });
});

test.describe('a phone', () => {
  test.use({ viewport: { width: 390, height: 700 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });

  test('the first question, light', async ({ abide, inside: page }) => {
    await ask(abide, page);
    await draw(page, resolve(PICTURES, 'question-phone.png'));
  });
});
