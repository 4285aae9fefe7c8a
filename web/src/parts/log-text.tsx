// The text of one log line: colours, search matches, and hidden characters made visible.

import { memo } from 'react';
import { exactly } from '../format';
import type { LogLine } from '../wire';

interface Piece {
  text: string;
  className: string;
  matches: boolean;
}

/** Splits a line where its style changes or a match begins or ends. */
export function pieces({ text, styles = [], matches = [] }: LogLine): Piece[] {
  const cuts = new Set([0, text.length]);
  for (const { start, end } of [...styles, ...matches]) cuts.add(start).add(end);
  const places = [...cuts].sort((a, b) => a - b);
  const found: Piece[] = [];
  places.slice(0, -1).forEach((start, place) => {
    const end = places[place + 1] ?? start;
    const covers = (range: { start: number; end: number }) => range.start <= start && range.end >= end;
    const style = styles.find(covers);
    const names = [style?.colour === undefined ? '' : `colour-${style.colour}`, style?.bold ? 'bold' : ''];
    found.push({ text: text.slice(start, end), className: names.join(' ').trim(), matches: matches.some(covers) });
  });
  return found;
}

export const LogText = memo(function LogText({ line }: { line: LogLine }) {
  return (
    <span className="log-text" dir="ltr" translate="no">
      {pieces(line).map((piece, place) =>
        piece.matches ? (
          <mark key={place} className={piece.className}>
            <Visible text={piece.text} />
          </mark>
        ) : piece.className === '' ? (
          <Visible key={place} text={piece.text} />
        ) : (
          <span key={place} className={piece.className}>
            <Visible text={piece.text} />
          </span>
        ),
      )}
    </span>
  );
});

function Visible({ text }: { text: string }) {
  return exactly(text).map((run, place) =>
    run.mark ? (
      <span key={place} className="log-hidden" title="Invisible character">
        {run.text}
      </span>
    ) : (
      run.text
    ),
  );
}
