// Starts a timer from the page.

import { useState } from 'react';
import { post } from '../state/api';
import { go } from '../state/route';
import { useValue, Value } from '../state/value';
import { DialogForm, ModalDialog } from './dialog';
import { seconds } from './timer';

const asking = new Value(false);

export function openNewTimer(): void {
  asking.set(true);
}

export function NewTimer() {
  const open = useValue(asking);
  const close = () => asking.set(false);
  return (
    <ModalDialog open={open} onClose={close} title="New timer">
      <Form onClose={close} />
    </ModalDialog>
  );
}

type Kind = 'none' | 'port' | 'url' | 'file' | 'command';

const KINDS: Record<Kind, { name: string; label: string; example: string }> = {
  none: { name: 'No, only when the time is up', label: '', example: '' },
  port: { name: 'When a port is open', label: 'Port', example: '3000' },
  url: { name: 'When a URL answers', label: 'URL', example: 'http://127.0.0.1:3000/health' },
  file: { name: 'When a file exists', label: 'File', example: '/tmp/done' },
  command: { name: 'When a command succeeds', label: 'Command', example: 'test -s report.txt' },
};

function condition(kind: Kind, value: string): Record<string, unknown> | undefined {
  if (kind === 'none') return undefined;
  if (kind === 'port') return { port: /^\d+$/.test(value) ? Number(value) : value };
  return { [kind]: value };
}

function Form({ onClose }: { onClose: () => void }) {
  const [reason, setReason] = useState('');
  const [time, setTime] = useState('10m');
  const [kind, setKind] = useState<Kind>('none');
  const [value, setValue] = useState('');
  const total = seconds(time);
  const until = condition(kind, value.trim());
  const ready = reason.trim() !== '' && total !== null && (kind === 'none' || value.trim() !== '');
  const start = async () => {
    const timer = { reason: reason.trim(), total_duration: total, ...(until ? { until } : {}) };
    const { timer_ids } = await post<{ timer_ids: string[] }>('/v1/timers', { timers: [timer] });
    onClose();
    go(`/timers/${timer_ids[0] ?? ''}`);
  };
  return (
    <DialogForm act="Start" ready={ready} submit={start} onClose={onClose}>
      <label className="field">
        <span>Reason</span>
        <input className="input" value={reason} onChange={(event) => setReason(event.target.value)} placeholder="the build to finish" required autoFocus />
      </label>
      <label className="field">
        <span>Duration</span>
        <input className="input" value={time} onChange={(event) => setTime(event.target.value)} required />
        <small>Such as 90s, 10m or 1h30m.</small>
      </label>
      {total === null && <p className="fault">Not a valid duration.</p>}
      <label className="field">
        <span>Complete early</span>
        <select className="input" value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
          {Object.entries(KINDS).map(([name, { name: words }]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
      </label>
      {kind !== 'none' && (
        <label className="field">
          <span>{KINDS[kind].label}</span>
          <input
            className="input code"
            value={value}
            onChange={(event) => setValue(event.target.value)}
            placeholder={KINDS[kind].example}
            autoCapitalize="off"
            autoCorrect="off"
            spellCheck={false}
            required
          />
        </label>
      )}
    </DialogForm>
  );
}
