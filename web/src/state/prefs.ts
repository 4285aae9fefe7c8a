// Settings in this browser: theme, keyboard shortcuts, notifications, how logs are shown.

import { Value } from './value';

export type Theme = 'system' | 'light' | 'dark';

function read(name: string): string | null {
  try {
    return localStorage.getItem(`abide.${name}`);
  } catch {
    return null;
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(`abide.${name}`, value);
  } catch {
    // Without local storage the page still works.
  }
}

const stored = read('theme');
export const theme = new Value<Theme>(stored === 'light' || stored === 'dark' ? stored : 'system');
export const shortcuts = new Value(read('shortcuts') !== 'off');
export const notifying = new Value(read('notify') === 'on');
export const logWrap = new Value(read('log-wrap') === 'on');
export const logTimes = new Value(read('log-times') === 'on');

export function setTheme(value: Theme): void {
  theme.set(value);
  write('theme', value);
  applyTheme();
}

export function setShortcuts(on: boolean): void {
  shortcuts.set(on);
  write('shortcuts', on ? 'on' : 'off');
}

export function setNotifying(on: boolean): void {
  notifying.set(on);
  write('notify', on ? 'on' : 'off');
}

export function setLogWrap(on: boolean): void {
  logWrap.set(on);
  write('log-wrap', on ? 'on' : 'off');
}

export function setLogTimes(on: boolean): void {
  logTimes.set(on);
  write('log-times', on ? 'on' : 'off');
}

/** The time of the newest message when the messages view was last open; `null`: never. */
export const messagesRead = new Value<number | null>(Number(read('messages-read')) || null);

export function setMessagesRead(at: number): void {
  messagesRead.set(at);
  write('messages-read', String(at));
}

/** Applies the theme to the document. */
export function applyTheme(): void {
  const chosen = theme.get();
  if (chosen === 'system') delete document.documentElement.dataset['theme'];
  else document.documentElement.dataset['theme'] = chosen;
}
