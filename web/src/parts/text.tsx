// Text that came from somewhere else, and times that go on by themselves.

import { exactly, ago, duration } from '../format';
import { useSecond } from '../state/use';

/** A command or a line, with everything in it visible. */
export function Exact({ text, className = '' }: { text: string; className?: string }) {
  return (
    <span className={`exact ${className}`} dir="ltr" translate="no">
      {exactly(text).map((run, place) =>
        run.mark ? (
          <span key={place} className="mark" title="A character that cannot be seen">
            {run.text}
          </span>
        ) : (
          run.text
        ),
      )}
    </span>
  );
}

interface TailProps {
  lines: string[];
  label: string;
  /** Long lines go on beyond the edge, so that tables stay tables and the height stays the same. */
  unwrapped?: boolean;
}

/** The last lines of a session, quoted. */
export function Tail({ lines, label, unwrapped }: TailProps) {
  const text = lines.join('\n');
  return (
    <pre className={`tail ${unwrapped ? 'unwrapped' : ''}`} tabIndex={0} role="group" aria-label={label}>
      {text === '' ? <span className="soft">No output yet</span> : <Exact text={text} />}
    </pre>
  );
}

/** `5m ago`, going on. */
export function Ago({ stamp }: { stamp: number }) {
  const now = useSecond();
  return <time dateTime={new Date(stamp).toISOString()}>{ago(stamp, now)}</time>;
}

/** How long it has been, going on; `least` is known already. */
export function Since({ stamp, least = 0 }: { stamp: number; least?: number }) {
  const now = useSecond();
  return <span className="numbers">{duration(Math.max(least, (now - stamp) / 1_000))}</span>;
}
