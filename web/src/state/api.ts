// HTTP requests to the daemon. An error response becomes an exception with the daemon's error text.

export class Refused extends Error {
  constructor(
    readonly status: number,
    sentence: string,
  ) {
    super(sentence);
  }
}

/** The daemon did not answer. After an action it is unknown whether the action was done. */
export class Unreachable extends Error {
  constructor(acts: boolean) {
    super(
      acts
        ? 'abide does not answer. It is unknown whether the action was done. Check again once abide is back.'
        : 'abide does not answer. Any command starts it, such as `abide status`.',
    );
  }
}

type Listener = () => void;
let onLoggedOut: Listener = () => undefined;

/** Sets the handler of responses that say that the login is no longer valid. */
export function whenLoggedOut(act: Listener): void {
  onLoggedOut = act;
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

/** The daemon's error text, or the HTTP status if there is none. */
export async function refusal(response: Response, path: string): Promise<Refused> {
  if (response.status === 401 && path !== '/v1/login') onLoggedOut();
  let sentence = `abide answered ${response.status} ${response.statusText}`.trim() + '.';
  try {
    const problem: unknown = await response.json();
    if (typeof problem === 'object' && problem && 'detail' in problem && typeof problem.detail === 'string') {
      sentence = problem.detail;
    }
  } catch {
    // There is no error text; the status is used.
  }
  return new Refused(response.status, sentence);
}

/** A path with its query; undefined and empty values are omitted. */
export function withQuery(path: string, query: Record<string, string | number | boolean | undefined>): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') pairs.set(name, String(value));
  }
  const text = pairs.toString();
  return text ? `${path}?${text}` : path;
}
