// The official TypeScript library of the generation with a handshake.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { run, server } from './scenario.mjs';

const connect = async (answer) => {
  const client = new Client({ name: 'tests', version: '1' }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    const action = answer(params.message);
    return action === 'accept' ? { action, content: {} } : { action };
  });
  await client.connect(new StdioClientTransport(server));
  return {
    list: async () => (await client.listTools()).tools,
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    close: () => client.close(),
  };
};

await run('sdk1', connect);
console.log('all is well');
