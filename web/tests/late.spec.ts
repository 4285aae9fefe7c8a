// Responses and events arrive in any order, and either may be late. A button shows its expected result at
// once, and that result must not be reverted for a moment and shown again.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from '@playwright/test';
import { type Abide, expect, quietCommand, test, waitForToast } from './abide';

interface Gate {
  hold: () => void;
  release: () => void;
  /** All events that the page has received. */
  heard: string;
}

const ORDERS = ['the answer comes long before the event', 'the event comes long before the answer'] as const;
type Order = (typeof ORDERS)[number];

/** Puts a gate into the event stream. */
async function gateEvents(page: Page): Promise<void> {
  await page.addInitScript(() => {
    let open: Promise<void> = Promise.resolve();
    const gate: Gate = { hold: () => undefined, release: () => undefined, heard: '' };
    gate.hold = () => {
      open = new Promise((done) => (gate.release = done));
    };
    // Messages pass in order, none before the gate is open.
    window.WebSocket = class extends WebSocket {
      override set onmessage(take: ((message: MessageEvent<string>) => void) | null) {
        if (!new URL(this.url).pathname.startsWith('/v1/events')) {
          super.onmessage = take;
          return;
        }
        let before = Promise.resolve();
        super.onmessage = (message: MessageEvent<string>) => {
          before = before
            .then(() => open)
            .then(() => {
              gate.heard += message.data;
              take?.(message);
            });
        };
      }
    };
    Object.assign(window, { gate });
  });
  await page.reload();
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
}

declare global {
  interface Window {
    gate: Gate;
    shown: string[];
  }
}

