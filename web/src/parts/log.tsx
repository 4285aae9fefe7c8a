// The log of a session: lines by number, with search, links, copy and follow. Only visible lines are fetched and drawn,
// so a million lines are as fast as ten.

import {
  useCallback,
  useEffect,
  useImperativeHandle,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
  type MouseEvent,
  type Ref,
} from 'react';
import { bytes as inBytes, count, plural } from '../format';
import { errorMessage } from '../state/actions';
import { get, withQuery } from '../state/api';
import { LogPages } from '../state/log-pages';
import { logTimes, logWrap, setLogTimes, setLogWrap } from '../state/prefs';
import { fragment, setFragment, useParam } from '../state/route';
import { useValue } from '../state/value';
import type { LogLine, LogLines } from '../wire';
import { CopyLines } from './log-copy';
import { LogFind } from './log-find';
import { LogText } from './log-text';
import { formatLines, listHeight, literalPattern, parseLines, ROW, topFor, windowAt } from './log-window';

/** A log with at most this many lines is drawn completely. */
const WHOLE = 400;

interface Props {
  id: string;
  /** More output may come. */
  live: boolean;
  /** Bytes written so far. */
  bytes: number;
  /** Machine whose log it is, if not this one: it does not say when there is more output. */
  machine: string | undefined;
}

/** Time between two looks at a log of another machine, in milliseconds. */
const LOOK_EVERY = 2_000;

function reader(id: string, pattern: string) {
  const path = `/v1/sessions/${encodeURIComponent(id)}/lines`;
  return (from: number, limit: number) => get<LogLines>(withQuery(path, { from, limit, pattern }));
}

/** The pages of a log, fetched again when the log has grown or another pattern is highlighted. */
function useLogPages(id: string, pattern: string, bytes: number, live: boolean, isPolled: boolean): LogPages {
  const pages = useMemo(() => new LogPages(reader(id, '')), [id]);
  useSyncExternalStore(pages.subscribe, () => pages.version);
  const marked = useRef('');
  useEffect(() => {
    if (marked.current !== pattern) pages.use(reader(id, pattern));
    marked.current = pattern;
    pages.refresh();
  }, [id, pages, pattern, bytes, live]);
  useEffect(() => {
    if (!isPolled) return;
    const look = () => {
      if (!document.hidden) pages.refresh();
    };
    const timer = setInterval(look, LOOK_EVERY);
    return () => clearInterval(timer);
  }, [pages, isPolled]);
  return pages;
}

