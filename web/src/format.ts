// Formatting of numbers and text.

const UNITS: [string, number][] = [
  ['d', 86_400],
  ['h', 3_600],
  ['m', 60],
  ['s', 1],
];

/** `45s`, `1m30s`, `2h05m`, `3d4h`: the two largest units. */
export function duration(seconds: number): string {
  let rest = Math.max(0, Math.floor(seconds));
  const first = UNITS.findIndex(([, size]) => rest >= size);
  if (first < 0) return '0s';
  const parts: string[] = [];
  for (const [name, size] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (parts.length === 0 || count > 0) parts.push(`${count}${name}`);
  }
  return parts.join('');
}

/** A fixed duration, with fractions of a second: `0.05s`, `1.5s`. */
export function length(seconds: number): string {
  return seconds >= 10 || Number.isInteger(seconds) ? duration(seconds) : `${Number(Math.max(0, seconds).toPrecision(2))}s`;
}

/** `12:05` or `1:02:05`, for countdowns. */
export function countdown(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  if (whole >= 86_400) return duration(whole);
  const [hours, minutes, rest] = [Math.floor(whole / 3_600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (n: number) => String(n).padStart(2, '0');
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** `3.1 MB`. */
export function bytes(count: number): string {
  const names = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let value = count;
  while (value >= 1_000 && unit < names.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${names[unit] ?? ''}`;
}

/** `93%`: of one processor, so it can be more than 100. */
export function share(fraction: number): string {
  return `${Math.round(fraction * 100)}%`;
}

/** A number with thousands separators. */
export function count(value: number): string {
  return Math.round(value).toLocaleString('en-GB');
}

const clockTime = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const dayTime = new Intl.DateTimeFormat(undefined, {
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  hourCycle: 'h23',
});

/** The time of day; with the date unless it is today. */
export function moment(stamp: number, now: number): string {
  const sameDay = new Date(stamp).toDateString() === new Date(now).toDateString();
  return (sameDay ? clockTime : dayTime).format(stamp);
}

/** `just now`, `5m ago`. */
export function ago(stamp: number, now: number): string {
  const seconds = (now - stamp) / 1_000;
  return seconds < 2 ? 'just now' : `${duration(seconds)} ago`;
}

/** A future time: `in 5m`, `now`. */
export function ahead(stamp: number, now: number): string {
  const seconds = (stamp - now) / 1_000;
  return seconds < 1 ? 'now' : `in ${duration(seconds)}`;
}

/** `1 session`, `2 sessions`. */
export function plural(n: number, word: string): string {
  return `${count(n)} ${word}${n === 1 ? '' : 's'}`;
}

/** The first line that is not blank, and the number of lines after it without trailing blank ones. */
export function firstLine(text: string): { line: string; more: number } {
  const lines = text.trimEnd().split(/\r?\n/);
  const first = Math.max(0, lines.findIndex((line) => line.trim() !== ''));
  return { line: lines[first] ?? '', more: lines.length - first - 1 };
}

export interface Run {
  text: string;
  /** `text` is a placeholder for a character that is invisible or changes the text direction. */
  mark: boolean;
}

// Control characters except tab and line feed, soft hyphen, bidirectional controls, zero-width characters, line
// separators, and tag characters.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;

/** Text with hidden characters made visible: a person must see exactly what they approve. */
export function exactly(text: string): Run[] {
  const runs: Run[] = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) runs.push({ text: text.slice(from, found.index), mark: false });
    const code = (found[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
    runs.push({ text: `U+${code}`, mark: true });
    from = found.index + found[0].length;
  }
  if (from < text.length) runs.push({ text: text.slice(from), mark: false });
  return runs;
}

/** The same as plain text, for places without markup. */
export function visible(text: string): string {
  return exactly(text)
    .map((run) => run.text)
    .join('');
}
