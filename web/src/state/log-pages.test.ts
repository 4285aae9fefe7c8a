import { describe, expect, it } from 'vitest';
import type { LogLine, LogLines } from '../wire';
import { LogPages, PAGE } from './log-pages';

function line(number: number, text = `line ${number}`): LogLine {
  return { number, at: 0, stream: 'stdout', text };
}

/** A log of this many lines that returns at most `most` per request, and the requests it received. */
function log(total: () => number, most = PAGE, dropped = () => 0) {
  const asked: number[] = [];
  const read = (from: number, limit: number): Promise<LogLines> => {
    asked.push(from);
    const count = Math.max(0, Math.min(limit, most, total() - from + 1));
    return Promise.resolve({ lines: Array.from({ length: count }, (_, n) => line(from + n)), total: total(), dropped: dropped() });
  };
  return { asked, read };
}

const settled = () => new Promise((done) => setTimeout(done));

describe('LogPages', () => {
  it('fetches each wanted page once', async () => {
    const { asked, read } = log(() => 10_000);
    const pages = new LogPages(read);
    pages.refresh();
    await settled();
    pages.want(3_990, 4_010);
    pages.want(3_995, 4_015);
    await settled();
    pages.want(3_990, 4_010);
    await settled();
    expect(asked).toEqual([1, 3_501, 4_001]);
    expect(pages.line(4_000)?.text).toBe('line 4000');
    expect(pages.line(9_000)).toBeUndefined();
  });

  it('fetches a page of long lines in parts', async () => {
    const { asked, read } = log(() => 450, 200);
    const pages = new LogPages(read);
    pages.refresh();
    await settled();
    expect(asked).toEqual([1, 201, 401]);
    expect(pages.line(450)?.number).toBe(450);
  });

  it('keeps its length when an older response arrives late', async () => {
    let total = 700;
    let answer: (() => void) | null = null;
    const { read } = log(() => total);
    const slow = (from: number, limit: number): Promise<LogLines> => {
      const response = read(from, limit);
      return from === 1 ? new Promise((done) => (answer = () => done(response))) : response;
    };
    const pages = new LogPages(read);
    pages.refresh();
    await settled();
    pages.use(slow);
    pages.want(1, 10);
    total = 900;
    pages.refresh();
    await settled();
    expect(pages.total).toBe(900);
    (answer as unknown as () => void)();
    await settled();
    expect(pages.total).toBe(900);
  });

  it('fetches the end again when the log has grown', async () => {
    let total = 3;
    const { asked, read } = log(() => total);
    const pages = new LogPages(read);
    pages.refresh();
    await settled();
    expect(pages.total).toBe(3);
    total = 700;
    pages.refresh();
    await settled();
    expect(pages.total).toBe(700);
    pages.want(690, 700);
    await settled();
    expect(asked).toEqual([1, 1, 501]);
    expect(pages.line(700)?.number).toBe(700);
  });

  it('evicts the pages that were used longest ago', async () => {
    const { read } = log(() => 100_000);
    const pages = new LogPages(read);
    pages.refresh();
    await settled();
    for (let page = 1; page < 100; page += 1) pages.want(page * PAGE + 1, page * PAGE + 1);
    await settled();
    expect(pages.line(1)).toBeUndefined();
    expect(pages.line(99 * PAGE + 1)?.number).toBe(99 * PAGE + 1);
  });

  it('shows old lines until they are fetched with the new function', async () => {
    const { read } = log(() => 10);
    const pages = new LogPages(read);
    pages.refresh();
    await settled();
    pages.use((from) => Promise.resolve({ lines: from === 1 ? [line(1, 'marked')] : [], total: 10, dropped: 0 }));
    expect(pages.line(1)?.text).toBe('line 1');
    pages.want(1, 1);
    await settled();
    expect(pages.line(1)?.text).toBe('marked');
  });

  it('takes the smaller length and the other numbers after the quota has dropped lines', async () => {
    let total = 1_100;
    let dropped = 0;
    const { asked, read } = log(() => total, PAGE, () => dropped);
    const pages = new LogPages((from, limit) =>
      read(from, limit).then((page) => ({ ...page, lines: page.lines.map(({ number }) => line(number, `${dropped} ${number}`)) })),
    );
    // As the view does after every change.
    pages.subscribe(() => pages.want(901, 1_100));
    pages.refresh();
    await settled();
    expect([pages.total, pages.line(1_000)?.text, pages.line(1_100)?.text]).toEqual([1_100, '0 1000', '0 1100']);
    total = 1_000;
    dropped = 900;
    asked.length = 0;
    pages.refresh();
    await settled();
    expect([pages.total, pages.line(1_000)?.text, pages.line(1_100)]).toEqual([1_000, '900 1000', undefined]);
    expect(asked).toEqual([1_001, 501]);
  });

  it('does not fetch a page again that was short for the length in its own response', async () => {
    const asked: number[] = [];
    const pages = new LogPages((from) => {
      asked.push(from);
      return Promise.resolve({ lines: from === 1 ? [line(1)] : [], total: 10, dropped: 0 });
    });
    pages.subscribe(() => pages.want(1, 10));
    pages.refresh();
    await settled();
    expect(asked).toEqual([1, 2]);
  });

  it('ignores a response from before the quota dropped lines', async () => {
    let dropped = 0;
    let answer: (() => void) | null = null;
    const { read } = log(() => 1_100 - dropped, PAGE, () => dropped);
    const pages = new LogPages((from, limit) => {
      const response = read(from, limit);
      return from === 501 && dropped === 0 ? new Promise((done) => (answer = () => done(response))) : response;
    });
    pages.refresh();
    await settled();
    pages.want(501, 501);
    dropped = 100;
    pages.refresh();
    await settled();
    (answer as unknown as () => void)();
    await settled();
    expect([pages.total, pages.dropped, pages.line(501)]).toEqual([1_000, 100, undefined]);
  });

  it('fetches a page from its begin when the quota drops lines between two of its parts', async () => {
    let dropped = 0;
    const { asked, read } = log(() => 450, 200, () => dropped);
    const pages = new LogPages((from, limit) => {
      if (from === 201) dropped = 1;
      return read(from, limit);
    });
    pages.refresh();
    await settled();
    expect(asked).toEqual([1, 201, 1, 201, 401]);
    expect(pages.line(450)?.number).toBe(450);
  });
});
