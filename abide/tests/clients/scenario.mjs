// What every client does with abide, whatever its library calls things.
//
// `connect(answer)` gives a client that answers questions with `answer(message)` (an action), as
// { list(), call(tool, arguments, options), close() }; options are those of the library's requests.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const work = process.env.WORK;

export const server = {
  command: process.env.ABIDE,
  args: ['mcp'],
  env: { ...process.env },
  cwd: work,
};

/** The text, which is among the facts too. */
export const text = (result) => {
  assert.equal(result.structuredContent.text, result.content[0].text);
  return result.content[0].text;
};

const alive = (pid) => {
  try {
    process.kill(pid, 0);
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1][0] !== 'Z';
  } catch {
    return false;
  }
};

/** Waits for a file that a command writes. */
const written = async (name) => {
  const path = join(work, name);
  const done = () => existsSync(path) && readFileSync(path, 'utf8').endsWith('\n');
  if (!done()) {
    const watcher = watch(work);
    await new Promise((resolve) => {
      watcher.on('change', () => done() && resolve());
      if (done()) resolve();
    });
    watcher.close();
  }
  return readFileSync(path, 'utf8').trim();
};

const gone = async (pid) => {
  for (let looks = 0; alive(pid); looks += 1) {
    assert.ok(looks < 9_000, `process ${pid} lives on`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

const lines = (name) => readFileSync(join(work, name), 'utf8').trim().split('\n').length;

export async function run(name, connect) {
  mkdirSync(work, { recursive: true });
  const refuse = () => assert.fail('nothing should be asked');

  let client = await connect(refuse);
  const tools = await client.list();
  assert.ok(tools.some((tool) => tool.name === 'shell' && tool.outputSchema));

  let result = await client.call('shell', { command: 'echo out; echo err >&2; exit 7' });
  assert.match(text(result), /^COMMAND: .*\nSTATUS: ERROR\nRETURN_CODE: 7\nSTDOUT:\nout\nSTDERR:\nerr\n?$/);
  assert.ok(!result.isError);

  result = await client.call('shell', { command: '' });
  assert.ok(result.isError);
  assert.equal(text(result), 'ERROR: Shell command cannot be empty.');
  await assert.rejects(client.call('no_such_tool', {}), /-32602|no_such_tool/);

  // The client's time runs out: the command goes on.
  let pid = written(`${name}.slow`);
  const slow = `echo $$ > ${name}.slow; exec sleep 1000`;
  await assert.rejects(client.call('shell', { command: slow }, { timeout: 700 }), /timed out/i);
  pid = Number(await pid);
  await client.call('shell', { command: 'sleep 0.3' });
  assert.ok(alive(pid), 'a timeout of the client kills nothing');
  process.kill(pid);

  // A person interrupts: the command ends.
  const stop = new AbortController();
  const command = `echo $$ > ${name}.stop; exec sleep 1000`;
  const stopped = client.call('execute_command', { command }, { signal: stop.signal });
  pid = Number(await written(`${name}.stop`));
  stop.abort();
  await assert.rejects(stopped);
  await gone(pid);
  await client.close();

  // Patience: asked, told to go on, done; run once.
  const asked = [];
  client = await connect((message) => {
    asked.push(message);
    if (asked.length === 2) writeFileSync(join(work, `${name}.go`), '');
    return 'accept';
  });
  result = await client.call('execute_command', {
    command: `echo run >> ${name}.count; until test -e ${name}.go; do sleep 0.05; done; echo over`,
    timeout: 0.3,
  });
  assert.match(text(result), /^over\n\[exited with code 0 after /);
  assert.match(asked[0], /^Command has been idle for 300ms\. Continue waiting\?\n/);
  assert.equal(lines(`${name}.count`), 1);
  await client.close();

  // A command that is slow to begin is asked about before it has written anything.
  client = await connect((message) => (message.includes('last output: a') ? 'decline' : 'accept'));
  result = await client.call('execute_command', { command: 'echo a; sleep 1000', timeout: 2 });
  assert.ok(result.isError);
  assert.match(text(result), /^command execution timeout: no output for 2s\na/);
  await client.close();

  client = await connect(() => 'cancel');
  result = await client.call('execute_command', { command: 'sleep 30', timeout: 0.3 });
  assert.equal(result.structuredContent.status, 'running');
  await client.close();
}
