// The picture for the README: a real daemon, real sessions, real timers.

import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Abide, expect, test } from '../tests/abide';
import { draw } from './draw';

const DEMO = resolve(import.meta.dirname, '../../demo');

/** Small programs that run long enough for a picture. */
const PROGRAMS = {
  'test.sh': 'n=0; while sleep 0.3; do n=$((n + 1)); printf "test orchard::row_%03d ... ok\\n" $n; done',
  'serve.sh': 'echo "Listening on http://localhost:3000"; echo "GET / 200 3ms"; echo "GET /trees 200 11ms"; exec sleep 900',
  'migrate.sh': 'echo "Applying 0042_orchards"; echo "Applying 0043_trees"; echo "Rebuilding the index of trees"; exec sleep 900',
};

function write(abide: Abide): string {
  const folder = abide.dir;
  for (const [name, text] of Object.entries(PROGRAMS)) writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return folder;
}

async function furnish(abide: Abide, cwd: string): Promise<void> {
  for (const command of ['./serve.sh --port 3000', './test.sh --all']) {
    await abide.ask('POST', '/v1/tools/terminal_session', { action: 'start', command, cwd });
  }
  await abide.timers(
    { total_duration: 600, timeout_duration: 60, reason: 'Waiting for build to complete' },
    { total_duration: 300, timeout_duration: 120, reason: 'Server start', until: { port: 39_421 } },
    { total_duration: 7_200, mission: 'Look at the nightly results and write the summary' },
    { total_duration: 0.05, mission: 'Check that the certificates were renewed' },
  );
}

function ask(abide: Abide): void {
  abide.start('run', '--idle', '2s', '--', './migrate.sh --to 0043');
}

test('what happens now, light', async ({ abide, inside: page }) => {
  await page.setViewportSize({ width: 1600, height: 1000 });
  const folder = write(abide);
  await furnish(abide, folder);
  ask(abide);
  await expect(page.getByRole('article', { name: /Continue waiting/ })).toBeVisible();
  await expect(page.getByRole('group', { name: /^Last lines/ }).filter({ hasText: /row_\d+5 / }).first()).toBeVisible();
  await expect(page.getByText('Mission: Check that the certificates were renewed', { exact: true })).toBeVisible();
  await draw(page, resolve(DEMO, 'page-light.png'));
});
