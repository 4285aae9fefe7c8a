// A live terminal. It keeps the size of the session, since an agent reads the same screen; the font shrinks to fit. The
// session is resized only on request.

import { Terminal as Xterm } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { useEffect, useRef, useState } from 'react';
import { connection } from '../state/live';
import { pauseBefore } from '../state/live';
import { showToast } from '../state/toasts';
import { wantedTerminal } from '../state/route';
import { withAdoptedStyles } from './adopted-styles';
import { fittingSize, LARGEST, WIDE } from './terminal-size';

const SMALLEST = 9;

const COLOURS = {
  background: '#17191a',
  foreground: '#e4e3dc',
  cursor: '#6cc9b3',
  cursorAccent: '#17191a',
  selectionBackground: '#3b5d55',
  black: '#24282a',
  red: '#e7776d',
  green: '#7fc48f',
  yellow: '#dfbd6c',
  blue: '#79a8e0',
  magenta: '#c692d8',
  cyan: '#6cc9b3',
  white: '#d6d5ce',
  brightBlack: '#8a918c',
  brightRed: '#f2958b',
  brightGreen: '#9fdcab',
  brightYellow: '#efd48f',
  brightBlue: '#9cc3f2',
  brightMagenta: '#dcb1ea',
  brightCyan: '#8cdbc8',
  brightWhite: '#f6f5f1',
};

/** Keys that an on-screen keyboard does not have. */
const KEYS: [string, string, string][] = [
  ['Ctrl-C', 'Ctrl-C', '\x03'],
  ['Tab', 'Tab', '\t'],
  ['Esc', 'Escape', '\x1b'],
  ['↑', 'Up', '\x1b[A'],
  ['↓', 'Down', '\x1b[B'],
  ['←', 'Left', '\x1b[D'],
  ['→', 'Right', '\x1b[C'],
  ['Ctrl-D', 'Ctrl-D', '\x04'],
];
/** Minimum time between two warnings that keys are not sent, in milliseconds. */
const NOTE_EVERY = 5_000;

function isInput(event: KeyboardEvent): boolean {
  return event.key.length === 1 || /^(Enter|Backspace|Tab|Arrow)/.test(event.key);
}

type State = 'connecting' | 'live' | 'ended' | 'broken';

interface Word {
  type: 'hello' | 'resized' | 'ended';
  cols?: number;
  rows?: number;
  pty?: boolean;
  running?: boolean;
  read_only?: string;
}

interface Props {
  id: string;
  /** No output so far. */
  silent: boolean;
}

