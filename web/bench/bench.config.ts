// Measures the page, with the same daemon and browser that its tests use.
import { defineConfig } from '@playwright/test';
import tests from '../playwright.config';

export default defineConfig({
  ...tests,
  testDir: '.',
  outputDir: '../test-results',
  testMatch: '*.bench.ts',
  workers: 1,
  timeout: 900_000,
  reporter: [['line']],
});
