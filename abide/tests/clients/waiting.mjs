// Timers, conditions and messages, as an agent uses them through the official client that speaks both
// generations. Nothing here lets time pass: what must not come yet is far away, and what must come is
// waited for.

import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createWebServer } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { legacy, modern } from './connect2.mjs';
import { text, work } from './scenario.mjs';

/** Long enough for never. */
const NEVER = 600;

const nobody = () => assert.fail('nothing should be asked');
const path = (name) => join(work, name);

/** An agent with a front of its own. Its calls must be taken up, and refusals must be refused. */
const agent = async (connect, heard) => {
  const client = await connect(nobody, heard);
  const call = async (tool, args) => {
    const result = await client.call(tool, args);
    assert.ok(!result.isError, text(result));
    const facts = { ...result.structuredContent, text: text(result) };
    for (const timer of [facts, ...(facts.timers ?? [])]) {
      if (timer.total_duration === undefined) continue;
      const sum = timer.elapsed_time + timer.remaining_time;
      assert.ok(Math.abs(sum - timer.total_duration) < 1e-6, JSON.stringify(timer));
    }
    return facts;
  };
  const refused = async (tool, args) => {
    const result = await client.call(tool, args);
    assert.ok(result.isError, text(result));
    return text(result);
  };
  return { call, refused, close: () => client.close() };
};

/** The timer with this text, as soon as it can be seen. */
const seen = async (looker, words) => {
  for (;;) {
    const { timers } = await looker.call('read_timer', {});
    const found = timers.find((timer) => (timer.reason ?? timer.mission) === words);
    if (found) return found;
  }
};

/** Waits until a call stands by on this timer, which those who stand by do not say. */
const stoodBy = async (id) => {
  for (let looks = 0; ; looks += 1) {
    const { stdout } = await promisify(execFile)(process.env.ABIDE, ['timer', 'read', id, '--json']);
    if (JSON.parse(stdout).standing_by) return;
    assert.ok(looks < 9_000, `nobody stands by on ${id}`);
  }
};

/** The one message there is; it is about this timer. */
const told = async (reader, id) => {
  const { messages, text: words } = await reader.call('read_messages', { timeout_seconds: 60 });
  assert.deepEqual(messages.map((message) => message.timer_id), [id], words);
  assert.equal(messages[0].repeated, false);
  return words;
};

const nothingIsTold = async (reader) =>
  assert.equal((await reader.call('read_messages', {})).text, 'No messages.');

async function standby({ call }, other) {
  let timer = await call('timer', { total_duration: NEVER, timeout_duration: 0.1, reason: 'the build' });
  const id = timer.timer_id;
  assert.equal(timer.timeout, true);
  assert.equal(timer.status, 'running');
  assert.equal(timer.timer_type, 'waiting');
  assert.match(timer.text, new RegExp(`^Timer '${id}' is still running: .* of 600 seconds elapsed`));
  assert.ok(timer.text.includes(`To go on waiting call timer with timer_id '${id}'`), timer.text);

  const looked = await other.call('read_timer', { timer_id: id });
  assert.equal(looked.reason, 'the build');
  assert.equal(looked.timeout_duration, 0.1);

  timer = await call('timer', { timer_id: id, total_duration: 0.1 });
  assert.equal(timer.timeout, false);
  assert.equal(timer.status, 'completed');
  assert.equal(timer.completed_by, 'time');
  assert.equal(timer.remaining_time, 0);
  assert.ok(timer.text.startsWith(`Timer '${id}' has completed.\nReason: the build\nTotal duration: `));
  await nothingIsTold(other);

  timer = await call('timer', { timer_id: id });
  assert.equal(timer.status, 'completed');
  assert.equal(timer.timeout, false);
}

async function mission({ call }, other) {
  const made = await call('timer', { total_duration: 0.1, mission: 'look at the logs' });
  assert.equal(made.timer_type, 'mission');
  assert.match(made.text, /told with your next abide call/);
  const words = await told({ call }, made.timer_id);
  await nothingIsTold(other);
  const first = `[System] Timer '${made.timer_id}' has completed.\nMission: look at the logs\n`;
  assert.ok(words.startsWith(`${first}Total duration: 0.1 seconds\nElapsed time: 0.1 seconds`), words);
  await nothingIsTold({ call });
}

/** A message comes with the next result of any tool, once; who listens is notified before. */
async function appended({ call }, other, notified) {
  const { timer_id: id } = await call('timer', { total_duration: 0.1, mission: 'in passing' });
  if (notified) {
    const { level, data } = await notified;
    assert.equal(level, 'notice');
    assert.equal(data.timer_id, id);
    assert.ok(data.text.startsWith(`[System] Timer '${id}' has completed.`), data.text);
  }
  let result;
  do result = await call('shell', { command: 'echo hello' });
  while (!result.messages);
  assert.equal(result.messages[0].timer_id, id);
  assert.match(result.text, /hello[^]*\[System\] Timer 'timer_.*' has completed\.\nMission: in passing/);
  for (const each of [call, other.call]) {
    result = await each('shell', { command: 'echo again' });
    assert.ok(!result.messages && !result.text.includes('[System]'), result.text);
  }
}

