// Keys that work everywhere but where somebody types.

import { openHelp } from '../parts/help';
import { openNewTerminal } from '../parts/new-terminal';
import { setTheme, shortcuts, theme, type Theme } from './prefs';
import { go } from './route';

const NEXT_THEME: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };

export function nextTheme(): void {
  setTheme(NEXT_THEME[theme.get()]);
}

const ACTS: Record<string, () => void> = {
  '1': () => go('/'),
  '2': () => go('/timers'),
  '3': () => go('/sessions'),
  '4': () => go('/messages'),
  '/': () => document.querySelector<HTMLElement>('[data-search]')?.focus(),
  c: openNewTerminal,
  d: nextTheme,
  j: () => step(1),
  k: () => step(-1),
};

/** To the next card, or into the list where there are no cards. */
function step(by: number): void {
  const stops = [...document.querySelectorAll<HTMLElement>('[data-stop]')];
  if (stops.length === 0) {
    document.querySelector<HTMLElement>('[data-row] [data-main][tabindex="0"]')?.focus();
    return;
  }
  const at = stops.findIndex((stop) => stop.contains(document.activeElement));
  const next = stops[at < 0 ? (by > 0 ? 0 : stops.length - 1) : Math.min(stops.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || !!target.closest('.screen');
}

export function followKeys(): void {
  window.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    // A dialog or a menu has the keys to itself.
    if (document.querySelector('[role="dialog"], [role="alertdialog"], [role="menu"]')) return;
    // The help itself is always there, since it says how to get the others back.
    const act = event.key === '?' ? openHelp : shortcuts.get() ? ACTS[event.key] : undefined;
    if (!act) return;
    event.preventDefault();
    act();
  });
}