export default function Terminal({ id, silent }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const socket = useRef<WebSocket | null>(null);
  const press = useRef<(text: string) => void>(() => undefined);
  const [state, setState] = useState<State>('connecting');
  const [size, setSize] = useState<[number, number] | null>(null);
  const [readOnly, setReadOnly] = useState('');
  /** It was just started from the page, and is shown with its keys once it is live. */
  const started = useRef(false);

  useEffect(() => {
    const box = place.current;
    if (!box) return;
    const terminal = new Xterm({
      allowProposedApi: false,
      cursorBlink: true,
      disableStdin: true,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
      fontSize: LARGEST,
      // Links in the output are text: output of a command must not open anything.
      linkHandler: null,
      screenReaderMode: true,
      scrollback: 10_000,
      theme: COLOURS,
    });
    const removeStyles = withAdoptedStyles(() => terminal.open(box));
    /** The connection is lost: input is dropped. */
    let lost = false;
    let toldOf = 0;
    const notSent = () => {
      if (Date.now() - toldOf < NOTE_EVERY) return;
      toldOf = Date.now();
      showToast({ tone: 'bad', title: 'Not sent', text: 'The terminal is not connected. Type it again once it is back.' });
    };
    let keyDown = false;
    // In screen reader mode, xterm.js ignores text that comes without a key: from an emoji picker or dictation.
    terminal.textarea?.addEventListener('input', (event) => {
      const { data, inputType } = event;
      if (inputType !== 'insertText' || !data || keyDown) return;
      if (lost) notSent();
      terminal.input(data);
    });
    // Tab goes to the program. Shift+Escape leaves the terminal; the text below says so.
    terminal.attachCustomKeyEventHandler((event) => {
      keyDown = event.type !== 'keyup';
      if (lost && event.type === 'keydown' && isInput(event)) notSent();
      if (event.key !== 'Escape' || !event.shiftKey) return true;
      if (event.type === 'keydown') document.querySelector<HTMLElement>('[data-after-terminal]')?.focus();
      return false;
    });
    const shrink = () => {
      const room = box.clientWidth - 32;
      const fitting = Math.floor((room / (terminal.cols * WIDE)) * 2) / 2;
      terminal.options.fontSize = Math.min(LARGEST, Math.max(SMALLEST, fitting));
    };
    const sized = new ResizeObserver(shrink);
    sized.observe(box);

    let over = false;
    let tries = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const resize = (word: Word) => {
      if (!word.cols || !word.rows) return;
      terminal.resize(word.cols, word.rows);
      setSize([word.cols, word.rows]);
      shrink();
    };
    const hear = (word: Word) => {
      if (word.type === 'hello') {
        // The whole screen is painted again.
        terminal.reset();
        tries = 0;
        resize(word);
        terminal.options.disableStdin = !(word.pty && word.running && !word.read_only);
        setReadOnly(word.read_only ?? '');
        terminal.options.cursorBlink = word.running ?? false;
        lost = false;
        setState(word.running ? 'live' : 'ended');
        if (wantedTerminal.get() === id) {
          wantedTerminal.set(null);
          terminal.focus();
          started.current = true;
        }
      } else if (word.type === 'resized') {
        resize(word);
      } else {
        over = true;
        terminal.options.disableStdin = true;
        terminal.options.cursorBlink = false;
        setState('ended');
      }
    };
    const open = () => {
      timer = undefined;
      const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
      const ws = new WebSocket(`${scheme}://${location.host}/v1/sessions/${encodeURIComponent(id)}/terminal`);
      ws.binaryType = 'arraybuffer';
      socket.current = ws;
      ws.onmessage = (event: MessageEvent<string | ArrayBuffer>) => {
        if (typeof event.data === 'string') hear(JSON.parse(event.data) as Word);
        else terminal.write(new Uint8Array(event.data));
      };
      ws.onclose = (event) => {
        if (socket.current === ws) socket.current = null;
        if (event.code !== 1000) lose();
      };
    };
    const lose = () => {
      if (over) return;
      lost = true;
      setState('broken');
      terminal.options.disableStdin = true;
      timer = setTimeout(open, pauseBefore(tries));
      tries += 1;
    };
    open();
    const leave = connection.subscribe(() => {
      const { state } = connection.get();
      const ws = socket.current;
      if (state === 'live' && timer !== undefined) {
        // The terminal reconnects as soon as the page has reconnected.
        clearTimeout(timer);
        open();
      } else if (state === 'broken' && ws) {
        // The terminal may be silent for hours; that its connection is dead as well shows in the one of the page only.
        ws.onmessage = ws.onclose = null;
        ws.close();
        socket.current = null;
        lose();
      }
    });

    const send = (bytes: Uint8Array<ArrayBuffer>) => {
      if (socket.current?.readyState === WebSocket.OPEN) socket.current.send(bytes);
      else notSent();
    };
    const coder = new TextEncoder();
    press.current = (text) => {
      send(coder.encode(text));
      terminal.focus();
    };
    const typed = terminal.onData((text) => send(coder.encode(text)));
    const raw = terminal.onBinary((text) => send(Uint8Array.from(text, (char) => char.charCodeAt(0))));
    return () => {
      over = true;
      clearTimeout(timer);
      leave();
      typed.dispose();
      raw.dispose();
      sized.disconnect();
      socket.current?.close();
      terminal.dispose();
      removeStyles();
    };
  }, [id]);

  useEffect(() => {
    if (state !== 'live' || !started.current) return;
    started.current = false;
    place.current?.parentElement?.scrollIntoView({ block: 'nearest' });
  }, [state]);

  const fit = () => {
    const box = place.current;
    if (!box) return;
    socket.current?.send(JSON.stringify({ type: 'resize', ...fittingSize(box.clientWidth) }));
  };

  return (
    <section className="section" aria-label="Terminal">
      <div className="screen" ref={place} />
      {state === 'live' && !readOnly && (
        <div className="touch-keys" role="group" aria-label="Keys">
          {KEYS.map(([face, name, bytes]) => (
            <button
              key={name}
              type="button"
              className="button compact"
              aria-label={name}
              // The on-screen keyboard stays open.
              onPointerDown={(event) => event.preventDefault()}
              onClick={() => press.current(bytes)}
            >
              {face}
            </button>
          ))}
        </div>
      )}
      <div className="facts" role="status">
        <span data-testid="terminal-state">{silent && state === 'ended' ? 'Ended without output' : WORDS[state]}</span>
        {size && (
          <span className="numbers">
            {size[0]} × {size[1]}
          </span>
        )}
        {state === 'live' && readOnly && <span>Read-only: {readOnly}</span>}
        {state === 'live' && !readOnly && (
          <span>
            <kbd>Shift</kbd> <kbd>Esc</kbd> leaves the terminal
          </span>
        )}
      </div>
      <div className="row-of-buttons">
        <button
          type="button"
          className="button compact"
          data-after-terminal
          disabled={state !== 'live' || readOnly !== ''}
          title="The agent sees the same size"
          onClick={fit}
        >
          Fit to this window
        </button>
      </div>
    </section>
  );
}

const WORDS: Record<State, string> = {
  connecting: 'Connecting…',
  live: 'Live',
  ended: 'Ended',
  broken: 'Connection lost; reconnecting… What you type is not sent.',
};
