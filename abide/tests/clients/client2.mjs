// The official TypeScript client that speaks both generations.

import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { run, server } from './scenario.mjs';

const connect = (mode, version) => async (answer) => {
  const client = new Client(
    { name: 'tests', version: '1' },
    { capabilities: { elicitation: {} }, versionNegotiation: { mode } },
  );
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    const action = answer(params.message);
    return action === 'accept' ? { action, content: {} } : { action };
  });
  await client.connect(new StdioClientTransport(server));
  assert.equal(client.getNegotiatedProtocolVersion(), version);
  return {
    list: async () => (await client.listTools()).tools,
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    close: () => client.close(),
  };
};

await run('modern', connect('auto', '2026-07-28'));
await run('legacy', connect('legacy', '2025-11-25'));
console.log('all is well');