/** Records every state of `selector` from now on; `gone` if there is no such element. */
async function noteLooks(page: Page, selector: string): Promise<void> {
  await page.evaluate((selector) => {
    const look = () => document.querySelector(selector)?.textContent ?? 'gone';
    window.shown = [look()];
    new MutationObserver(() => {
      if (look() !== window.shown.at(-1)) window.shown.push(look());
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  }, selector);
}

async function settle(page: Page): Promise<void> {
  await page.evaluate(async () => {
    for (let n = 0; n < 4; n += 1) await new Promise(requestAnimationFrame);
  });
}

const heard = (page: Page, words: RegExp) => expect.poll(() => page.evaluate(() => window.gate.heard)).toMatch(words);

/** Runs `act`, which posts to `path`, with its response and the event that contains `expected` in this order. */
async function inOrder(page: Page, order: Order, path: RegExp, expected: RegExp, act: () => Promise<void>): Promise<void> {
  await page.evaluate(() => {
    window.gate.heard = '';
  });
  if (order === ORDERS[0]) {
    await page.evaluate(() => window.gate.hold());
    const answered = page.waitForResponse((response) => path.test(response.url()));
    await act();
    await (await answered).finished();
    await settle(page);
    await page.evaluate(() => window.gate.release());
    await heard(page, expected);
  } else {
    let release: () => void = () => undefined;
    const held = new Promise<void>((done) => (release = done));
    await page.route(path, async (route) => {
      const response = await route.fetch();
      await held;
      await route.fulfill({ response });
    });
    await act();
    await heard(page, expected);
    await settle(page);
    const answered = page.waitForResponse((response) => path.test(response.url()));
    release();
    await (await answered).finished();
    await page.unroute(path);
  }
  await settle(page);
}

/** Asserts that each state was shown once: nothing was reverted. */
async function looks(page: Page): Promise<string[]> {
  return page.evaluate(() => window.shown);
}

async function timer(abide: Abide, page: Page): Promise<string> {
  const [id] = await abide.timers({ total_duration: 600, reason: 'tea' });
  await expect(page.getByRole('article', { name: 'tea' })).toBeVisible();
  return id ?? '';
}

for (const order of ORDERS) {
  test(`timers: ${order}`, async ({ abide, inside: page }) => {
    await gateEvents(page);
    const id = await timer(abide, page);
    const card = page.getByRole('article', { name: 'tea' });
    const act = (word: string) => new RegExp(`/v1/timers/${id}/${word}$`);
    const became = (status: string) => new RegExp(`event: timer\\n(?:.*\\n)*?data: .*"status":"${status}"`);
    const chip = '.timer-card .chip';
    await noteLooks(page, chip);
    await inOrder(page, order, act('pause'), became('paused'), async () => {
      await card.getByRole('button', { name: 'Pause' }).click();
      await page.getByRole('menuitem', { name: '5 minutes', exact: true }).click();
    });
    expect(await looks(page)).toEqual(['Running', 'Paused']);
    await expect(card).toContainText(/resumes in [45]m/);
    await noteLooks(page, chip);
    await inOrder(page, order, act('resume'), became('running'), () => card.getByRole('button', { name: 'Resume' }).click());
    expect(await looks(page)).toEqual(['Paused', 'Running']);
    await noteLooks(page, chip);
    await inOrder(page, order, act('cancel'), became('running_background'), () => card.getByRole('button', { name: 'Run in background' }).click());
    expect(await looks(page)).toEqual(['Running', 'In background']);
    await noteLooks(page, chip);
    await inOrder(page, order, act('stop'), became('stopped'), async () => {
      await card.getByRole('button', { name: 'Stop timer…' }).click();
      await page.getByRole('button', { name: 'Stop timer', exact: true }).click();
    });
    await expect(card).toBeHidden();
    expect((await looks(page)).filter((look) => look !== 'Stopped')).toEqual(['In background', 'gone']);
  });

  test(`a session that is killed: ${order}`, async ({ abide, inside: page }) => {
    await gateEvents(page);
    const id = await abide.session('exec sleep 1000');
    const card = page.getByRole('article', { name: 'exec sleep 1000' });
    await expect(card.getByText('Running')).toBeVisible();
    await noteLooks(page, '.session-card .chip');
    await inOrder(page, order, new RegExp(`/v1/sessions/${id}/kill$`), /event: session\n(?:.*\n)*?data: .*"end":"user"/, async () => {
      await card.getByRole('button', { name: 'Kill' }).click();
      await page.getByRole('button', { name: 'Kill it' }).click();
    });
    await expect(card).toBeHidden();
    const seen = (await looks(page)).filter((look) => look !== 'Killed by a person');
    expect(seen).toEqual(['Running', 'Killing…', 'gone']);
  });

  test(`a question that is answered: ${order}`, async ({ abide, inside: page }) => {
    await gateEvents(page);
    quietCommand(abide, 'sleep 1000');
    const card = page.getByRole('article', { name: /Continue waiting/ });
    await expect(card).toBeVisible();
    await noteLooks(page, '.question-rest > .answered, .question-rest > .row-of-buttons');
    await inOrder(page, order, /\/v1\/questions\/[^/]+\/answer$/, /"state":"closed"/, () =>
      card.getByRole('button', { name: 'No, kill it' }).click(),
    );
    await expect(card).toBeHidden();
    expect((await looks(page)).slice(1)).toEqual(['Answering no…', 'gone']);
  });
}

test.describe('with a waker', () => {
  const command = 'test -e "$ABIDE_DIR/up" || { echo the sink is down >&2; exit 3; }';
  test.use({ config: `[[wakers]]\ncommand = ["sh", "-c", ${JSON.stringify(command)}]\nafter = 0\n` });

  for (const order of ORDERS) {
    test(`a message that is sent again: ${order}`, async ({ abide, inside: page }) => {
      await gateEvents(page);
      await abide.timers({ total_duration: 0.05, mission: 'look at the build' });
      await page.keyboard.press('4');
      const message = page.getByRole('article', { name: 'Message to default' });
      await expect(message).toContainText('the sink is down');
      writeFileSync(join(abide.dir, 'up'), '');
      const delivered = /event: message\n(?:.*\n)*?data: .*"ok":true/;
      const again = message.getByRole('button', { name: 'Send again' });
      await noteLooks(page, '.message');
      await inOrder(page, order, /\/v1\/messages\/[^/]+\/wake$/, delivered, () => again.click());
      await expect(message.getByRole('list', { name: 'Deliveries' })).toContainText('delivered');
      await expect(again).toBeEnabled();
      const all = await looks(page);
      const runs = (words: [RegExp, string][]) => {
        const said = all.map((look) => words.find(([pattern]) => pattern.test(look))?.[1] ?? 'neither');
        return said.filter((word, place) => word !== said[place - 1]);
      };
      expect(runs([[/Sending…/, 'sending'], [/Send again/, 'idle']])).toEqual(['idle', 'sending', 'idle']);
      const became = runs([[/delivered/, 'delivered'], [/the sink is down/, 'failed']]);
      expect(became.filter((word) => word !== 'neither')).toEqual(['failed', 'delivered']);
    });
  }
});

test('an action that comes too late shows the daemon’s error, then the event updates the timer', async ({ abide, inside: page }) => {
  await gateEvents(page);
  const id = await timer(abide, page);
  const card = page.getByRole('article', { name: 'tea' });
  await page.evaluate(() => window.gate.hold());
  await abide.ask('POST', `/v1/timers/${id}/stop`, { reason: 'not needed' });
  await card.getByRole('button', { name: 'Run in background' }).click();
  await waitForToast(page, 'The timer was not sent to the background');
  await expect(card.getByText('Running')).toBeVisible();
  await page.evaluate(() => window.gate.release());
  await expect(card).toBeHidden();
});

test('of two actions in a row the later one wins, even if the first is answered late', async ({ abide, inside: page }) => {
  await gateEvents(page);
  const id = await timer(abide, page);
  const card = page.getByRole('article', { name: 'tea' });
  let release: () => void = () => undefined;
  const held = new Promise<void>((done) => (release = done));
  await page.route(`**/v1/timers/${id}/pause`, async (route) => {
    const response = await route.fetch();
    await held;
    await route.fulfill({ response });
  });
  await card.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('menuitem', { name: '1 minute', exact: true }).click();
  await heard(page, /"status":"paused"/);
  await card.getByRole('button', { name: 'Resume' }).click();
  await expect(card.getByText('Running')).toBeVisible();
  await noteLooks(page, '.timer-card .chip');
  // The second action is sent when the first one is answered, so that it cannot overtake it.
  release();
  await heard(page, /"status":"paused"(?:.*\n)*.*"status":"running"/);
  await settle(page);
  expect(await looks(page)).toEqual(['Running']);
});

test('a change of the browser’s clock does not change the time left of a timer', async ({ abide, inside: page }) => {
  await abide.timers({ total_duration: 3_000, reason: 'tea' });
  const left = page.getByRole('article', { name: 'tea' }).locator('.left');
  await expect(left).toHaveText(/^4\d:\d\d$/);
  const asked = page.waitForEvent('websocket');
  await page.evaluate(() => {
    const real = Date.now.bind(Date);
    Date.now = () => real() + 3_600_000;
  });
  await asked;
  await expect(page.getByText(/^Live, abide/)).toBeVisible();
  await expect(left).toHaveText(/^4\d:\d\d$/);
});
