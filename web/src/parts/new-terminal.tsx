// Starts a terminal from the page.

import { useState } from 'react';
import { post } from '../state/api';
import { stateCache } from '../state/state-cache';
import { go, wantedTerminal } from '../state/route';
import { useValue, Value } from '../state/value';
import type { Session } from '../wire';
import { DialogForm, ModalDialog } from './dialog';
import { fittingSize } from './terminal-size';

const asking = new Value(false);

export function openNewTerminal(): void {
  asking.set(true);
}

export function NewTerminal() {
  const open = useValue(asking);
  const close = () => asking.set(false);
  return (
    <ModalDialog open={open} onClose={close} title="New terminal">
      <Form onClose={close} />
    </ModalDialog>
  );
}

function Form({ onClose }: { onClose: () => void }) {
  const [command, setCommand] = useState('bash');
  const [cwd, setCwd] = useState('');
  const start = async () => {
    // A terminal that a person starts has no idle limit.
    const width = document.querySelector('.page')?.clientWidth ?? window.innerWidth;
    const wanted = { command, inactivity_timeout: 0, ...fittingSize(width), ...(cwd.trim() ? { cwd: cwd.trim() } : {}) };
    const session = await post<Session>('/v1/sessions', wanted);
    if (!stateCache.sessions.get(session.session_id)) stateCache.putSession(session);
    wantedTerminal.set(session.session_id);
    onClose();
    go(`/sessions/${session.session_id}`);
  };
  return (
    <DialogForm act="Start" ready={command.trim() !== ''} submit={start} onClose={onClose}>
      <label className="field">
        <span>Command</span>
        <input
          className="input code"
          value={command}
          onChange={(event) => setCommand(event.target.value)}
          autoCapitalize="off"
          autoCorrect="off"
          spellCheck={false}
          required
        />
      </label>
      <label className="field">
        <span>Folder</span>
        <input
          className="input code"
          value={cwd}
          onChange={(event) => setCwd(event.target.value)}
          placeholder="your home folder"
          autoCapitalize="off"
          autoCorrect="off"
          spellCheck={false}
        />
      </label>
    </DialogForm>
  );
}
