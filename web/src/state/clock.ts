// The daemon's clock. The clock of this machine may be wrong, so times are computed with the offset between the two.

let ahead = 0;

/** Sets the offset from the daemon's time. */
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

/** Maximum difference between wall clock and monotonic clock after a second, in milliseconds. */
const JUMP = 1_500;
let apart = 0;
let onJump: Listener = () => undefined;

/**
 * Sets the handler that is called after this machine's clock was changed or the machine slept: the offset is unknown
 * then.
 */
export function whenJumped(act: Listener): void {
  onJump = act;
}

function lookForJump(): void {
  const before = apart;
  apart = Date.now() - performance.now();
  if (Math.abs(apart - before) > JUMP) onJump();
}

/** Calls the listener every second until it unsubscribes. */
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

/** The current second, so that several calls within one second return the same value. */
export function second(): number {
  return Math.floor(now() / 1_000) * 1_000;
}
