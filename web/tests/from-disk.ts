// Serves the page from a folder instead of from the program, so that it can be tested without building the
// program: `ABIDE_PAGE=dist npm test`. The content security policy is the daemon's.

import { existsSync, readFileSync } from 'node:fs';
import { extname, join, resolve } from 'node:path';
import type { Page } from '@playwright/test';

const FOLDER = process.env['ABIDE_PAGE'];
const TYPES: Record<string, string> = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
};
/** Paths that are never part of the page. */
const DAEMON = /^\/(v1|mcp|docs|metrics)(\/|$)/;

export async function pageFromDisk(page: Page, origin: string): Promise<void> {
  if (!FOLDER) return;
  const policy = (await fetch(origin)).headers.get('content-security-policy') ?? '';
  const isPage = (url: URL) => url.href.startsWith(origin) && !DAEMON.test(url.pathname);
  await page.route(isPage, (route) => {
    const { pathname } = new URL(route.request().url());
    const named = resolve(join(FOLDER, pathname));
    const file = extname(named) !== '' ? named : resolve(join(FOLDER, 'index.html'));
    if (!existsSync(file)) return route.fulfill({ status: 404 });
    const headers = { 'content-security-policy': policy, 'content-type': TYPES[extname(file)] ?? 'text/plain' };
    return route.fulfill({ headers, body: readFileSync(file) });
  });
}
