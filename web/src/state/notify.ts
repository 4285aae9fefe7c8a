// Browser notifications for questions. Permission is only ever asked for after a click.

import type { Question } from '../wire';
import { visible } from '../format';
import { tell } from './notes';
import { notifying, setNotifying } from './prefs';

export function canNotify(): boolean {
  return 'Notification' in window;
}

export async function switchNotifying(on: boolean): Promise<void> {
  const allowed = on && (await Notification.requestPermission()) === 'granted';
  setNotifying(allowed);
  if (!on || allowed) return;
  tell({
    tone: 'bad',
    title: 'This browser does not allow notifications',
    text: 'Allow them for this page in the settings of the browser, then switch them on here.',
  });
}

const shown = new Map<string, Notification>();

/** Shows what is asked. `open` is called when the person wants to see it. */
export function announce(question: Question, open: () => void): void {
  if (!canNotify() || !notifying.get() || Notification.permission !== 'granted' || !document.hidden) return;
  let note: Notification;
  try {
    note = new Notification(question.question, { body: visible(question.command), tag: question.question_id });
  } catch {
    // There are browsers on phones that have notifications, but not for pages.
    setNotifying(false);
    tell({ tone: 'bad', title: 'This browser does not support notifications', text: 'Questions still appear here.' });
    return;
  }
  shown.set(question.question_id, note);
  note.onclick = () => {
    window.focus();
    open();
    note.close();
  };
}

/** A question that is closed needs nobody any more. */
export function retire(id: string): void {
  shown.get(id)?.close();
  shown.delete(id);
}
