//! Addresses of hosts. A name server that does not answer holds a thread for as long as the system waits
//! for it, which nobody can end. So a name is looked up once at a time, however many want to know, and
//! only so many names at once: whatever else needs a thread finds one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{LazyLock, Mutex, MutexGuard};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

/// Names that are looked up at once.
const AT_ONCE: usize = 64;

/// What a look has brought: addresses, or why there are none.
type Looked = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;
/// Nothing, until the look is over.
type Brings = watch::Receiver<Option<Looked>>;

static LOOKS: LazyLock<Mutex<HashMap<String, Brings>>> = LazyLock::new(Mutex::default);
static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);

/// Connects to a host by its name or its address.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut places = addresses(host, resolve).await?;
    places.iter_mut().for_each(|place| place.set_port(port));
    TcpStream::connect(&*places).await
}

/// The addresses of a host, without a port. Whoever lets go of this ends no look: others may wait for it.
async fn addresses(host: &str, look: fn(&str) -> Looked) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, 0).into()]);
    }
    let mut brings = looking(host, look);
    let looked = match brings.wait_for(Option::is_some).await {
        Ok(looked) => looked.clone(),
        // The daemon stops.
        Err(_) => None,
    };
    let stopped = || Err((io::ErrorKind::Other, "it was not looked up".into()));
    let looked = looked.unwrap_or_else(stopped);
    looked.map_err(|(kind, why)| io::Error::new(kind, why))
}

/// The look for this name that is under way, or a new one.
fn looking(host: &str, look: fn(&str) -> Looked) -> Brings {
    let mut looks = looks();
    if let Some(under_way) = looks.get(host) {
        return under_way.clone();
    }
    let (bring, brings) = watch::channel(None);
    looks.insert(host.to_owned(), brings.clone());
    drop(looks);
    // Also where the daemon stops before it has begun.
    let over = Over(host.to_owned());
    tokio::spawn(async move {
        let Ok(room) = ROOM.acquire().await else {
            return;
        };
        let host = over.0.clone();
        let looked = tokio::task::spawn_blocking(move || {
            // Until the system gives up, however few still wait for it.
            let _room = room;
            look(&host)
        });
        let looked = looked.await.ok();
        drop(over);
        bring.send_replace(looked);
    });
    brings
}

/// Once this is dropped, the name is looked up anew by whoever asks next.
struct Over(String);

impl Drop for Over {
    fn drop(&mut self) {
        looks().remove(&self.0);
    }
}

fn looks() -> MutexGuard<'static, HashMap<String, Brings>> {
    LOOKS.lock().expect("no holder panics")
}

/// Asks the system, which may take its time.
fn resolve(host: &str) -> Looked {
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

    /// A name server that answers nobody before it is told to.
    static ANSWERS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    static ASKED: AtomicUsize = AtomicUsize::new(0);

    fn silent(host: &str) -> Looked {
        ASKED.fetch_add(1, Ordering::SeqCst);
        let (answers, told) = &ANSWERS;
        let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let _answers = told.wait_while(answers, |answers| !*answers);
        Err((io::ErrorKind::NotFound, host.to_owned()))
    }

    #[test]
    fn a_name_server_that_is_silent_takes_few_threads() {
        const THREADS: usize = AT_ONCE + 1;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(THREADS)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let name = |n: usize| format!("silent{}.invalid", n % (2 * AT_ONCE));
            let asking: Vec<_> = (0..6 * AT_ONCE)
                .map(|n| tokio::spawn(async move { addresses(&name(n), silent).await }))
                .collect();
            while ASKED.load(Ordering::SeqCst) < AT_ONCE {
                tokio::task::yield_now().await;
            }
            // There is room for others, and whoever needs no server asks none.
            let other = tokio::task::spawn_blocking(|| 7).await;
            assert_eq!(other.expect("a thread"), 7);
            let known = addresses("127.0.0.1", silent).await.expect("an address");
            assert_eq!(known, [SocketAddr::from(([127, 0, 0, 1], 0))]);
            assert_eq!(ASKED.load(Ordering::SeqCst), AT_ONCE);
            *ANSWERS.0.lock().expect("no holder panics") = true;
            ANSWERS.1.notify_all();
            for (n, asked) in asking.into_iter().enumerate() {
                let fault = asked.await.expect("an answer").expect_err("there is none");
                assert_eq!(fault.to_string(), name(n));
            }
            // Each name was looked up once for all who wanted it.
            assert_eq!(ASKED.load(Ordering::SeqCst), 2 * AT_ONCE);
            let _ = addresses(&name(0), silent).await;
            assert_eq!(ASKED.load(Ordering::SeqCst), 2 * AT_ONCE + 1, "and again");
        });
    }
    #[test]
    fn a_look_that_has_never_begun_is_in_nobodys_way() {
        let host = "unbegun.invalid";
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        let within = runtime.enter();
        drop(looking(host, silent));
        drop(within);
        drop(runtime);
        assert!(!looks().contains_key(host));
    }
}
