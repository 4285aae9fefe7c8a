// Text from commands and agents, and relative times that update themselves.

import type { ReactNode } from 'react';
import { ago, count, duration, exactly, firstLine, plural } from '../format';
import { useSecond } from '../state/use';

/** A command or a line with hidden characters made visible. */
export function Exact({ text, className = '' }: { text: string; className?: string }) {
  return (
    <span className={`exact ${className}`} dir="ltr" translate="no">
      {exactly(text).map((run, place) =>
        run.mark ? (
          <span key={place} className="mark" title="Invisible character">
            {run.text}
          </span>
        ) : (
          run.text
        ),
      )}
    </span>
  );
}

function MoreLines({ more }: { more: number }) {
  return more > 0 && <span className="more-lines">+{plural(more, 'line')}</span>;
}

interface OneLineProps {
  text: string;
  prose?: boolean;
  /** Content before the text. */
  before?: ReactNode;
}

/** A text in a row of a list: its first line, cut at the edge, and how many more lines it has. */
export function OneLine({ text, prose = false, before }: OneLineProps) {
  const { line, more } = firstLine(text);
  return (
    <span className="first-line">
      {before}
      <Exact text={line} className={prose ? 'prose one-line' : 'one-line'} /> <MoreLines more={more} />
    </span>
  );
}

interface FewLinesProps {
  text: string;
  prose?: boolean;
  /** Content before the text. */
  before?: ReactNode;
}

/** A text in a card: its first line, wrapped a few times at most, and how many more lines it has. */
export function FewLines({ text, prose = false, before }: FewLinesProps) {
  const { line, more } = firstLine(text);
  return (
    <>
      <span className="few-lines">
        {before}
        <Exact text={line} className={prose ? 'prose' : ''} />
      </span>{' '}
      <MoreLines more={more} />
    </>
  );
}

/** Longer texts get a scroll area of their own. */
const LONG_CHARACTERS = 400;
const LONG_LINES = 8;

export function isLong(text: string): boolean {
  return text.length > LONG_CHARACTERS || text.split('\n', LONG_LINES + 1).length > LONG_LINES;
}

/** A whole text. A long one scrolls within its own area, so that what is below it stays in view. */
export function WholeText({ text, label, className = '' }: { text: string; label: string; className?: string }) {
  if (!isLong(text)) {
    return (
      <div className={className}>
        <Exact text={text} />
      </div>
    );
  }
  return (
    <div className="whole-text">
      <ScrollArea text={text} label={label} className={className} />
      <span className="soft small numbers">{extent(text)}</span>
    </div>
  );
}

/** `7 lines, 5,064 characters`. */
export function extent(text: string): string {
  return `${plural(text.trimEnd().split('\n').length, 'line')}, ${count(text.length)} characters`;
}

export function ScrollArea({ text, label, className = '' }: { text: string; label: string; className?: string }) {
  return (
    <div className={`scroll-area ${className}`} tabIndex={0} role="group" aria-label={label}>
      <Exact text={text} />
    </div>
  );
}

interface TailProps {
  lines: string[];
  label: string;
  /** Long lines are not wrapped, so that tables keep their shape and the height stays the same. */
  unwrapped?: boolean;
  /** Text for no lines. */
  empty?: string | undefined;
}

/** The last lines of a session, quoted. */
export function Tail({ lines, label, unwrapped, empty = 'No output yet' }: TailProps) {
  const text = lines.join('\n');
  return (
    <pre className={`tail ${unwrapped ? 'unwrapped' : ''}`} tabIndex={0} role="group" aria-label={label}>
      {text === '' ? <span className="soft">{empty}</span> : <Exact text={text} />}
    </pre>
  );
}

/** Everything in a text of the daemon up to the output of a command. */
const BEFORE_OUTPUT = /^[^]*?(?:\nLast lines:|Its last output:)\n/;

/** A text of the daemon, with the output of a command in it as output. */
export function TextWithOutput({ text }: { text: string }) {
  const head = BEFORE_OUTPUT.exec(text)?.[0];
  if (head === undefined) return <Exact text={text} className="prose" />;
  return (
    <>
      <Exact text={head.trimEnd()} className="prose" />
      <Tail lines={text.slice(head.length).split('\n')} label="Last lines" />
    </>
  );
}

/** `5m ago`, updated every second. */
export function Ago({ stamp }: { stamp: number }) {
  const now = useSecond();
  return <time dateTime={new Date(stamp).toISOString()}>{ago(stamp, now)}</time>;
}

/** Time since `stamp`, updated every second; `least` is its lower limit. */
export function Since({ stamp, least = 0 }: { stamp: number; least?: number }) {
  const now = useSecond();
  return <span className="numbers">{duration(Math.max(least, (now - stamp) / 1_000))}</span>;
}
