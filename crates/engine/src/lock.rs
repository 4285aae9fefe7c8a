//! Locks.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex whose holders never panic.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}
