import { describe, expect, it } from 'vitest';
import { pieces } from './log-text';

const line = { number: 1, at: 0, stream: 'stdout' as const };

describe('pieces', () => {
  it('returns a plain line as one piece', () => {
    expect(pieces({ ...line, text: 'plain' })).toEqual([{ text: 'plain', className: '', matches: false }]);
    expect(pieces({ ...line, text: '' })).toEqual([]);
  });

  it('splits where a match overlaps a colour', () => {
    const styles = [{ start: 0, end: 5, colour: 1, bold: true }];
    const cut = pieces({ ...line, text: 'error: disk', styles, matches: [{ start: 3, end: 8 }] });
    expect(cut.map((piece) => [piece.text, piece.className, piece.matches])).toEqual([
      ['err', 'colour-1 bold', false],
      ['or', 'colour-1 bold', true],
      [': d', '', true],
      ['isk', '', false],
    ]);
  });
});
