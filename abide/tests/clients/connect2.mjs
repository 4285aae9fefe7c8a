// The official TypeScript client that speaks both generations.

import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { server } from './scenario.mjs';

/** What a client is told besides answers goes to `heard(params)`. */
const connecting = (mode, version) => async (answer, heard) => {
  const client = new Client(
    { name: 'tests', version: '1' },
    { capabilities: { elicitation: {} }, versionNegotiation: { mode } },
  );
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    const action = answer(params.message);
    return action === 'accept' ? { action, content: {} } : { action };
  });
  if (heard) client.setNotificationHandler('notifications/message', ({ params }) => heard(params));
  await client.connect(new StdioClientTransport(server));
  assert.equal(client.getNegotiatedProtocolVersion(), version);
  return {
    list: async () => (await client.listTools()).tools,
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
    close: () => client.close(),
  };
};

export const modern = connecting('auto', '2026-07-28');
export const legacy = connecting('legacy', '2025-11-25');
