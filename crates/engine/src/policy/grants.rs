//! Permissions that "this agent" has given. They end when they were not used for a while, and with the daemon.

use std::sync::Mutex;

use abide_core::{Millis, Mono};

use crate::clock::SystemClock;
use crate::lock::lock;

/// Most grants of one kind. The oldest are dropped first.
const MAX_GRANTS: usize = 1_000;
/// Time for which a grant holds after its last use.
const GRANT_TIME: Millis = Millis::from_secs(24 * 3_600);

/// Grants of one kind, each with the time of its last use.
pub(super) struct Grants<T>(Mutex<Vec<(T, Mono)>>);

impl<T> Default for Grants<T> {
    fn default() -> Self {
        Grants(Mutex::default())
    }
}

impl<T: Clone> Grants<T> {
    pub fn add(&self, added: impl IntoIterator<Item = T>) {
        let mut grants = lock(&self.0);
        let now = SystemClock.mono();
        grants.extend(added.into_iter().map(|grant| (grant, now)));
        let surplus = grants.len().saturating_sub(MAX_GRANTS);
        grants.drain(..surplus);
    }

    /// Grants that hold.
    pub fn all(&self) -> Vec<T> {
        let grants = lock(&self.0);
        let now = SystemClock.mono();
        let hold = (grants.iter()).filter(|(_, used)| now.since(*used) < GRANT_TIME);
        hold.map(|(grant, _)| grant.clone()).collect()
    }

    /// Grants that hold and are used now.
    pub fn used(&self, is_used: impl Fn(&T) -> bool) -> Vec<T> {
        let mut grants = lock(&self.0);
        let now = SystemClock.mono();
        grants.retain(|(_, used)| now.since(*used) < GRANT_TIME);
        let mut found = Vec::new();
        for (grant, used) in grants.iter_mut().filter(|(grant, _)| is_used(grant)) {
            *used = now;
            found.push(grant.clone());
        }
        found
    }
}
