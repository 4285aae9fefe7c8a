// The pictures for the README: a real daemon, real sessions, real timers.

import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Page } from '@playwright/test';
import { type Abide, expect, test } from '../tests/abide';

const DEMO = resolve(import.meta.dirname, '../../demo');
const LARGEST = 150_000;

async function furnish(abide: Abide): Promise<void> {
  await abide.ask('POST', '/v1/tools/shell', { command: 'cargo fmt --check || true' });
  await abide.session(
    String.raw`bash -c 'n=0; while :; do n=$((n+1)); printf "test orchard::row_%03d ... ok\n" $n; sleep 0.3; done'`,
  );
  await abide.session(
    String.raw`bash -c 'for n in 1 2 3; do echo "epoch $n/40  loss 0.4$((9-n))1  val 0.5$((9-n))3"; sleep 0.2; done; exec timeout 600 sha256sum /dev/zero'`,
  );
  await abide.session(`bash -c 'echo "Listening on http://localhost:3000"; echo "GET / 200 3ms"; exec sleep 900'`);
  await abide.timers(
    { total_duration: 600, timeout_duration: 60, reason: 'Waiting for build to complete' },
    { total_duration: 300, timeout_duration: 120, reason: 'Server start', until: { port: 39_421 } },
    { total_duration: 7_200, mission: 'Look at the nightly results and write the summary' },
    { total_duration: 0.05, mission: 'Check that the certificates were renewed' },
  );
}

function ask(abide: Abide): void {
  const command = String.raw`echo "Applying migration 0042_orchards"; echo "Applying migration 0043_trees"; printf "Drop table old_trees? [y/N] "; sleep 1000`;
  abide.start('run', '--idle', '2s', '--', command);
}

async function draw(page: Page, name: string): Promise<void> {
  const path = resolve(DEMO, name);
  await page.screenshot({ path, animations: 'allow' });
  // Where there is a tool for it, fewer colours make it smaller; the picture is flat anyway.
  try {
    execFileSync('pngquant', ['--force', '--skip-if-larger', '--output', path, '64', path]);
  } catch {
    // As large as it is.
  }
  expect(statSync(path).size).toBeLessThan(LARGEST);
}

test('what happens now, light', async ({ abide, inside: page }) => {
  await page.setViewportSize({ width: 1600, height: 1000 });
  await furnish(abide);
  ask(abide);
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
  await expect(page.getByRole('group', { name: /^Last lines/ }).filter({ hasText: 'row_004' })).toBeVisible();
  await expect(page.getByText('Check that the certificates')).toBeVisible();
  await draw(page, 'page-light.png');
});

test.describe('a phone', () => {
  test.use({ viewport: { width: 390, height: 760 }, colorScheme: 'dark', deviceScaleFactor: 2 });

  test('a question, dark', async ({ abide, inside: page }) => {
    ask(abide);
    await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
    await draw(page, 'page-dark.png');
  });
});
