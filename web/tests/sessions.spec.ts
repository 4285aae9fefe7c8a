import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, openUnlisted, test } from './abide';

test('a session shows its live tail and is killed after a confirmation', async ({ abide, inside: page }) => {
  const id = await abide.session('cat');
  const card = page.getByRole('article', { name: 'cat' });
  await expect(card).toContainText('Waiting for input');
  await abide.cli('session', 'send', id, 'hello there', '--key', 'enter');
  await expect(card.getByRole('group', { name: /^Last lines/ })).toContainText('hello there');
  await expect(card).toContainText(/memory \d/);
  await expect(card).toContainText(/quiet \S+ of 5m/);
  await card.getByRole('button', { name: 'Kill' }).click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(card).toBeVisible();
  await card.getByRole('button', { name: 'Kill' }).click();
  await page.getByRole('button', { name: 'Kill it' }).click();
  await expect(page.getByText('No running sessions')).toBeVisible();
  await page.getByRole('link', { name: 'All sessions' }).click();
  await expect(page.getByRole('listitem').filter({ hasText: id })).toContainText('Killed by a person');
});

test('the buttons of a card stay in place when its session writes', async ({ abide, inside: page }) => {
  const fifo = join(abide.dir, 'go');
  execFileSync('mkfifo', [fifo]);
  abide.start('run', '--', 'cat go; cat go');
  const card = page.getByRole('article', { name: 'cat go; cat go' });
  const open = card.getByRole('link', { name: 'Open' });
  const before = await open.boundingBox();
  appendFileSync(fifo, '1\n2\n3\n4\n5\n6\n7\n8\n');
  await expect(card.getByRole('group', { name: /^Last lines/ })).toContainText('8');
  await expect(card).toContainText(/memory \d/);
  expect(await open.boundingBox()).toEqual(before);
});

test('a terminal is started from the page, typed into, and left with a key', async ({ inside: page }) => {
  await page.keyboard.press('c');
  const dialog = page.getByRole('dialog', { name: 'New terminal' });
  await dialog.getByLabel('Command').fill('sh');
  await dialog.getByRole('button', { name: 'Start' }).click();
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await expect(page.locator('.xterm-helper-textarea')).toBeFocused();
  await page.keyboard.type('echo $((40 + 2)) apples');
  await page.keyboard.press('Enter');
  await expect(page.locator('.xterm-rows')).toContainText('42 apples');
  await page.keyboard.press('Shift+Escape');
  await expect(page.getByRole('button', { name: 'Fit to this window' })).toBeFocused();
  await page.keyboard.press('Enter');
  await page.locator('.xterm').click();
  await page.keyboard.type('exit 3');
  await page.keyboard.press('Enter');
  await expect(page.getByTestId('terminal-state')).toHaveText(/^Ended/);
  await expect(page.getByText('exit code 3')).toBeVisible();
});

test('a terminal started on a phone fills its window and shows its keys', async ({ inside: page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await page.keyboard.press('c');
  await page.getByRole('dialog', { name: 'New terminal' }).getByRole('button', { name: 'Start' }).click();
  await expect(page.getByRole('region', { name: 'Terminal' })).toContainText(/3\d × 30/);
  await expect(page.locator('.screen')).toBeInViewport({ ratio: 1 });
  await expect(page.getByRole('group', { name: 'Keys' })).toBeInViewport({ ratio: 1 });
});

test('the terminal is resized to the window on request', async ({ abide, inside: page }) => {
  const id = await abide.session('sh');
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.getByText('120 × 40')).toBeVisible();
  await page.getByRole('button', { name: 'Fit to this window' }).click();
  await expect(page.getByText('120 × 40')).toBeHidden();
});

test('a command that cannot be started shows the reason', async ({ inside: page }) => {
  await page.getByRole('link', { name: 'Sessions', exact: true }).click();
  await page.getByRole('button', { name: 'New terminal' }).click();
  const dialog = page.getByRole('dialog', { name: 'New terminal' });
  await dialog.getByLabel('Folder').fill('/no/such/folder');
  await dialog.getByRole('button', { name: 'Start' }).click();
  await expect(dialog.getByRole('alert')).toContainText('/no/such/folder');
});