/** Whoever stands by hears of what others do to the timer; what is refused changes nothing. */
async function acts({ call, refused }, other) {
  const standing = call('timer', { total_duration: NEVER, reason: 'lunch' });
  const { timer_id: id } = await seen(other, 'lunch');
  const pause = { timer_id: id, pause_duration: NEVER, reason: 'the cook is late' };
  const paused = await other.call('pause_timer', pause);
  assert.equal(paused.status, 'paused');
  assert.ok(paused.pause_until > paused.created_at);
  const heard = await standing;
  assert.equal(heard.status, 'paused');
  assert.equal(heard.timeout, false);
  assert.match(heard.text, /was paused: [^]*\nWhy: the cook is late\n/);
  assert.match(await refused('pause_timer', pause), /is paused: cannot pause it/);
  assert.match(await refused('cancel_timer', { timer_id: id }), /is paused: cannot cancel it/);
  const looked = await call('read_timer', { timer_id: id });
  assert.equal(looked.elapsed_time, paused.elapsed_time, 'nothing elapses');

  assert.equal((await call('resume_timer', { timer_id: id })).status, 'running');
  assert.match(await refused('resume_timer', { timer_id: id }), /is running: cannot resume it/);

  const again = call('timer', { timer_id: id });
  await stoodBy(id);
  assert.equal((await other.call('cancel_timer', { timer_id: id })).status, 'running_background');
  assert.equal((await again).status, 'running_background');
  await call('pause_timer', { timer_id: id, pause_duration: 0.1 });
  // It goes on by itself, in the state that it had.
  let timer;
  do timer = await call('read_timer', { timer_id: id });
  while (timer.status === 'paused');
  assert.equal(timer.status, 'running_background');

  timer = await call('stop_timer', { timer_id: id, reason: 'not hungry' });
  assert.equal(timer.status, 'stopped');
  assert.equal(timer.stop_reason, 'not hungry');
  for (const tool of ['stop_timer', 'cancel_timer', 'resume_timer']) {
    assert.match(await refused(tool, { timer_id: id }), /is stopped/);
  }
  assert.equal((await call('timer', { timer_id: id })).status, 'stopped');
  await nothingIsTold(other);
}

/** Cancelled, it runs on and tells by a message; by its condition as well as by its time. */
async function background({ call }, other, name) {
  const file = path(`${name}.background`);
  const made = { total_duration: NEVER, reason: 'in the background', until: { file } };
  const standing = call('timer', made);
  const { timer_id: id } = await seen(other, made.reason);
  await other.call('cancel_timer', { timer_id: id });
  assert.match((await standing).text, /was cancelled: /);
  writeFileSync(file, '');
  const words = await told({ call }, id);
  assert.ok(words.includes(`Reason: in the background\n`), words);
  assert.ok(words.includes(`\nCondition: file ${file} is there`), words);
}

async function refusals({ call, refused }) {
  const { timer_id: id } = await call('timer', { total_duration: NEVER, mission: 'there' });
  for (const [tool, args] of [
    ['timer', { timer_id: 'timer_nonsense' }],
    ['read_timer', { timer_id: 'timer_00000000' }],
    ['stop_timer', { timer_id: 'no id at all' }],
  ]) {
    const words = await refused(tool, args);
    assert.ok(words.includes(args.timer_id) && words.includes(id), words);
  }
  for (const [args, field] of [
    [{ total_duration: 1, reason: 'r', mission: 'm' }, '`reason` and `mission` exclude each other'],
    [{ total_duration: 1 }, '`reason` or `mission` is required'],
    [{ reason: 'r' }, '`total_duration` is required'],
    [{ total_duration: -1, reason: 'r' }, '`total_duration`'],
    [{ total_duration: '5 minutes', reason: 'r' }, '`total_duration`'],
    [{ total_duration: 1, reason: 'r', until: { port: 70000 } }, '`until.port`'],
  ]) {
    const words = await refused('timer', args);
    assert.ok(words.includes(field), words);
  }
  const key = { total_duration: NEVER, mission: 'once', idempotency_key: `once ${id}` };
  const [first, second] = [await call('timer', key), await call('timer', key)];
  assert.equal(first.timer_id, second.timer_id, 'the same key makes one timer');
  for (const timer of [id, first.timer_id]) await call('stop_timer', { timer_id: timer });
}

const listening = (server, port) =>
  new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve(server.address().port));
  });

const closed = (server) => new Promise((resolve) => server.close(resolve));

/** A port that nobody listens on, nor will: it is not among those that are given to whoever wants any. */
const freePort = async () => {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer();
    try {
      await listening(server, port);
    } catch {
      continue;
    }
    await closed(server);
    return port;
  }
};

