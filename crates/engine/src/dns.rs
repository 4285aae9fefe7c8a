//! DNS lookups. A name server that does not answer blocks a thread until the resolver of the system gives up,
//! and a lookup cannot be cancelled. So lookups of the same name are shared, and the number of concurrent
//! lookups is limited, which leaves threads for other work.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{LazyLock, Mutex, MutexGuard};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use crate::lock::lock;

/// Limit of concurrent lookups.
const MAX_CONCURRENT: usize = 64;

/// Result of a lookup: addresses, or why there are none.
type Resolved = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;
/// Receiver of the result; `None` until the lookup is done.
type PendingLookup = watch::Receiver<Option<Resolved>>;

/// Lookups that are running, by name.
static LOOKUPS: LazyLock<Mutex<HashMap<String, PendingLookup>>> = LazyLock::new(Mutex::default);
/// Permits for concurrent lookups.
static PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT);

/// Decision about the addresses of a host.
pub type Permits<'a> = &'a (dyn Fn(IpAddr) -> bool + Sync);

/// Permits every address.
pub const EVERY_ADDRESS: Permits<'static> = &|_| true;

/// Connects to a host by its name or its address, at one of the addresses that are permitted.
pub async fn connect(host: &str, port: u16, permits: Permits<'_>) -> io::Result<TcpStream> {
    let mut found = addresses(host, resolve).await?;
    found.retain(|place| permits(place.ip()));
    if found.is_empty() {
        let why = "the sandbox must not connect to its address";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    found.iter_mut().for_each(|place| place.set_port(port));
    TcpStream::connect(&*found).await
}

/// Addresses of a host, without a port. Dropping this future cancels no lookup: others may wait for it.
async fn addresses(host: &str, resolver: fn(&str) -> Resolved) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, 0).into()]);
    }
    let mut pending = lookup(host, resolver);
    let resolved = match pending.wait_for(Option::is_some).await {
        Ok(resolved) => resolved.clone(),
        // The daemon stops.
        Err(_) => None,
    };
    let stopped = || Err((io::ErrorKind::Other, "it was not looked up".into()));
    let resolved = resolved.unwrap_or_else(stopped);
    resolved.map_err(|(kind, why)| io::Error::new(kind, why))
}

/// Joins the lookup of this name, or starts one.
fn lookup(host: &str, resolver: fn(&str) -> Resolved) -> PendingLookup {
    let mut lookups = lookups();
    if let Some(pending) = lookups.get(host) {
        return pending.clone();
    }
    let (sender, pending) = watch::channel(None);
    lookups.insert(host.to_owned(), pending.clone());
    drop(lookups);
    // The guard is dropped too if the daemon stops before the lookup begins.
    let guard = LookupGuard(host.to_owned());
    tokio::spawn(async move {
        let Ok(permit) = PERMITS.acquire().await else {
            return;
        };
        let host = guard.0.clone();
        let resolved = tokio::task::spawn_blocking(move || {
            // Held until the resolver returns, even if no caller waits any more.
            let _permit = permit;
            resolver(&host)
        });
        let resolved = resolved.await.ok();
        drop(guard);
        sender.send_replace(resolved);
    });
    pending
}

/// Removes the lookup from the table when dropped: the next caller starts a new one.
struct LookupGuard(String);

impl Drop for LookupGuard {
    fn drop(&mut self) {
        lookups().remove(&self.0);
    }
}

fn lookups() -> MutexGuard<'static, HashMap<String, PendingLookup>> {
    lock(&LOOKUPS)
}

/// Calls the resolver of the system, which blocks.
fn resolve(host: &str) -> Resolved {
    match (host, 0).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(fault) => Err((fault.kind(), fault.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, PoisonError};

    use super::*;

    /// Resolver that blocks until the test lets it answer.
    static ANSWERS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    static ASKED: AtomicUsize = AtomicUsize::new(0);

    fn silent(host: &str) -> Resolved {
        ASKED.fetch_add(1, Ordering::SeqCst);
        let (answers, told) = &ANSWERS;
        let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let _answers = told.wait_while(answers, |answers| !*answers);
        Err((io::ErrorKind::NotFound, host.to_owned()))
    }

    #[test]
    fn silent_name_server_blocks_a_limited_number_of_threads() {
        const THREADS: usize = MAX_CONCURRENT + 1;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(THREADS)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let name = |n: usize| format!("silent{}.invalid", n % (2 * MAX_CONCURRENT));
            let asking: Vec<_> = (0..6 * MAX_CONCURRENT)
                .map(|n| tokio::spawn(async move { addresses(&name(n), silent).await }))
                .collect();
            while ASKED.load(Ordering::SeqCst) < MAX_CONCURRENT {
                tokio::task::yield_now().await;
            }
            // Threads are left for other work, and an address needs no lookup.
            let other = tokio::task::spawn_blocking(|| 7).await;
            assert_eq!(other.expect("a thread"), 7);
            let known = addresses("127.0.0.1", silent).await.expect("an address");
            assert_eq!(known, [SocketAddr::from(([127, 0, 0, 1], 0))]);
            assert_eq!(ASKED.load(Ordering::SeqCst), MAX_CONCURRENT);
            *lock(&ANSWERS.0) = true;
            ANSWERS.1.notify_all();
            for (n, asked) in asking.into_iter().enumerate() {
                let fault = asked.await.expect("an answer").expect_err("there is none");
                assert_eq!(fault.to_string(), name(n));
            }
            // Each name was looked up once for all callers.
            assert_eq!(ASKED.load(Ordering::SeqCst), 2 * MAX_CONCURRENT);
            let _ = addresses(&name(0), silent).await;
            assert_eq!(
                ASKED.load(Ordering::SeqCst),
                2 * MAX_CONCURRENT + 1,
                "and again"
            );
        });
    }
    #[test]
    fn lookup_that_never_began_does_not_block_the_next_one() {
        let host = "unbegun.invalid";
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        let within = runtime.enter();
        drop(lookup(host, silent));
        drop(within);
        drop(runtime);
        assert!(!lookups().contains_key(host));
    }
}
