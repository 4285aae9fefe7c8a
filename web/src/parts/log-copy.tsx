// Copies the selected lines or the whole log.

import { useState } from 'react';
import { count, plural } from '../format';
import { errorMessage } from '../state/actions';
import { get, withQuery } from '../state/api';
import { showToast } from '../state/toasts';
import type { LogLines } from '../wire';

/** Larger selections have to be downloaded. */
const MOST = 20_000;
const PAGE = 1_000;

async function readLines(id: string, first: number, last: number): Promise<string> {
  const texts: string[] = [];
  while (first + texts.length <= last) {
    const from = first + texts.length;
    const path = `/v1/sessions/${encodeURIComponent(id)}/lines`;
    const { lines } = await get<LogLines>(withQuery(path, { from, limit: Math.min(PAGE, last - from + 1) }));
    if (lines.length === 0) break;
    texts.push(...lines.map((line) => line.text));
  }
  return texts.map((text) => `${text}\n`).join('');
}

export function CopyLines({ id, chosen, total }: { id: string; chosen: [number, number] | null; total: number }) {
  const [busy, setBusy] = useState(false);
  const [first, last] = chosen ?? [1, total];
  const lines = Math.min(last, total) - first + 1;
  const copy = async () => {
    if (lines > MOST) {
      showToast({ tone: 'bad', title: 'Too many lines to copy', text: `Choose at most ${count(MOST)} lines, or download the log.` });
      return;
    }
    setBusy(true);
    try {
      await navigator.clipboard.writeText(await readLines(id, first, Math.min(last, total)));
      showToast({ tone: 'good', title: `Copied ${plural(lines, 'line')}` });
    } catch (fault) {
      showToast({ tone: 'bad', title: 'Nothing was copied', text: errorMessage(fault) });
    } finally {
      setBusy(false);
    }
  };
  const words = chosen ? `Copy ${plural(Math.max(0, lines), 'line')}` : 'Copy all';
  return (
    <button
      type="button"
      className="button compact"
      disabled={busy || lines < 1}
      title={chosen ? undefined : 'Click a line number to choose a line, with Shift a range'}
      onClick={() => void copy()}
    >
      {words}
    </button>
  );
}
