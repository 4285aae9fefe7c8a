// Commands and missions of many lines or thousands of characters leave rows, cards and buttons readable.

import type { Locator } from '@playwright/test';
import { expect, quietCommand, test } from './abide';

const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 800 } };
/** Seven lines that keep running, and seven that end at once. */
const STEPS = ['set -e', 'cd .', 'true', 'true', 'true', 'true'];
const RUNNING = [...STEPS, 'sleep 1000'].join('\n');
const ENDED = [...STEPS, 'exit 3'].join('\n');
const MISSION = ['Check the nightly build', 'then', 'write', 'the', 'summary', 'of', 'it'].join('\n');
const SEVEN_THOUSAND = 'sleep 1000 # ' + 'word '.repeat(1_400) + 'end';

/** Asserts that all of these are visible, each within its row or card. */
async function expectInRow(...parts: Locator[]): Promise<void> {
  for (const part of parts) {
    await expect(part).toBeVisible();
    const beyond = await part.evaluate((element) => {
      const inner = element.getBoundingClientRect();
      const outer = element.closest('li, article')?.getBoundingClientRect() ?? new DOMRect();
      return Math.max(outer.left - inner.left, outer.top - inner.top, inner.right - outer.right, inner.bottom - outer.bottom);
    });
    expect(beyond, `how far ${part.toString()} lies outside`).toBeLessThan(1);
  }
}

/** Asserts that all of these are in the viewport and not covered. */
async function expectInSight(things: Locator): Promise<void> {
  expect(await things.count()).toBeGreaterThan(0);
  const hidden = await things.evaluateAll((all) => {
    const inSight = (thing: Element) => {
      const { x, y, width, height } = thing.getBoundingClientRect();
      const corners = [
        [x + 4, y + 4],
        [x + width - 4, y + height - 4],
      ] as const;
      return corners.every(([left, top]) => thing.contains(document.elementFromPoint(left, top)));
    };
    return all.filter((thing) => !inSight(thing)).map((thing) => thing.textContent);
  });
  expect(hidden).toEqual([]);
}

