// Toasts: short messages in a corner of the page.

import { Toast } from '@base-ui/react/toast';

export const toastManager = Toast.createToastManager();

export interface ToastText {
  tone: 'good' | 'bad';
  title: string;
  text?: string;
}

export function showToast(toast: ToastText): void {
  toastManager.add({
    title: toast.title,
    ...(toast.text === undefined ? {} : { description: toast.text }),
    type: toast.tone,
    // Errors are read out at once and stay longer.
    priority: toast.tone === 'bad' ? 'high' : 'low',
    timeout: toast.tone === 'bad' ? 12_000 : 5_000,
  });
}
