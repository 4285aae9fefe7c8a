// Which view the address names.

import { Value } from './value';

export type Route =
  | { view: 'now' }
  | { view: 'timers' }
  | { view: 'sessions' }
  | { view: 'session'; id: string }
  | { view: 'messages' }
  | { view: 'nowhere'; path: string };

export function parse(path: string): Route {
  const parts = path.split('/').filter(Boolean);
  const [first, second] = parts;
  if (!first) return { view: 'now' };
  if (first === 'timers' && !second) return { view: 'timers' };
  if (first === 'messages' && !second) return { view: 'messages' };
  if (first === 'sessions' && !second) return { view: 'sessions' };
  if (first === 'sessions' && second && parts.length === 2) return { view: 'session', id: second };
  return { view: 'nowhere', path };
}

export const route = new Value<Route>(parse(location.pathname));

export function go(path: string): void {
  if (path !== location.pathname) history.pushState(null, '', path);
  route.set(parse(path));
  window.scrollTo(0, 0);
}

/** The question that a person wants to see, until its card has the focus. */
export const wantedQuestion = new Value<string | null>(null);

export function goToQuestion(id: string): void {
  wantedQuestion.set(id);
  go('/');
}

export function followHistory(): void {
  window.addEventListener('popstate', () => route.set(parse(location.pathname)));
}
