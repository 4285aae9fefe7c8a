import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const FOLDER = import.meta.dirname;
const text = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.css'))
  .map((name) => readFileSync(join(FOLDER, name), 'utf8'))
  .join('\n')
  .replace(/\/\*[^]*?\*\//g, '');

/** Blocks of declarations whose selector, or the media query around it, names the dark theme. */
function darkBlocks(): string[] {
  const ofTheme = [...text.matchAll(/\[data-theme[^{]*\{([^{}]*)\}/g)];
  const ofSystem = [...text.matchAll(/@media[^{]*prefers-color-scheme[^{]*\{\s*([^{}]*)\{([^{}]*)\}\s*\}/g)];
  return [...ofTheme.map((block) => block[1] ?? ''), ...ofSystem.map((block) => block[2] ?? '')];
}

test('the themes differ in nothing but colours', () => {
  const blocks = darkBlocks();
  expect(blocks.length).toBeGreaterThanOrEqual(2);
  const names = blocks.flatMap((block) => [...block.matchAll(/(?:^|;)\s*([\w-]+)\s*:/g)].map((found) => found[1] ?? ''));
  expect(names.length).toBeGreaterThan(20);
  expect(names.filter((name) => !name.startsWith('--') && name !== 'color-scheme')).toEqual([]);
  // No other place names a theme.
  const named = text.match(/data-theme|prefers-color-scheme/g) ?? [];
  expect(named.length).toBe(text.match(/\[data-theme[^{]*\{|@media[^{]*prefers-color-scheme/g)?.length);
});

test('variables of a theme are used for colours and shadows alone', () => {
  const variables = new Set(darkBlocks().flatMap((block) => [...block.matchAll(/(--[\w-]+)\s*:/g)].map((found) => found[1] ?? '')));
  const uses = [...text.matchAll(/([\w-]+)\s*:\s*([^;{}]*var\((--[\w-]+)[^;{}]*)/g)].filter((use) => variables.has(use[3] ?? ''));
  const properties = new Set(uses.map((use) => use[1] ?? '').filter((name) => !name.startsWith('--')));
  const ofColour = /^(color|background(-color|-image)?|border(-(top|right|bottom|left))?(-color)?|box-shadow|outline(-color)?|fill|stroke|text-decoration(-color)?|accent-color|caret-color)$/;
  expect([...properties].filter((name) => !ofColour.test(name))).toEqual([]);
});
