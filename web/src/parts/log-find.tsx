// Search within a log: a text or a regular expression, the current match, and buttons for the next and previous match.

import { useEffect, useRef, type KeyboardEvent } from 'react';
import { count } from '../format';
import { errorMessage } from '../state/actions';
import { placeFrom, useLogSearch, type SearchResult } from '../state/find';
import { showToast } from '../state/toasts';
import { useParam } from '../state/route';
import { DownIcon, UpIcon } from './icons';

interface Props {
  id: string;
  text: string;
  regex: boolean;
  pattern: string;
  total: number | null;
  /** Bytes missing from the log. */
  dropped: number;
  /** The current line, if one is chosen. */
  current: number | null;
  /** The line at which a search begins. */
  start: () => number;
  /** Whether the first result scrolls to its match. It does not if the URL names a line. */
  jump: boolean;
  onTyped: () => void;
  onValid: (pattern: string) => void;
  onShow: (line: number) => void;
}

export function LogFind({ id, text, regex, pattern, total, dropped, current, start, jump, onTyped, onValid, onShow }: Props) {
  const [, setText] = useParam('find');
  const [, setRegex] = useParam('regex');
  const { found, fault, more } = useLogSearch(id, pattern, total, dropped);
  const place = found && current !== null ? found.lines.indexOf(current) : -1;

  // The first response to a pattern goes to the next match from the current position.
  const answered = useRef('');
  useEffect(() => {
    if (!found || answered.current === found.pattern) return;
    answered.current = found.pattern;
    onValid(found.pattern);
    const line = found.lines[placeFrom(found.lines, start())];
    if (jump && line !== undefined) onShow(line);
  }, [found, jump, onValid, onShow, start]);

  const step = async (by: number) => {
    if (!found || found.lines.length === 0) return;
    let matches: SearchResult = found;
    let next = place < 0 ? placeFrom(found.lines, start()) : place + by;
    try {
      if (next >= matches.lines.length && matches.next !== null) matches = (await more()) ?? matches;
    } catch (error) {
      showToast({ tone: 'bad', title: 'The search was not continued', text: errorMessage(error) });
      return;
    }
    if (next >= matches.lines.length) next = 0;
    if (next < 0) next = matches.lines.length - 1;
    const line = matches.lines[next];
    if (line !== undefined) onShow(line);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    void step(event.shiftKey ? -1 : 1);
  };
  const none = !found || found.lines.length === 0;
  return (
    <div className="log-find" role="search">
      <label className="search">
        <span className="hidden">Find in the log</span>
        <input
          className="input"
          type="search"
          placeholder="Find in the log"
          value={text}
          onChange={(event) => {
            onTyped();
            setText(event.target.value);
          }}
          onKeyDown={onKey}
          autoCapitalize="off"
          autoCorrect="off"
          spellCheck={false}
          data-search
        />
      </label>
      <button
        type="button"
        className={`button compact code ${regex ? 'on' : ''}`}
        aria-pressed={regex}
        aria-label="Regular expression"
        title="Regular expression"
        onClick={() => setRegex(regex ? '' : '1')}
      >
        .*
      </button>
      <button type="button" className="button compact icon" aria-label="Previous match" title="Previous match (Shift Enter)" disabled={none} onClick={() => void step(-1)}>
        <UpIcon />
      </button>
      <button type="button" className="button compact icon" aria-label="Next match" title="Next match (Enter)" disabled={none} onClick={() => void step(1)}>
        <DownIcon />
      </button>
      <span className="soft small numbers" role="status" data-testid="log-matches">
        {pattern === '' ? '' : fault !== '' ? <span className="fault">{fault}</span> : matchWords(found, place)}
      </span>
    </div>
  );
}

function matchWords(found: SearchResult | null, place: number): string {
  if (!found) return 'Searching…';
  if (found.total === 0) return found.stopped ? 'No matches so far' : 'No matches';
  const all = `${count(found.total)}${found.stopped ? '+' : ''}`;
  return place < 0 ? `${all} matching ${found.total === 1 ? 'line' : 'lines'}` : `${count(place + 1)} of ${all}`;
}
