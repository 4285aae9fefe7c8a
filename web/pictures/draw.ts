// Screenshots as small files.

import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { expect, type Page } from '@playwright/test';

const LARGEST = 150_000;

/** Writes a screenshot to this file, with fewer colours, which a flat picture does not need. */
export async function draw(page: Page, path: string): Promise<void> {
  await page.screenshot({ path, animations: 'allow' });
  execFileSync('pngquant', ['--force', '--output', path, '128', path]);
  expect(statSync(path).size).toBeLessThan(LARGEST);
}
