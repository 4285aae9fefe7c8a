// Exchanges a one-time code for a cookie that scripts of the page cannot read.

import { post } from './api';
import { connect, disconnect, loaded } from './live';

/** The login code in a link, or the text itself. */
function codeIn(text: string): string {
  const found = /#login=([^&\s]+)/.exec(text);
  return decodeURIComponent(found?.[1] ?? text.trim());
}

/** The fragment of a login link. */
export function isLogin(fragment: string): boolean {
  return fragment.startsWith('#login=');
}

/** Removes the code from the URL, so that it stays in no history and no bookmark. */
export function takeCode(): string | null {
  if (!isLogin(location.hash)) return null;
  const code = codeIn(location.hash);
  history.replaceState(null, '', location.pathname + location.search);
  return code;
}

export async function login(text: string): Promise<void> {
  await post('/v1/login', { code: codeIn(text) });
  connect();
}

export async function logout(): Promise<void> {
  await post('/v1/logout');
  disconnect();
  loaded.set(false);
}
