// An observable value.

import { useSyncExternalStore } from 'react';

export class Value<T> {
  private readonly listeners = new Set<() => void>();

  constructor(private held: T) {}

  get = (): T => this.held;

  set(value: T): void {
    if (Object.is(value, this.held)) return;
    this.held = value;
    this.listeners.forEach((listener) => listener());
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

export function useValue<T>(value: Value<T>): T {
  return useSyncExternalStore(value.subscribe, value.get);
}
