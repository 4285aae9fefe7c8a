// Draws the pictures of the page, with the same daemon and browser that its tests use.
import { defineConfig } from '@playwright/test';
import tests from '../playwright.config';

export default defineConfig({ ...tests, testDir: '.', outputDir: '../test-results', testMatch: '*.pictures.ts', workers: 1 });
