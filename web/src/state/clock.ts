// The daemon's clock. The one of this machine may be wrong, or be another machine's; what counts is
// the daemon's, and how far the two are apart.

let ahead = 0;

/** The daemon said what time it is. */
export function setClock(daemon: number, here = Date.now()): void {
  ahead = daemon - here;
}

/** Unix milliseconds by the daemon's clock. */
export function now(here = Date.now()): number {
  return here + ahead;
}

type Listener = () => void;
const listeners = new Set<Listener>();
let ticking: ReturnType<typeof setInterval> | undefined;

/** Milliseconds by which the calendar and the time that passes may be apart after a second. */
const JUMP = 1_500;
let apart = 0;
let onJump: Listener = () => undefined;

/** What to do when this machine's clock was set, or the machine slept: how far the two are apart is not known then. */
export function whenJumped(act: Listener): void {
  onJump = act;
}

function lookForJump(): void {
  const before = apart;
  apart = Date.now() - performance.now();
  if (Math.abs(apart - before) > JUMP) onJump();
}

/** Calls back every second, for as long as anybody listens. */
export function onTick(listener: Listener): () => void {
  listeners.add(listener);
  if (ticking === undefined) {
    apart = Date.now() - performance.now();
    ticking = setInterval(() => {
      lookForJump();
      listeners.forEach((tell) => tell());
    }, 1_000);
  }
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(ticking);
    ticking = undefined;
  };
}

/** The second that it is, so that a number of looks within one give the same. */
export function second(): number {
  return Math.floor(now() / 1_000) * 1_000;
}
