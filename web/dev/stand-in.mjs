// A fake daemon for developing the page with data of every kind. It is not part of the product or of any
// test; `node dev/stand-in.mjs [timers] [sessions]` serves dist/ on port 7420.
import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';

const dist = join(import.meta.dirname, '../dist');
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const KINDS = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.html': 'text/html' };

const begun = Date.now();
const pick = (list, n) => list[n % list.length];

const COMMANDS = [
  'cargo test --workspace --locked -- --nocapture',
  'npm run build && node dist/server.js --port 3000',
  'python3 train.py --epochs 40 --out runs/2026-11-15',
  'for i in $(seq 1 40); do curl -fsS https://example.org/health?try=$i --max-time 5 || echo "not yet: $i"; sleep 2; done | tee /tmp/health.log',
  'bash',
  'make -j8 all',
];

function session(n, status = 'running') {
  const ran = 20 + n * 37;
  const ended = status !== 'running';
  const end = ended ? pick(['exited', 'exited', 'deadline', 'user', 'signaled', 'lost', 'exited'], n) : null;
  return {
    session_id: `session_${(n + 1000).toString(36)}x${status[0]}`,
    status,
    command: pick(COMMANDS, n),
    agent: pick(['default', 'builder', 'claude-code'], n),
    cwd: '/home/sam/projects/orchard',
    pty: n % 2 === 0,
    created_at: begun - (ended ? 3_600_000 + n * 60_000 : ran * 1_000),
    last_activity: begun - (n % 5) * 9_000,
    duration: ran,
    bytes_total: 1_234 * (n + 1) ** 2,
    bytes_dropped: 0,
    exit_code: end === 'exited' ? (n % 3 === 0 ? 1 : 0) : null,
    signal: end === 'signaled' ? 9 : null,
    end,
    still_running: [],
    contained_by: 'cgroup',
    timeout: n % 3 === 0 ? 600 : null,
    idle: n % 2 === 1 ? 60 : null,
    inactivity_timeout: n % 2 === 0 ? 300 : null,
    idle_for: 4,
    ...(ended
      ? {}
      : {
          tail: ['   Compiling orchard v0.4.1', '   Compiling orchard-tests v0.4.1', `running ${n + 3} tests`, 'test keeps_time ... ok'],
          cpu: 0.31 * (n % 4),
          memory: 41_000_000 * (n + 1),
          waiting_for_input: n % 6 === 4,
        }),
  };
}

const REASONS = ['Waiting for build to complete', 'server start', 'Waiting for the deploy to settle before the smoke test', 'tea'];
const MISSIONS = ['Look at the nightly results and write the summary', 'Rotate the staging certificates'];

function timer(n) {
  const mission = n % 4 === 3;
  const total = pick([600, 300, 86_400 * 3, 45, 3_600], n);
  const elapsed = (total * ((n * 17) % 90)) / 100;
  const status = pick(['running', 'running', 'paused', 'running_background', 'running'], n);
  return {
    timer_id: `timer_${(n + 1000).toString(36)}`,
    timer_type: mission ? 'mission' : 'waiting',
    total_duration: total,
    timeout_duration: mission ? null : 60,
    elapsed_time: elapsed,
    remaining_time: total - elapsed,
    status,
    ...(mission ? { mission: pick(MISSIONS, n) } : { reason: pick(REASONS, n) }),
    created_at: begun - elapsed * 1_000,
    last_check_at: begun,
    pause_until: status === 'paused' ? begun + 240_000 : null,
    agent: pick(['default', 'builder'], n),
    standing_by: n % 3 === 0,
    until: n % 4 === 1 ? { port: 3000 } : n % 7 === 2 ? { any: [{ file: '/tmp/done', is: 'present' }, { url: 'http://localhost:3000/', status: 200 }] } : null,
  };
}

const question = (n) => ({
  question_id: `question_${n}k`,
  session_id: session(n).session_id,
  question: 'Command has been idle for 60s. Continue waiting?',
  command: n === 0 ? 'ssh deploy@staging "cd /srv/orchard && ./migrate --plan --very-long-option=value --another=thing" && echo \u202edone\u202c <script>alert(1)</script>' : pick(COMMANDS, n),
  agent: 'default',
  idle: 60,
  running_for: 184,
  idle_for: 61,
  last_line: 'Are you sure you want to continue (yes/no)?',
  tail: ['Applying migration 0042_orchards', 'Applying migration 0043_trees', '<b>not bold</b> \u001b[31mnot red', 'Are you sure you want to continue (yes/no)?'],
  doing: 'sleeping',
  waiting_for_input: n === 0,
  cpu: 0,
  asked_at: begun - 5_000,
});

