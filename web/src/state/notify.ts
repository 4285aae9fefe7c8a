// Browser notifications for questions. Permission is requested only after a click.

import type { Question } from '../wire';
import { visible } from '../format';
import { showToast } from './toasts';
import { notifying, setNotifying } from './prefs';

export function canNotify(): boolean {
  return 'Notification' in window;
}

export async function switchNotifying(on: boolean): Promise<void> {
  const allowed = on && (await Notification.requestPermission()) === 'granted';
  setNotifying(allowed);
  if (!on || allowed) return;
  showToast({
    tone: 'bad',
    title: 'This browser does not allow notifications',
    text: 'Allow them for this page in the settings of the browser, then switch them on here.',
  });
}

const shown = new Map<string, Notification>();

/** Shows a question as a notification; a click calls `open`. */
export function announce(question: Question, open: () => void): void {
  if (!canNotify() || !notifying.get() || Notification.permission !== 'granted' || !document.hidden) return;
  let note: Notification;
  try {
    note = new Notification(question.question, { body: visible(question.command), tag: question.question_id });
  } catch {
    // Some mobile browsers have notifications, but not for pages.
    setNotifying(false);
    showToast({ tone: 'bad', title: 'This browser does not support notifications', text: 'Questions still appear here.' });
    return;
  }
  shown.set(question.question_id, note);
  note.onclick = () => {
    window.focus();
    open();
    note.close();
  };
}

/** Closes the notification of a question that is closed. */
export function retire(id: string): void {
  shown.get(id)?.close();
  shown.delete(id);
}