export default function Log({ id, live, bytes, machine }: Props) {
  const [text] = useParam('find');
  const [regex] = useParam('regex');
  const [typed, setTyped] = useState(false);
  const pattern = text === '' ? '' : regex === '1' ? text : literalPattern(text);
  // An invalid pattern is refused by the search; the lines are shown without highlights.
  const [valid, setValid] = useState('');
  const pages = useLogPages(id, valid === pattern ? pattern : '', bytes, live, live && machine !== undefined);
  const { total, dropped, fault } = pages;
  const wrap = useValue(logWrap);
  const times = useValue(logTimes);
  const chosen = parseLines(useValue(fragment));
  const list = useRef<ListHandle>(null);
  const [following, setFollowing] = useState(live && chosen === null);
  const show = useCallback((line: number) => list.current?.show(line), []);
  const [anchor, setAnchor] = useState<number | null>(null);
  const choose = (line: number, extend: boolean) => {
    const from = extend ? (anchor ?? chosen?.[0] ?? line) : line;
    if (!extend) setAnchor(line);
    setFragment(formatLines(from, line));
  };
  // Scrolls to the line of the URL once the log is loaded, and again when the URL changes.
  const wanted = chosen?.[0] ?? null;
  const known = total !== null;
  useEffect(() => {
    if (known && wanted !== null) list.current?.show(wanted);
  }, [known, wanted]);
  return (
    <section className="section log-section" aria-label="Log">
      <div className="tools log-tools">
        <LogFind
          id={id}
          text={text}
          regex={regex === '1'}
          pattern={pattern}
          total={total}
          dropped={dropped}
          current={chosen?.[0] ?? null}
          start={() => chosen?.[0] ?? list.current?.first() ?? 1}
          jump={typed || chosen === null}
          onTyped={() => setTyped(true)}
          onValid={setValid}
          onShow={(line) => {
            setFragment(formatLines(line, line));
            show(line);
          }}
        />
        <div className="log-switches">
          <Toggle on={wrap} onClick={() => setLogWrap(!wrap)}>
            Wrap
          </Toggle>
          <Toggle on={times} onClick={() => setLogTimes(!times)}>
            Times
          </Toggle>
          {live && (
            <Toggle
              on={following}
              onClick={() => {
                setFollowing(!following);
                if (!following) list.current?.toEnd();
              }}
            >
              Follow
            </Toggle>
          )}
          <button type="button" className="button compact" disabled={!known} onClick={() => show(1)}>
            Top
          </button>
          <button type="button" className="button compact" disabled={!known} onClick={() => show(total ?? 1)}>
            End
          </button>
          <CopyLines id={id} chosen={chosen} total={total ?? 0} />
        </div>
      </div>
      {fault !== null && (
        <p className="fault" role="alert">
          {errorMessage(fault)}{' '}
          <button type="button" className="button compact" onClick={() => pages.retry()}>
            Try again
          </button>
        </p>
      )}
      {total === null ? (
        <div className="log-box log-empty">Loading…</div>
      ) : total === 0 ? (
        <div className="log-box log-empty">{live ? 'No output yet' : 'No output'}</div>
      ) : (
        <List
          ref={list}
          pages={pages}
          total={total}
          wrap={wrap}
          times={times}
          chosen={chosen}
          following={live && following}
          onFollowing={setFollowing}
          onChoose={choose}
        />
      )}
      <div className="facts" role="status">
        <span data-testid="log-state">{live ? 'Live' : total === 0 ? 'Ended without output' : 'Ended'}</span>
        {total !== null && total > 0 && <span className="numbers">{plural(total, 'line')}</span>}
        {chosen && (
          <span className="numbers">
            {chosen[0] === chosen[1] ? `Line ${count(chosen[0])}` : `Lines ${count(chosen[0])} to ${count(chosen[1])}`}
            {total !== null && chosen[0] > total && ' is not there yet'}
          </span>
        )}
      </div>
    </section>
  );
}

function Toggle({ on, onClick, children }: { on: boolean; onClick: () => void; children: string }) {
  return (
    <button type="button" className={`button compact ${on ? 'on' : ''}`} aria-pressed={on} onClick={onClick}>
      {children}
    </button>
  );
}

interface ListHandle {
  /** Scrolls a line into view. */
  show: (line: number) => void;
  toEnd: () => void;
  /** The first visible line. */
  first: () => number;
}

interface ListProps {
  ref: Ref<ListHandle>;
  pages: LogPages;
  total: number;
  wrap: boolean;
  times: boolean;
  chosen: [number, number] | null;
  following: boolean;
  onFollowing: (following: boolean) => void;
  onChoose: (line: number, extend: boolean) => void;
}