const message = (n) => ({
  message_id: `message_${n}`,
  agent: pick(['default', 'builder'], n),
  text: `[System] Timer 'timer_k3v9x${n}' has completed.\nReason: Waiting for build to complete\nTotal duration: 600 seconds\nElapsed time: 600 seconds`,
  created_at: begun - n * 400_000 - 3_000,
  seen_at: n % 2 ? begun - n * 300_000 : null,
  woken_at: null,
  wake_attempts: n % 3,
  wake_fault: n % 3 === 2 ? 'the command ended with code 1' : null,
  deliveries: n % 3 === 0 ? [] : [
    { waker: 'webhook https://hooks.example.org/abide', at: begun - n * 390_000, ok: false, fault: 'answered 503 Service Unavailable', next_at: null },
    { waker: 'command claude -p "$ABIDE_MESSAGE"', at: begun - n * 380_000, ok: n % 3 === 1, fault: n % 3 === 1 ? null : 'ended with code 1: not logged in', next_at: n % 3 === 1 ? null : begun + 90_000 },
  ],
});

const [timerCount = 9, sessionCount = 5] = process.argv.slice(2).map(Number);
const range = (n, make) => Array.from({ length: n }, (_, at) => make(at));
const sessions = range(sessionCount, (n) => session(n));
const ended = range(Math.max(20, sessionCount), (n) => session(n, n % 9 === 8 ? 'failed' : 'exited'));
const timers = range(timerCount, timer);
const questions = sessionCount ? [question(0), question(1)] : [];
const messages = sessionCount ? range(14, message) : [];
const days = range(30, (n) => ({ day: new Date(begun - (29 - n) * 86_400_000).toISOString().slice(0, 10), completed: (n * 7) % 23, stopped: (n * 3) % 5, waited: ((n * 997) % 40) * 300 }));

function page(list, query, field) {
  const limit = Number(query.get('limit') ?? 100);
  const from = Number(query.get('after') ?? 0);
  const next = from + limit < list.length ? String(from + limit) : null;
  return { [field]: list.slice(from, from + limit), next, total: list.length };
}

function lists(path, query) {
  if (path === '/v1/sessions') return page(query.get('include_ended') ? [...sessions, ...ended] : sessions, query, 'sessions');
  if (path === '/v1/timers') return page(timers, query, 'timers');
  if (path === '/v1/timers/history') return page(range(40, (n) => ({ ...timer(n), status: n % 4 ? 'completed' : 'stopped', elapsed_time: 300, remaining_time: 0, completed_by: n % 2 ? 'condition' : 'time', stop_reason: n % 4 ? null : 'not needed any more' })), query, 'timers');
  if (path === '/v1/timers/stats') return { made: 412, running: 9, completed_by_time: 240, completed_by_condition: 131, completed_by_impossible: 7, stopped: 32, elapsed_total: 518_400, latest: 0.004, calls_saved: 17_241, days };
  if (path === '/v1/questions') return { questions };
  if (path === '/v1/messages') return page(messages, query, 'messages');
  if (path === '/v1/search') return { matches: range(12, (n) => ({ session_id: sessions[0].session_id, command: COMMANDS[0], line: n * 31, text: `error[E0308]: mismatched types in tree ${n}` })), truncated: false, next: null };
  const one = /^\/v1\/sessions\/([^/]+)$/.exec(path);
  return one ? [...sessions, ...ended].find((s) => s.session_id === one[1]) : undefined;
}

/** A text as one message of a WebSocket. */
function message(text) {
  const body = Buffer.from(text);
  if (body.length < 126) return Buffer.concat([Buffer.from([0x81, body.length]), body]);
  const head = Buffer.from([0x81, 127, 0, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(body.length, 6);
  return Buffer.concat([head, body]);
}

function events(request, socket) {
  const key = `${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
  const accept = createHash('sha1').update(key).digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`);
  let id = 0;
  const send = (event, data) => socket.write(message(`id: 1-${(id += 1)}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`));
  send('hello', { version: '0.1.0', pid: 1, started_at: begun, now: Date.now() });
  let n = 0;
  const beat = setInterval(() => {
    n += 1;
    for (const s of sessions.slice(0, 20)) {
      if (s.idle && n % 9) continue;
      send('output', { session_id: s.session_id, bytes_total: s.bytes_total + n * 80, last_activity: Date.now(), tail: [...s.tail.slice(1), `test number_${n} ... ok`], cpu: (n % 10) / 9, memory: s.memory + n * 1e5, waiting_for_input: s.waiting_for_input });
    }
    if (timers.length > 100) for (let k = 0; k < 20; k += 1) send('timer', { ...timers[(n * 20 + k) % timers.length], remaining_time: 30 + k });
  }, 500);
  socket.on('close', () => clearInterval(beat)).on('error', () => socket.destroy());
}

createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  if (pathname.startsWith('/v1/')) {
    const told = request.method === 'GET' ? lists(pathname, searchParams) : undefined;
    if (request.method === 'POST' && pathname === '/v1/login') return response.writeHead(204).end();
    const problem = { title: 'Conflict', status: 409, detail: 'This is only a stand-in; it does nothing.' };
    response.writeHead(told ? 200 : 409, { 'content-type': 'application/json' });
    return response.end(JSON.stringify(told ?? problem));
  }
  const file = join(dist, pathname.startsWith('/assets/') ? pathname : 'index.html');
  if (!existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { 'content-type': KINDS[extname(file)] ?? 'application/octet-stream', 'content-security-policy': POLICY });
  createReadStream(file).pipe(response);
}).on('upgrade', events).listen(7420, '127.0.0.1', () => console.log('http://127.0.0.1:7420'));
