// What a person can do with a session: name it, interrupt it, send it signals, change its limits; run it again or delete it.

import { Menu } from '@base-ui/react/menu';
import { useState } from 'react';
import { duration } from '../format';
import { deleteSession, extend, interrupt, rename, rerun, sendSignal, type Sandbox } from '../state/actions';
import type { CachedSession } from '../state/state-cache';
import { go } from '../state/route';
import { ConfirmDialog, DialogForm, ModalDialog } from './dialog';
import { DownIcon, EditIcon } from './icons';
import { MenuButton } from './menu';
import { KillButton } from './session';
import { Exact, WholeText } from './text';
import { seconds } from './timer';

const SIGNALS: [string, string][] = [
  ['INT', 'interrupt'],
  ['TERM', 'terminate'],
  ['HUP', 'hang up'],
  ['QUIT', 'quit with a core dump'],
  ['USR1', 'user-defined'],
  ['USR2', 'user-defined'],
  ['STOP', 'stop'],
  ['CONT', 'continue'],
];

export function RenameButton({ session }: { session: CachedSession }) {
  const [naming, setNaming] = useState(false);
  return (
    <>
      <button type="button" className="button plain icon compact" aria-label="Rename…" title="Rename…" onClick={() => setNaming(true)}>
        <EditIcon />
      </button>
      {naming && <Rename session={session} onClose={() => setNaming(false)} />}
    </>
  );
}

function Rename({ session, onClose }: { session: CachedSession; onClose: () => void }) {
  const [name, setName] = useState(session.name ?? '');
  const change = async () => {
    await rename(session.session_id, name.trim());
    onClose();
  };
  return (
    <ModalDialog open onClose={onClose} title="Rename the session">
      <DialogForm act="Rename" submit={change} onClose={onClose}>
        <label className="field">
          <span>Name</span>
          <input className="input" value={name} onChange={(event) => setName(event.target.value)} placeholder="none" maxLength={64} autoFocus />
          <small>One word, which the command line takes instead of the id.</small>
        </label>
      </DialogForm>
    </ModalDialog>
  );
}

export function RunningActions({ session }: { session: CachedSession }) {
  const [limits, setLimits] = useState(false);
  const id = session.session_id;
  const runs = session.status === 'running';
  return (
    <>
      {runs && (
        <>
          <button type="button" className="button" title="Interrupt the command, as Ctrl-C does in a terminal" onClick={() => void interrupt(session)}>
            Ctrl-C
          </button>
          <MenuButton
            className="button"
            align="end"
            face={
              <>
                Signal <DownIcon />
              </>
            }
          >
            {SIGNALS.map(([name, words]) => (
              <Menu.Item key={name} className="menu-item" onClick={() => void sendSignal(id, name)}>
                SIG{name} <span className="soft small">{words}</span>
              </Menu.Item>
            ))}
          </MenuButton>
          <button type="button" className="button" onClick={() => setLimits(true)}>
            Limits…
          </button>
        </>
      )}
      <KillButton session={session} />
      {limits && <Limits session={session} onClose={() => setLimits(false)} />}
    </>
  );
}

function Limits({ session, onClose }: { session: CachedSession; onClose: () => void }) {
  const [time, setTime] = useState('');
  const [idle, setIdle] = useState('');
  const wanted = { timeout: seconds(time), idle: seconds(idle) };
  const invalid = (time.trim() !== '' && wanted.timeout === null) || (idle.trim() !== '' && wanted.idle === null);
  const nothing = wanted.timeout === null && wanted.idle === null;
  const change = async () => {
    await extend(session.session_id, wanted.timeout, wanted.idle);
    onClose();
  };
  return (
    <ModalDialog open onClose={onClose} title="Change the limits">
      <DialogForm act="Change" ready={!invalid && !nothing} submit={change} onClose={onClose}>
        <label className="field">
          <span>Time limit, from now</span>
          <input className="input" value={time} onChange={(event) => setTime(event.target.value)} placeholder="unchanged" autoFocus />
          <small>{session.timeout === null ? 'Currently none.' : `Currently ${duration(session.timeout)} from the start.`} At the limit the command is killed.</small>
        </label>
        <label className="field">
          <span>Quiet time before a question</span>
          <input className="input" value={idle} onChange={(event) => setIdle(event.target.value)} placeholder="unchanged" />
          <small>{session.idle === null ? 'Currently none.' : `Currently ${duration(session.idle)}.`} Durations such as 90s, 10m or 1h30m.</small>
        </label>
        {invalid && <p className="fault">Not a valid duration.</p>}
      </DialogForm>
    </ModalDialog>
  );
}

export function EndedActions({ session }: { session: CachedSession }) {
  const [asking, setAsking] = useState<'rerun' | 'delete' | null>(null);
  const close = () => setAsking(null);
  const remove = async () => {
    if (await deleteSession(session.session_id)) go('/sessions');
  };
  return (
    <>
      {/* Of another machine only a part of the command may be known, and its folder is not here. */}
      {!session.machine && (
        <button type="button" className="button" onClick={() => setAsking('rerun')}>
          Run again…
        </button>
      )}
      <button type="button" className="button bad" onClick={() => setAsking('delete')}>
        Delete…
      </button>
      {asking === 'rerun' && <RunAgain session={session} onClose={close} />}
      {asking === 'delete' && (
        <ConfirmDialog open onClose={close} title="Delete this session?" act="Delete it" onYes={() => void remove()}>
          <WholeText className="command" text={session.command} label="Command" />
          <p className="soft">Its log is deleted as well. This cannot be undone.</p>
        </ConfirmDialog>
      )}
    </>
  );
}

const SANDBOXES: [Sandbox, string][] = [
  ['workspace-write', 'Only its folder can be written'],
  ['read-only', 'Nothing can be written'],
  ['', 'No sandbox'],
];

function RunAgain({ session, onClose }: { session: CachedSession; onClose: () => void }) {
  const sandboxed = session.sandboxed_by !== null && session.sandboxed_by !== 'off';
  // Which sandbox the first run had is not recorded, so a person chooses one.
  const [sandbox, setSandbox] = useState<Sandbox | null>(sandboxed ? null : '');
  const again = async () => {
    const id = await rerun(session, sandbox ?? '');
    if (id !== null) go(`/sessions/${id}`);
  };
  return (
    <ConfirmDialog open onClose={onClose} title="Run this command again?" act="Run it" ready={sandbox !== null} onYes={() => void again()}>
      <WholeText className="command" text={session.command} label="Command" />
      <p className="soft">
        It runs as a new session of yours in <Exact text={session.cwd} />, without the environment and the limits of the first run.
      </p>
      {sandboxed && (
        <label className="field">
          <span>Sandbox</span>
          <select className="input" value={sandbox ?? 'unknown'} onChange={(event) => setSandbox(event.target.value as Sandbox)}>
            <option value="unknown" disabled>
              Choose…
            </option>
            {SANDBOXES.map(([name, words]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
          <small>The first run was in a sandbox.</small>
        </label>
      )}
    </ConfirmDialog>
  );
}
