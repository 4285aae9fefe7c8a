// Short notes that come up in a corner, from anywhere in the page.

import { Toast } from '@base-ui/react/toast';

export const notes = Toast.createToastManager();

export interface Note {
  tone: 'good' | 'bad';
  title: string;
  text?: string;
}

export function tell(note: Note): void {
  notes.add({
    title: note.title,
    ...(note.text === undefined ? {} : { description: note.text }),
    type: note.tone,
    // What went wrong is read out at once, and stays longer.
    priority: note.tone === 'bad' ? 'high' : 'low',
    timeout: note.tone === 'bad' ? 12_000 : 5_000,
  });
}
