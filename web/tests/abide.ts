// A daemon of its own for every test, and a browser that is logged in. Every test fails if the page violates
// its content security policy, throws, or sends a request to another host.

import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test as base, type Page } from '@playwright/test';
import { pageFromDisk } from './from-disk';

const BINARY = resolve(process.env['ABIDE_BIN'] ?? '../target/debug/abide');
const run = promisify(execFile);

export class Abide {
  readonly dir = mkdtempSync(join(tmpdir(), 'abide-page-'));
  private readonly children: ChildProcess[] = [];

  private get env(): NodeJS.ProcessEnv {
    return { ...process.env, ABIDE_AGENT: undefined, ABIDE_DIR: this.dir };
  }

  /** Output of an abide command. */
  async cli(...words: string[]): Promise<string> {
    const { stdout } = await run(BINARY, words, { env: this.env, cwd: this.dir });
    return stdout;
  }

  /** Starts an abide command and leaves it running. */
  start(...words: string[]): ChildProcess {
    const child = spawn(BINARY, words, { env: this.env, cwd: this.dir, stdio: 'ignore' });
    this.children.push(child);
    return child;
  }

  address(): string {
    return readFileSync(join(this.dir, 'run/http.address'), 'utf8').trim();
  }

  /** Calls a tool of the daemon as an agent. */
  async ask<T>(method: string, path: string, body?: object): Promise<T> {
    const token = readFileSync(join(this.dir, 'token'), 'utf8').trim();
    const response = await fetch(`http://${this.address()}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer: unknown = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer as T;
  }

  /** A terminal session. */
  async session(command: string): Promise<string> {
    const facts = await this.ask<{ session_id: string }>('POST', '/v1/sessions', { command });
    return facts.session_id;
  }

  /** Timers without a waiting call. */
  async timers(...timers: object[]): Promise<string[]> {
    const made = await this.ask<{ timer_ids: string[] }>('POST', '/v1/timers', { timers });
    return made.timer_ids;
  }

  async link(): Promise<string> {
    return (await this.cli('open', '--print')).trim();
  }

  async finish(): Promise<void> {
    for (const child of this.children) child.kill('SIGKILL');
    try {
      // A daemon that the test has stopped is started again.
      await this.cli('kill', '--all', '--yes');
      await this.cli('stop');
    } finally {
      rmSync(this.dir, { recursive: true, force: true });
    }
  }
}

interface Fixtures {
  /** Content of the configuration file. */
  config: string;
  abide: Abide;
  /** The page, logged in, at the first view. */
  inside: Page;
}

/** Records everything that a page must never do. */
function watch(page: Page, origin: string): string[] {
  const wrong: string[] = [];
  page.on('pageerror', (fault) => wrong.push(`thrown: ${fault.message}`));
  page.on('console', (line) => {
    if (/Content.Security.Policy|Refused to|React/.test(line.text())) wrong.push(line.text());
  });
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !/^(data|blob|about):/.test(url)) wrong.push(`asked ${url}`);
  });
  page.on('dialog', (dialog) => {
    wrong.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return wrong;
}

export const test = base.extend<Fixtures>({
  config: ['', { option: true }],
  abide: async ({ config }, give) => {
    const abide = new Abide();
    writeFileSync(join(abide.dir, 'config.toml'), config);
    await abide.cli('status');
    await give(abide);
    await abide.finish();
  },
  inside: async ({ abide, page }, give) => {
    const origin = `http://${abide.address()}/`;
    const wrong = watch(page, origin);
    await keepNotes(page);
    await pageFromDisk(page, origin);
    await page.goto(await abide.link());
    await expect(page.getByText(/^Live, abide/)).toBeVisible();
    await give(page);
    expect(wrong).toEqual([]);
  },
});

export { expect } from '@playwright/test';

/** A toast. */
export function note(page: Page, text: string) {
  return page.getByRole('region', { name: 'Notifications' }).getByText(text);
}

interface Keeping {
  keptNotes: string[];
}

/** Records the text of every toast: a success toast disappears after a few seconds. */
async function keepNotes(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const kept: string[] = [];
    Object.assign(window, { keptNotes: kept } satisfies Keeping);
    const look = () => {
      for (const note of document.querySelectorAll('.toast')) {
        const text = note.textContent;
        if (!kept.includes(text)) kept.push(text);
      }
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
  });
}

/**
 * Settings of a daemon with an address of its own: no other process takes its port while it is down, and a
 * page finds it there again.
 */
export const OWN_ADDRESS = `http = "127.${64 + ((process.pid >> 16) & 63)}.${(process.pid >> 8) & 255}.${process.pid & 255}:0"\n`;

/** Waits until a toast has had this text, even if it is gone already. */
export async function waitForToast(page: Page, text: string): Promise<void> {
  const kept = () => page.evaluate(() => (window as unknown as Keeping).keptNotes);
  await expect.poll(async () => (await kept()).filter((note) => note.includes(text))).not.toEqual([]);
}

/**
 * Opens a session that the page finds in no list: the one of `echo`, with these fields. Only its facts are answered
 * here.
 */
export async function openUnlisted(abide: Abide, page: Page, fields: object): Promise<string> {
  const id = 'session_unlisted';
  const shell = await abide.ask<{ session_id: string }>('POST', '/v1/tools/shell', { command: 'echo unlisted' });
  const facts = await abide.ask<object>('GET', `/v1/sessions/${shell.session_id}`);
  await page.route(`**/v1/sessions/${id}`, (route) => route.fulfill({ json: { ...facts, session_id: id, ...fields } }));
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  return id;
}

/** A command that writes `says` and is then idle, so that a person is asked. */
export function quietCommand(abide: Abide, command: string): void {
  abide.start('run', '--idle', '1s', '--', command);
}
