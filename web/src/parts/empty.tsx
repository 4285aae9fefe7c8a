// Placeholder of an empty list, with a command to try.

import { useState, type ReactNode } from 'react';
import { showToast } from '../state/toasts';
import { CopyIcon } from './icons';

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** A command to try, with a copy button. */
export function CommandExample({ command }: { command: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    const failed = () => showToast({ tone: 'bad', title: 'This browser does not allow copying', text: command });
    try {
      navigator.clipboard.writeText(command).then(() => setCopied(true), failed);
    } catch {
      failed();
    }
  };
  return (
    <span className="try">
      <code>
        {command.split(' ').map((word, place) => (
          <span key={place}>{place === 0 ? word : ` ${word}`}</span>
        ))}
      </code>
      <button type="button" className="button plain compact icon" aria-label={`Copy ${command}`} onClick={copy}>
        {copied ? '✓' : <CopyIcon />}
      </button>
      <span className="hidden" role="status">
        {copied ? 'Copied' : ''}
      </span>
    </span>
  );
}
