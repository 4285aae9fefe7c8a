// Find within a log: a text or a regular expression, which match is looked at, and the way to the next one.

import { useEffect, useRef, type KeyboardEvent } from 'react';
import { count } from '../format';
import { sentence } from '../state/acts';
import { placeFrom, useFound, type Found } from '../state/find';
import { tell } from '../state/notes';
import { useParam } from '../state/route';
import { DownIcon, UpIcon } from './icons';

interface Props {
  id: string;
  text: string;
  regex: boolean;
  pattern: string;
  total: number | null;
  /** The line that is looked at, if one is chosen. */
  current: number | null;
  /** The line from which a search begins. */
  start: () => number;
  /** Whether the first result leads to its match; not where a line was linked to. */
  jump: boolean;
  onTyped: () => void;
  onValid: (pattern: string) => void;
  onShow: (line: number) => void;
}

export function LogFind({ id, text, regex, pattern, total, current, start, jump, onTyped, onValid, onShow }: Props) {
  const [, setText] = useParam('find');
  const [, setRegex] = useParam('regex');
  const { found, fault, more } = useFound(id, pattern, total);
  const place = found && current !== null ? found.lines.indexOf(current) : -1;

  // The first answer to a pattern leads to the next match from where the person is.
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
    let matches: Found = found;
    let next = place < 0 ? placeFrom(found.lines, start()) : place + by;
    try {
      if (next >= matches.lines.length && matches.next !== null) matches = (await more()) ?? matches;
    } catch (error) {
      tell({ tone: 'bad', title: 'The search was not continued', text: sentence(error) });
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

function matchWords(found: Found | null, place: number): string {
  if (!found) return 'Searching…';
  if (found.total === 0) return found.stopped ? 'No matches so far' : 'No matches';
  const all = `${count(found.total)}${found.stopped ? '+' : ''}`;
  return place < 0 ? `${all} matching ${found.total === 1 ? 'line' : 'lines'}` : `${count(place + 1)} of ${all}`;
}