test('a command that failed to start has ended when it failed, and ran for no time', async ({ abide, inside: page }) => {
  await abide.cli('run', '--', '/no/such/program', 'x').catch(() => '');
  await abide.cli('stop');
  const { sessions } = JSON.parse(await abide.cli('session', 'list', '--all', '--json')) as { sessions: { ended_at: number }[] };
  await page.goto(await abide.link());
  const failed = new Date(sessions[0]?.ended_at ?? 0).toISOString();
  const finished = page.getByRole('region', { name: 'Recently finished' }).getByRole('listitem');
  await expect(finished).toContainText('Failed to start');
  await expect(finished.getByRole('time')).toHaveAttribute('datetime', failed);
  await page.getByRole('link', { name: 'All sessions' }).click();
  const row = page.getByRole('list', { name: 'Sessions' }).getByRole('listitem');
  await expect(row).not.toContainText('ran');
  await expect(row.getByText('0s', { exact: true })).toBeVisible();
});

test('the log can be searched and downloaded', async ({ abide, inside: page }) => {
  await abide.ask('POST', '/v1/tools/shell', { command: 'printf "one\\nneedle 7\\nthree\\n"' });
  await page.getByRole('link', { name: 'Sessions', exact: true }).click();
  await page.getByLabel('Search in').selectOption('In the logs');
  await page.getByLabel('Find', { exact: true }).fill('needle \\d');
  const match = page.getByRole('list', { name: 'Matching lines' }).getByRole('listitem');
  await expect(match).toContainText('needle 7');
  await expect(page.getByText('1 line matches', { exact: true })).toBeVisible();
  await match.getByRole('link').click();
  await expect(page.locator('[data-line="2"]')).toContainText('needle 7');
  const coming = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Download the log' }).click();
  const path = await (await coming).path();
  expect(readFileSync(path, 'utf8')).toBe('one\nneedle 7\nthree\n');
});

test('more matching lines are fetched while scrolling', async ({ abide, inside: page }) => {
  await abide.ask('POST', '/v1/tools/shell', { command: 'seq -f "needle %g" 1200' });
  await page.getByRole('link', { name: 'Sessions', exact: true }).click();
  await page.getByLabel('Search in').selectOption('In the logs');
  await page.getByLabel('Find', { exact: true }).fill('needle');
  await expect(page.getByText('500 lines match so far')).toBeVisible();
  const list = page.getByRole('list', { name: 'Matching lines' });
  await list.getByRole('listitem').first().getByRole('link').focus();
  await page.keyboard.press('End');
  await expect(page.getByText('1,000 lines match so far')).toBeVisible();
  await page.keyboard.press('End');
  await expect(page.getByText('1,200 lines match', { exact: true })).toBeVisible();
  await page.keyboard.press('End');
  await expect(list.getByText('line 1,200')).toBeVisible();
});

test('sessions are found by their command', async ({ abide, inside: page }) => {
  await abide.ask('POST', '/v1/tools/shell', { command: 'true # apples' });
  await abide.ask('POST', '/v1/tools/shell', { command: 'false # pears' });
  await page.keyboard.press('3');
  await page.keyboard.press('/');
  await page.keyboard.type('pears');
  const rows = page.getByRole('list', { name: 'Sessions' }).getByRole('listitem');
  await expect(rows).toHaveCount(1);
  await expect(rows).toContainText('Exit code 1');
});

test('a terminal that a person starts has no idle limit', async ({ abide, inside: page }) => {
  await page.keyboard.press('c');
  await page.getByRole('dialog').getByRole('button', { name: 'Start' }).click();
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  const { sessions } = await abide.ask<{ sessions: { inactivity_timeout: number | null }[] }>('GET', '/v1/sessions');
  expect(sessions.map((session) => session.inactivity_timeout || null)).toEqual([null]);
});

test('a running session is interrupted, sent signals and given other limits', async ({ abide, inside: page }) => {
  const trap = 'trap "echo got INT" INT; trap "echo got USR1" USR1; echo ready; while :; do sleep 0.1; done';
  abide.start('run', '--timeout', '600s', '--', trap);
  await page.getByRole('article', { name: /^trap/ }).getByRole('link', { name: 'Open' }).click();
  const lines = page.getByRole('group', { name: 'Lines' });
  await expect(lines).toContainText('ready');
  await page.getByRole('button', { name: 'Ctrl-C' }).click();
  await expect(lines).toContainText('got INT');
  await page.getByRole('button', { name: 'Signal' }).click();
  await page.getByRole('menuitem', { name: /SIGUSR1/ }).click();
  await expect(lines).toContainText('got USR1');
  await page.getByRole('button', { name: 'Limits…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Change the limits' });
  await expect(dialog.getByRole('button', { name: 'Change' })).toBeDisabled();
  await dialog.getByLabel('Time limit, from now').fill('soon');
  await expect(dialog.getByText('Not a valid duration.')).toBeVisible();
  await dialog.getByLabel('Time limit, from now').fill('2h');
  await dialog.getByLabel('Quiet time before a question').fill('30m');
  await dialog.getByRole('button', { name: 'Change' }).click();
  await expect(dialog).toBeHidden();
  await expect(page.getByText(/limit 2h/)).toBeVisible();
  await expect(page.getByText(/of 30m/)).toBeVisible();
});

