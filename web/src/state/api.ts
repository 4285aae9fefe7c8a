// Requests to the daemon. A "no" is an exception that carries the daemon's own sentence.

export class Refused extends Error {
  constructor(
    readonly status: number,
    sentence: string,
  ) {
    super(sentence);
  }
}

/** The daemon did not answer. Of an act it is not known whether it was done. */
export class Unreachable extends Error {
  constructor(acts: boolean) {
    super(
      acts
        ? 'abide does not answer. It is not known whether this was done; look again once it is back.'
        : 'abide does not answer. Any command starts it, such as `abide status`.',
    );
  }
}

type Strangers = () => void;
let onStranger: Strangers = () => undefined;

/** What to do when the daemon does not know us any more. */
export function whenStranger(act: Strangers): void {
  onStranger = act;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask(path, signal ? { signal } : {})) as T;
}

export async function post<T>(path: string, body: object = {}): Promise<T> {
  const headers = { 'content-type': 'application/json' };
  return (await ask(path, { method: 'POST', headers, body: JSON.stringify(body) })) as T;
}

export async function postBytes<T>(path: string, body: Uint8Array<ArrayBuffer>): Promise<T> {
  const headers = { 'content-type': 'application/octet-stream' };
  return (await ask(path, { method: 'POST', headers, body })) as T;
}

async function ask(path: string, init: RequestInit): Promise<unknown> {
  const acts = init.method === 'POST';
  let response: Response;
  try {
    response = await fetch(path, { ...init, credentials: 'same-origin', cache: 'no-store' });
  } catch (fault) {
    if (init.signal?.aborted) throw fault;
    throw new Unreachable(acts);
  }
  if (!response.ok) throw await refusal(response, path);
  if (response.status === 204) return undefined;
  try {
    return await response.json();
  } catch {
    throw new Unreachable(acts);
  }
}

/** The daemon's sentence, or the best there is. */
export async function refusal(response: Response, path: string): Promise<Refused> {
  if (response.status === 401 && path !== '/v1/login') onStranger();
  let sentence = `abide answered ${response.status} ${response.statusText}`.trim() + '.';
  try {
    const problem: unknown = await response.json();
    if (typeof problem === 'object' && problem && 'detail' in problem && typeof problem.detail === 'string') {
      sentence = problem.detail;
    }
  } catch {
    // There is no sentence; the status has to do.
  }
  return new Refused(response.status, sentence);
}

/** A path with its query; what is undefined or empty is left out. */
export function withQuery(path: string, query: Record<string, string | number | boolean | undefined>): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') pairs.set(name, String(value));
  }
  const text = pairs.toString();
  return text ? `${path}?${text}` : path;
}
