// The URL: the view, the query and the fragment. Filters, searches and chosen lines are part of it, so that Back, a
// reload and a shared link show the same.

import { useCallback } from 'react';
import { useValue, Value } from './value';

export type Route =
  | { view: 'now' }
  | { view: 'timers' }
  | { view: 'timer'; id: string }
  | { view: 'sessions' }
  | { view: 'session'; id: string }
  | { view: 'messages' }
  | { view: 'rules' }
  | { view: 'not_found'; path: string };

export function parse(path: string): Route {
  const parts = path.split('/').filter(Boolean);
  const [first, second] = parts;
  if (!first) return { view: 'now' };
  if (first === 'timers' && !second) return { view: 'timers' };
  if (first === 'timers' && second?.startsWith('timer_') && parts.length === 2) return { view: 'timer', id: second };
  if (first === 'messages' && !second) return { view: 'messages' };
  if (first === 'rules' && !second) return { view: 'rules' };
  if (first === 'sessions' && !second) return { view: 'sessions' };
  if (first === 'sessions' && second?.startsWith('session_') && parts.length === 2) return { view: 'session', id: second };
  return { view: 'not_found', path };
}

export const route = new Value<Route>(parse(location.pathname));
/** The query, with its question mark. */
const query = new Value(location.search);
/** The fragment, with its hash sign. */
export const fragment = new Value(location.hash);

function read(): void {
  query.set(location.search);
  fragment.set(location.hash);
}

export function go(path: string): void {
  const to = new URL(path, location.href);
  if (to.href !== location.href) history.pushState(null, '', to.href);
  read();
  route.set(parse(to.pathname));
  if (to.hash === '') window.scrollTo(0, 0);
}

function replace(change: (url: URL) => void): void {
  const url = new URL(location.href);
  change(url);
  if (url.href !== location.href) history.replaceState(history.state, '', url.href);
  read();
}

/** One parameter of the query and its setter. An empty value removes it. */
export function useParam(name: string): [string, (value: string) => void] {
  const all = useValue(query);
  const set = useCallback(
    (value: string) =>
      replace((url) => {
        if (value === '') url.searchParams.delete(name);
        else url.searchParams.set(name, value);
      }),
    [name],
  );
  return [new URLSearchParams(all).get(name) ?? '', set];
}

export function setFragment(text: string): void {
  replace((url) => (url.hash = text));
}

/** The question to be focused, until its card has the focus. */
export const wantedQuestion = new Value<string | null>(null);

/** The terminal that was just started, until it has the focus. */
export const wantedTerminal = new Value<string | null>(null);

export function goToQuestion(id: string): void {
  wantedQuestion.set(id);
  go('/');
}

export function followHistory(): void {
  const follow = () => {
    const { pathname } = location;
    const before = fragment.get();
    read();
    // A change of the fragment alone does not change the view.
    if (pathname !== seen || before === fragment.get()) route.set(parse(pathname));
    seen = pathname;
  };
  let seen = location.pathname;
  route.subscribe(() => (seen = location.pathname));
  window.addEventListener('popstate', follow);
}