/** Every condition, all at once: nothing holds before it is made so. */
async function conditions({ call }, other, name) {
  const file = (end) => path(`${name}.${end}`);
  const [port, two] = [await freePort(), await freePort()];

  // The time runs out: what was seen last is told. A session that failed just before would end this wait sooner.
  const late = await call('timer', { total_duration: 0.2, reason: 'never', until: { port: two } });
  assert.equal(late.completed_by, 'time', late.text);
  const last = `The condition was not met. Last check: port ${two}: connection refused`;
  assert.ok(late.text.includes(`\n${last}`), late.text);

  let ready = false;
  const web = createWebServer((_, response) => {
    response.statusCode = ready ? 200 : 503;
    response.end(ready ? 'all is ready' : 'starting');
  });
  const url = `http://127.0.0.1:${await listening(web, 0)}/health`;
  for (const end of ['gone', 'changed', 'log']) writeFileSync(file(end), 'before\n');
  const start = { action: 'start', command: 'echo up; read word; echo "got $word"; exit 3' };
  const { session_id: session } = await call('terminal_session', start);

  const wanted = {
    port: [{ port }, `port ${port} is open`],
    host: [{ port: `127.0.0.1:${port}` }, `port 127.0.0.1:${port} is open`],
    url: [{ url, status: 200, body: 'read.$' }, `${url} answered 200 OK with "ready"`],
    present: [{ file: file('deep/er/new') }, `file ${file('deep/er/new')} is there`],
    gone: [{ file: file('gone'), is: 'gone' }, `file ${file('gone')} is gone`],
    changed: [{ file: file('changed'), is: 'changed' }, `file ${file('changed')} has changed`],
    matches: [{ file: file('log'), matches: 'port \\d+' }, `file ${file('log')} has "port 80" in it`],
    output: [{ session, output: 'got .*$' }, `${session} wrote "got it"`],
    ended: [{ session, is: 'ended' }, `${session} has ended: exited with code 3`],
    command: [{ command: `test -e ${file('touched')}`, every: 0.1 }, 'exited with code 0'],
    all: [{ all: [{ port }, { file: file('deep/er/new') }] }, `port ${port} is open; file `],
    any: [{ any: [{ port: two }, { all: [{ file: file('log'), matches: 'port' }] }] }, 'has "port" in it'],
  };
  const standing = Object.entries(wanted).map(async ([kind, [until, saw]]) => {
    const reason = `${name} ${kind}`;
    const timer = await call('timer', { total_duration: NEVER, reason, until });
    assert.equal(timer.completed_by, 'condition', timer.text);
    assert.equal(timer.timeout, false);
    assert.ok(timer.seen.includes(saw), `${timer.seen} has no ${saw}`);
    assert.ok(timer.text.includes(`\nCondition: ${timer.seen}`), timer.text);
  });
  await Promise.all(Object.keys(wanted).map((kind) => seen(other, `${name} ${kind}`)));

  const server = createServer((socket) => socket.destroy());
  await listening(server, port);
  ready = true;
  mkdirSync(file('deep/er'), { recursive: true });
  writeFileSync(file('draft'), '');
  renameSync(file('draft'), file('deep/er/new'));
  rmSync(file('gone'));
  appendFileSync(file('changed'), 'after\n');
  renameSync(file('log'), file('log.1'));
  writeFileSync(file('log'), 'listening on port 80\n');
  writeFileSync(file('touched'), '');
  await other.call('terminal_session', { action: 'send_input', session_id: session, input: 'it\n' });
  await Promise.all(standing);
  await Promise.all([closed(server), closed(web)]);
  await call('read_messages', {});
}

/** The daemon is killed while two calls stand by: both are answered, and nothing is told besides. */
async function restart({ call }, other, name) {
  const file = path(`${name}.restart`);
  const standing = [
    call('timer', { total_duration: NEVER, reason: 'over a restart', until: { file } }),
    call('timer', { total_duration: NEVER, reason: 'this as well', until: { any: [{ file }] } }),
  ];
  const { timer_id: id } = await seen(other, 'over a restart');
  const { timer_id: second } = await seen(other, 'this as well');
  const status = execFileSync(process.env.ABIDE, ['status', '--json']);
  process.kill(JSON.parse(status).daemon.pid, 'SIGKILL');
  assert.equal((await other.call('read_timer', { timer_id: id })).status, 'running');
  // Whoever is not back yet is told by a message instead.
  await Promise.all([stoodBy(id), stoodBy(second)]);
  writeFileSync(file, '');
  const held = await Promise.all(standing);
  assert.deepEqual(held.map((timer) => timer.timer_id), [id, second]);
  for (const { completed_by: by, text: words } of held) assert.equal(by, 'condition', words);
  await nothingIsTold(other);
}

async function run(name, connect, notifies) {
  let hear;
  const notified = new Promise((resolve) => (hear = resolve));
  const listens = (params) => params.data.text.includes('in passing') && hear(params);
  const one = await agent(connect, notifies ? listens : undefined);
  const other = await agent(connect);
  await standby(one, other);
  await mission(one, other);
  await appended(one, other, notifies && notified);
  await acts(one, other);
  await background(one, other, name);
  await refusals(one);
  await conditions(one, other, name);
  await restart(one, other, name);
  const left = await one.call('read_timer', {});
  assert.deepEqual(left.timers, [], left.text);
  await Promise.all([one.close(), other.close()]);
}

mkdirSync(work, { recursive: true });
await run('modern', modern, false);
await run('legacy', legacy, true);
console.log('all is well');
