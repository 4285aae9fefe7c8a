// Keyboard shortcuts. They are off while a text field has the focus.

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
  '5': () => go('/rules'),
  '/': () => document.querySelector<HTMLElement>('[data-search]')?.focus(),
  c: openNewTerminal,
  d: nextTheme,
  j: () => step(1),
  k: () => step(-1),
};

/** Moves the focus to the next card, or into the list if there are no cards. */
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
    // An open dialog or menu handles its own keys.
    if (document.querySelector('[role="dialog"], [role="alertdialog"], [role="menu"]')) return;
    // The help is always available, since it says how to switch the shortcuts on again.
    const act = event.key === '?' ? openHelp : shortcuts.get() ? ACTS[event.key] : undefined;
    if (!act) return;
    event.preventDefault();
    act();
  });
}