for (const [name, viewport] of Object.entries(SIZES)) {
  test(`a command of seven lines is one line in a row, with everything beside it: ${name}`, async ({ abide, inside: page }) => {
    await page.setViewportSize(viewport);
    const id = await abide.session(RUNNING);
    await abide.ask('POST', '/v1/tools/shell', { command: ENDED });
    const finished = page.getByRole('region', { name: 'Recently finished' }).getByRole('listitem');
    await expectInRow(
      finished.getByText('set -e', { exact: true }),
      finished.getByText('+6 lines'),
      finished.getByText('exit code 3'),
      finished.getByRole('time'),
    );
    const card = page.getByRole('article', { name: /^set -e/ });
    await expectInRow(
      card.getByText('set -e', { exact: true }),
      card.getByText('+6 lines'),
      card.getByText('Running'),
      card.getByRole('button', { name: 'Kill' }),
    );
    await expect(card.getByRole('heading')).not.toContainText('sleep');

    await page.getByRole('link', { name: 'All sessions' }).click();
    const rows = page.getByRole('list', { name: 'Sessions' }).getByRole('listitem');
    await expect(rows).toHaveCount(2);
    const running = rows.filter({ hasText: id });
    await expectInRow(
      running.getByText('set -e', { exact: true }),
      running.getByText('+6 lines'),
      running.getByText('Running'),
      running.getByRole('time'),
      running.getByRole('button', { name: 'Kill' }),
    );
    const ended = rows.filter({ hasText: 'exit code 3' });
    await expectInRow(ended.getByText('+6 lines'), ended.getByText('exit code 3'), ended.getByRole('time'));
    if (name === 'desktop') await expectInRow(running.getByText('default'));
  });

  test(`a mission of seven lines is one line in a row, with everything beside it: ${name}`, async ({ abide, inside: page }) => {
    await page.setViewportSize(viewport);
    const [id] = await abide.timers({ total_duration: 3_600, mission: MISSION });
    const card = page.getByRole('article', { name: /^Check the nightly build/ });
    await expectInRow(card.getByText('+6 lines'), card.getByText('Running'), card.getByRole('button', { name: 'Stop timer…' }));

    await page.getByRole('link', { name: 'All timers' }).click();
    const row = page.getByRole('list', { name: 'Active timers' }).getByRole('listitem');
    await expectInRow(
      row.getByText('Check the nightly build', { exact: true }),
      row.getByText('+6 lines'),
      row.getByText('Running'),
      row.locator('.time-left'),
      row.getByRole('button', { name: 'Actions for Check the nightly build', exact: true }),
    );

    await abide.ask('POST', `/v1/timers/${id ?? ''}/stop`, { reason: 'no longer\nneeded' });
    await page.getByRole('tab', { name: 'History' }).click();
    const past = page.getByRole('list', { name: 'Finished timers' }).getByRole('listitem');
    await expectInRow(
      past.getByText('Check the nightly build', { exact: true }),
      past.getByText('+6 lines'),
      past.getByText('no longer', { exact: true }),
      past.getByText('+1 line', { exact: true }),
      past.getByText('Stopped'),
    );
  });

  test(`a message about a mission of seven lines is short in the feed and whole in the list: ${name}`, async ({ abide, inside: page }) => {
    await page.setViewportSize(viewport);
    await abide.timers({ total_duration: 0.05, mission: MISSION });
    const said = page.getByRole('region', { name: 'Messages' }).getByRole('listitem');
    await expect(said).toContainText('Mission: Check the nightly build');
    await expect(said).toContainText(/\+\d lines/);
    await expect(said).not.toContainText('summary');
    await page.getByRole('link', { name: 'All messages' }).click();
    const message = page.getByRole('article', { name: 'Message to default' });
    await expect(message).toContainText('summary');
    await expect(message.getByRole('link', { name: 'Open timer' })).toBeVisible();
  });

  test(`a hit in the log of a command of seven lines is found in its row: ${name}`, async ({ abide, inside: page }) => {
    await page.setViewportSize(viewport);
    await abide.ask('POST', '/v1/tools/shell', { command: ['echo needle', ...STEPS].join('\n') });
    await page.getByRole('link', { name: 'Sessions', exact: true }).click();
    await page.getByLabel('Search in').selectOption('In the logs');
    await page.getByLabel('Find', { exact: true }).fill('needle');
    const match = page.getByRole('list', { name: 'Matching lines' }).getByRole('listitem');
    await expectInRow(
      match.getByText('echo needle', { exact: true }),
      match.getByText('+6 lines'),
      match.getByText('line 1', { exact: true }),
      match.getByText('needle', { exact: true }),
    );
  });

  for (const [kind, command] of Object.entries({
    'thousands of characters': SEVEN_THOUSAND,
    'hundreds of lines': ['seq 30', ...Array.from({ length: 300 }, (_, n) => `: ${n}`), 'sleep 1000'].join('\n'),
  })) {
    test(`the answers to a question about a command of ${kind} are in sight: ${name}`, async ({ abide, inside: page }) => {
      await page.setViewportSize(viewport);
      quietCommand(abide, command);
      const card = page.getByRole('article', { name: /Continue waiting/ });
      await expect(card.getByRole('group', { name: 'Command' })).toHaveText(command);
      expect(await page.evaluate(() => window.scrollY)).toBe(0);
      await expectInSight(card.getByRole('button'));
      // The whole command can be read with the keyboard too, and its keys answer nothing.
      const area = card.getByRole('group', { name: 'Command' });
      const hidden = () => area.evaluate((box) => box.scrollHeight - box.clientHeight - box.scrollTop);
      expect(await hidden()).toBeGreaterThan(0);
      await area.focus();
      await page.keyboard.press('n');
      await page.keyboard.press('End');
      await expect.poll(hidden).toBeLessThanOrEqual(1);
      await expectInSight(card.getByRole('button'));
      // The same on the page of its session.
      await card.getByRole('link', { name: 'Open session' }).click();
      await expect(page.getByTestId('log-state')).toHaveText('Live');
      await card.scrollIntoViewIfNeeded();
      await expectInSight(card.getByRole('button'));
    });
  }

  test(`the question before a kill keeps its title and buttons in sight: ${name}`, async ({ abide, inside: page }) => {
    await page.setViewportSize(viewport);
    await abide.session(SEVEN_THOUSAND);
    await page.getByRole('button', { name: 'Kill' }).click();
    const dialog = page.getByRole('alertdialog');
    await expectInSight(dialog.getByRole('heading', { name: 'Kill this session?' }));
    await expectInSight(dialog.getByRole('button'));
  });
}