test('text without a key, such as from an emoji picker, goes to the terminal', async ({ abide, inside: page }) => {
  const id = await abide.session('cat');
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await page.locator('.xterm').click();
  await page.keyboard.type('fox ');
  await page.keyboard.insertText('🦊é');
  await page.keyboard.type('!\n');
  await expect.poll(() => abide.cli('logs', id)).toBe('fox 🦊é!\nfox 🦊é!\n');
});

test('Ctrl-C in a terminal sends the key', async ({ abide, inside: page }) => {
  const id = await abide.session('cat');
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await page.getByRole('button', { name: 'Ctrl-C' }).first().click();
  await expect(page.getByText('signal 2')).toBeVisible();
});

test('an ended session is run again and deleted after a confirmation', async ({ abide, inside: page }) => {
  const shell = await abide.ask<{ session_id: string }>('POST', '/v1/tools/shell', { command: 'echo once more' });
  const first = `http://${abide.address()}/sessions/${shell.session_id}`;
  await page.goto(first);
  await page.getByRole('button', { name: 'Run again…' }).click();
  await page.getByRole('button', { name: 'Run it' }).click();
  await expect(page).not.toHaveURL(first);
  await expect(page.getByText('exit code 0')).toBeVisible();
  await expect(page.locator('[data-line="1"]')).toContainText('once more');
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('button', { name: 'Delete it' }).click();
  await expect(page.getByRole('list', { name: 'Sessions' }).getByRole('listitem')).toHaveCount(1);
  const { sessions } = await abide.ask<{ sessions: unknown[] }>('GET', '/v1/sessions?include_ended=true');
  expect(sessions).toHaveLength(1);
});

test('a command that was in a sandbox is run again in the one that is chosen', async ({ abide, inside: page }) => {
  await openUnlisted(abide, page, { sandboxed_by: 'namespaces' });
  const sent: unknown[] = [];
  await page.route('**/v1/sessions', (route) => {
    sent.push(route.request().postDataJSON());
    return route.fulfill({ status: 400, json: { detail: 'not here' } });
  });
  const again = page.getByRole('button', { name: 'Run again…' });
  const run = page.getByRole('button', { name: 'Run it' });
  for (const [choice, sandbox] of [
    ['Only its folder can be written', { sandbox: 'workspace-write' }],
    ['Nothing can be written', { sandbox: 'read-only' }],
    ['No sandbox', {}],
  ] as const) {
    await again.click();
    await expect(run).toBeDisabled();
    await page.getByLabel('Sandbox').selectOption(choice);
    await run.click();
    await expect.poll(() => sent.at(-1)).toEqual({
      command: 'echo unlisted',
      cwd: expect.any(String) as unknown,
      pty: false,
      inactivity_timeout: 0,
      ...sandbox,
    });
  }
});

