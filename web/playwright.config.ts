// The page in a real browser, against the real daemon. No retries: what fails now and then is a bug.
import { execFileSync } from 'node:child_process';
import { defineConfig } from '@playwright/test';

function browser(): string {
  const given = process.env['CHROMIUM'];
  if (given) return given;
  return execFileSync('sh', ['-c', 'command -v chromium || command -v chromium-browser'], { encoding: 'utf8' }).trim();
}

// A page that comes from a folder is no local one for the browser, and may not open a socket to the daemon.
const FROM_DISK = process.env['ABIDE_PAGE'] ? ['--disable-features=LocalNetworkAccessChecks'] : [];

export default defineConfig({
  testDir: 'tests',
  outputDir: 'test-results',
  fullyParallel: true,
  forbidOnly: true,
  retries: 0,
  // Most tests wait for the daemon or an animation, so two share a core.
  workers: '200%',
  // Generous, since nothing here is measured: on a busy machine a browser takes its time.
  timeout: 900_000,
  expect: { timeout: 120_000 },
  reporter: [['list']],
  use: {
    // The themes differ in colours only (`src/style/themes.test.ts`); tests of colours use both.
    colorScheme: 'light',
    viewport: { width: 1280, height: 800 },
    trace: 'off',
    launchOptions: { executablePath: browser(), args: ['--no-sandbox', ...FROM_DISK] },
  },
});
