// What every client does, in both generations.

import { legacy, modern } from './connect2.mjs';
import { run } from './scenario.mjs';

await run('modern', modern);
await run('legacy', legacy);
console.log('all is well');