test('a command of another machine is not run again on this one', async ({ abide, inside: page }) => {
  await openUnlisted(abide, page, { machine: 'lab' });
  await expect(page.getByRole('button', { name: 'Delete…' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Run again…' })).toHaveCount(0);
});

test('a terminal connects again when the page has lost its connection', async ({ abide, inside: page }) => {
  const id = await abide.session('cat');
  const opened: string[] = [];
  page.on('websocket', (socket) => opened.push(socket.url()));
  let lose: () => Promise<void> = () => Promise.resolve();
  await page.routeWebSocket(/\/v1\/events/, (socket) => {
    socket.connectToServer();
    lose = () => socket.close({ code: 1011 });
  });
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  const terminals = () => opened.filter((url) => url.endsWith('/terminal')).length;
  expect(terminals()).toBe(1);
  await lose();
  await expect.poll(terminals).toBe(2);
  await expect(page.getByTestId('terminal-state')).toHaveText('Live');
  await page.locator('.xterm').click();
  await page.keyboard.type('again\n');
  await expect.poll(() => abide.cli('logs', id)).toContain('again');
});

test('a session is renamed and found by its name', async ({ abide, inside: page }) => {
  abide.start('run', '--name', 'first', '--', 'echo ready; sleep 600');
  await page.getByRole('article', { name: 'first: echo ready; sleep 600' }).getByRole('link', { name: 'Open' }).click();
  await expect(page.getByText('first', { exact: true })).toBeVisible();
  await page.getByRole('button', { name: 'Rename…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Rename the session' });
  await dialog.getByLabel('Name').fill('not one word');
  await dialog.getByRole('button', { name: 'Rename' }).click();
  await expect(dialog.getByRole('alert')).toContainText('a name has');
  await dialog.getByLabel('Name').fill('second');
  await dialog.getByRole('button', { name: 'Rename' }).click();
  await expect(dialog).toBeHidden();
  await expect(page.getByText('second', { exact: true })).toBeVisible();
});

test('filters of sessions are part of the address', async ({ abide, inside: page }) => {
  await abide.ask('POST', '/v1/tools/shell', { command: 'true # one' });
  const other = await abide.ask<{ session_id: string }>('POST', '/v1/sessions', { command: 'cat' });
  await page.keyboard.press('3');
  await page.getByRole('combobox', { name: 'Filter' }).selectOption('Running');
  await expect(page).toHaveURL(/\/sessions\?state=running$/);
  await page.reload();
  const rows = page.getByRole('list', { name: 'Sessions' }).getByRole('listitem');
  await expect(rows).toHaveCount(1);
  await rows.getByRole('link').click();
  await expect(page).toHaveURL(new RegExp(other.session_id));
  await page.goBack();
  await expect(page.getByRole('combobox', { name: 'Filter' })).toHaveValue('running');
});

test('a phone has buttons for the keys that its keyboard lacks', async ({ abide, inside: page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const id = await abide.session('cat -v');
  await page.goto(`http://${abide.address()}/sessions/${id}`);
  const keys = page.getByRole('group', { name: 'Keys' });
  await keys.getByRole('button', { name: 'Up' }).click();
  await keys.getByRole('button', { name: 'Escape' }).click();
  await expect(page.locator('.xterm-rows')).toContainText('^[[A^[');
  await keys.getByRole('button', { name: 'Ctrl-C' }).click();
  await expect(page.getByText('signal 2')).toBeVisible();
});

test('statistics of sessions count outcomes by day and by agent', async ({ abide, inside: page }) => {
  await abide.cli('run', '--', 'true');
  await abide.cli('run', '--', 'true');
  await abide.ask('POST', '/v1/tools/shell', { command: 'exit 3' });
  const id = await abide.session('cat');
  await page.getByRole('link', { name: /^Sessions/ }).click();
  await page.getByRole('tab', { name: 'Statistics' }).click();
  const row = page.getByRole('group', { name: 'Sessions by agent' }).getByRole('row', { name: /^default/ });
  await expect(row.getByRole('cell')).toHaveText(['default', '1', '3', '67%', '1', '0', /.+/]);
  const chart = page.getByRole('img', { name: /Sessions that ended each day/ });
  await expect(chart.locator('canvas')).toBeVisible();
  // The newest day is at the right end; the caption shows the numbers of the day under the pointer.
  const box = await chart.boundingBox();
  if (!box) throw new Error('the chart has no box');
  await page.mouse.move(box.x + box.width - 16, box.y + box.height / 2);
  await expect(page.locator('figcaption')).toContainText(/2 succeeded.*1 failed.*0 stopped/);
  await abide.cli('session', 'kill', id);
  await expect(row.getByRole('cell')).toHaveText(['default', '0', '4', '67%', '1', '1', /.+/]);
});

test('the page can be installed as an app', async ({ abide, inside: page }) => {
  const manifest = await page.evaluate(async () => {
    const link = document.querySelector<HTMLLinkElement>('link[rel=manifest]');
    const answer = await fetch(link?.href ?? '');
    return { kind: answer.headers.get('content-type'), words: (await answer.json()) as { display: string; icons: { src: string }[] } };
  });
  expect(manifest.kind).toBe('application/manifest+json');
  expect(manifest.words.display).toBe('standalone');
  for (const { src } of manifest.words.icons) {
    const icon = await page.request.get(`http://${abide.address()}${src}`);
    expect(icon.headers()['content-type']).toBe('image/png');
  }
});