function List({ ref, pages, total, wrap, times, chosen, following, onFollowing, onChoose }: ListProps) {
  const box = useRef<HTMLDivElement>(null);
  const block = useRef<HTMLDivElement>(null);
  const lastTop = useRef(0);
  const [place, setPlace] = useState({ top: 0, height: 600 });
  const whole = total <= WHOLE;
  const at = whole ? { from: 0, to: total, anchor: 0, part: 0, y: 0 } : windowAt(place.top, place.height, total);
  const { from, to, anchor, part, y } = at;

  const look = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const next = { top: element.scrollTop, height: element.clientHeight };
    setPlace((old) => (old.top === next.top && old.height === next.height ? old : next));
  }, []);
  const isAtEnd = () => {
    const element = box.current;
    return element === null || element.scrollHeight - element.clientHeight - element.scrollTop < 2 * ROW;
  };
  const toEnd = useCallback(() => {
    const element = box.current;
    if (!element) return;
    element.scrollTop = element.scrollHeight;
    look();
  }, [look]);

  useImperativeHandle(
    ref,
    () => ({
      show: (line) => {
        const element = box.current;
        if (!element) return;
        if (line >= total) {
          element.scrollTop = element.scrollHeight;
        } else if (whole) {
          const row = element.querySelector<HTMLElement>(`[data-line="${line}"]`);
          if (row) element.scrollTop = row.offsetTop - (element.clientHeight - row.offsetHeight) / 2;
        } else {
          element.scrollTop = topFor(Math.min(line, total), element.clientHeight, total, !wrap);
        }
        // If the log is below the visible part of the page, the page is scrolled as well.
        element.scrollIntoView({ block: 'nearest' });
        look();
      },
      toEnd,
      first: () => {
        const element = box.current;
        if (!element) return 1;
        const edge = element.getBoundingClientRect().top;
        const rows = [...element.querySelectorAll<HTMLElement>('[data-line]')];
        const row = rows.find((candidate) => candidate.getBoundingClientRect().bottom > edge + 1);
        return Number(row?.dataset['line'] ?? 1);
      },
    }),
    [look, toEnd, total, whole, wrap],
  );

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    // What appears above the log makes it lower, and would hide the last lines of one that is followed.
    const sized = new ResizeObserver(following ? toEnd : look);
    sized.observe(element);
    // If the list is higher than a browser can scroll, one step of the wheel would skip many lines.
    const wheel = (event: WheelEvent) => {
      const rate = listHeight(total) / (total * ROW);
      if (rate === 1 || event.ctrlKey || event.shiftKey || event.deltaMode !== 0) return;
      event.preventDefault();
      element.scrollTop += event.deltaY * rate;
    };
    element.addEventListener('wheel', wheel, { passive: false });
    return () => {
      sized.disconnect();
      element.removeEventListener('wheel', wheel);
    };
  }, [look, toEnd, following, total]);

  useEffect(() => pages.want(from + 1, to), [pages, from, to, pages.version]);

  // The browser lays out the lines; they are then moved so that the anchor is at its position.
  useLayoutEffect(() => {
    const lines = block.current;
    if (!lines || whole) {
      if (lines) lines.style.transform = '';
      return;
    }
    const row = lines.children[anchor - from] as HTMLElement | undefined;
    if (!row) return;
    lines.style.transform = `translateY(${place.top + y - row.offsetTop - part * row.offsetHeight}px)`;
  });

  // A followed log is scrolled to its end before it is painted.
  useLayoutEffect(() => {
    if (following) toEnd();
  }, [following, toEnd, total, wrap, pages.version]);

  const lines = [];
  for (let number = from + 1; number <= to; number += 1) {
    const isChosen = chosen !== null && number >= chosen[0] && number <= chosen[1];
    lines.push(
      <Line key={number} number={number} line={pages.line(number)} times={times} chosen={isChosen} onChoose={onChoose} />,
    );
  }
  return (
    <div
      ref={box}
      className={`log-box ${wrap ? 'wrap' : ''} ${whole ? '' : 'long'}`}
      tabIndex={0}
      role="group"
      aria-label="Lines"
      onScroll={({ currentTarget: { scrollTop } }) => {
        const isUp = scrollTop < lastTop.current;
        lastTop.current = scrollTop;
        look();
        if (isAtEnd()) onFollowing(true);
        else if (isUp) onFollowing(false);
        // The log has grown since it was scrolled to its end.
        else if (following) toEnd();
      }}
    >
      <div className="log-list" style={whole ? undefined : { height: listHeight(total) }}>
        <div ref={block} className="log-block" style={{ '--digits': String(total).length } as object}>
          {lines}
        </div>
      </div>
    </div>
  );
}

const clock = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
});

interface LineProps {
  number: number;
  line: LogLine | undefined;
  times: boolean;
  chosen: boolean;
  onChoose: (line: number, extend: boolean) => void;
}

function Line({ number, line, times, chosen, onChoose }: LineProps) {
  const choose = (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    onChoose(number, event.shiftKey);
  };
  const isError = line?.stream === 'stderr' || line?.stream === 'both';
  return (
    <div className={`log-line ${isError ? 'stderr' : ''} ${chosen ? 'chosen' : ''}`} data-line={number}>
      <a className="log-number" href={`#L${number}`} tabIndex={-1} onClick={choose} aria-label={`Line ${number}`}>
        {number}
      </a>
      {times && (
        <span className="log-time" title={line && new Date(line.at).toISOString()}>
          {line && clock.format(line.at)}
        </span>
      )}
      {line?.stream !== 'pty' && (
        <span className="log-stream" title={isError ? (line.stream === 'both' ? 'stdout and stderr' : 'stderr') : undefined}>
          {isError && 'err'}
        </span>
      )}
      {line && (
        <span className="log-content">
          {line.missing !== undefined && <span className="log-note">{inBytes(line.missing)} before this line are no longer kept. </span>}
          <LogText line={line} />
          {line.cut !== undefined && <span className="log-note"> Download the log to see the {inBytes(line.cut)} that are left out.</span>}
        </span>
      )}
    </div>
  );
}
