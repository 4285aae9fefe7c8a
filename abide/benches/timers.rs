//! A million timers: how fast they are made, what they weigh, how soon a restart is ready, and how
//! late they are. `cargo bench -p abide --bench timers [-- COUNT]`. Prints numbers and judges none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_core::request::Caller;
use abide_core::timer::{self, Create, Kind, Status};
use abide_core::{Agent, Millis, Outcome, Request};
use abide_engine::config::{Config, Paths};
use abide_engine::probe::Condition;
use abide_engine::{Handle, Runtime};

fn main() {
    let count = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let count: usize = count.unwrap_or(1_000_000);
    let dir = tempfile::tempdir().expect("a folder");
    let paths = Paths::under(dir.path());
    std::fs::create_dir_all(paths.sessions()).expect("folders");
    bulk(&paths, count);
    restart(&paths, count);
    drain(&paths);
    let other = tempfile::tempdir().expect("a folder");
    let paths = Paths::under(other.path());
    std::fs::create_dir_all(paths.sessions()).expect("folders");
    single(&paths);
    same_second(&paths);
    port_opens(&paths);
}

#[expect(clippy::disallowed_methods, reason = "a bench measures")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a bench lets time pass")]
async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

fn within<T>(paths: &Paths, work: impl AsyncFnOnce(Handle) -> T) -> (Duration, T) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let began = now();
        let config = Config {
            idle_keepers: 0,
            ..Config::default()
        };
        let program: PathBuf = Path::new(env!("CARGO_BIN_EXE_abide")).into();
        let engine = Runtime::start(paths, config, program, abide::tools::approved_refusal)
            .await
            .expect("an engine");
        let handle = engine.handle.clone();
        let count = timer::Request::Count;
        call(&handle, count).await;
        let ready = began.elapsed();
        let done = work(handle.clone()).await;
        handle.stop().await;
        engine.stopped().await.expect("it stops well");
        (ready, done)
    })
}

async fn call(handle: &Handle, request: timer::Request) -> Outcome {
    let caller = Caller {
        agent: Some(Agent("bench".into())),
        conversation: None,
    };
    let pending = handle.call(caller, Request::Timer(request), None).await;
    pending.done().await.expect("an answer")
}

fn mission(total: Millis) -> Create {
    Create {
        kind: Kind::Mission,
        purpose: "look at the logs of the build".into(),
        until: None,
        total,
        standby: None,
        client_limit: None,
        detach: true,
        key: None,
    }
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}

fn bulk(paths: &Paths, count: usize) {
    let (_, ()) = within(paths, async |handle| {
        let before = memory();
        let began = now();
        let mut made = 0;
        while made < count {
            let page = (count - made).min(10_000);
            let new =
                (0..page).map(|n| mission(Millis::from_secs(3_600 + (made + n) as u64 % 86_400)));
            call(&handle, timer::Request::CreateMany(new.collect())).await;
            made += page;
        }
        let took = began.elapsed();
        let each = (memory() - before) as f64 / count as f64;
        println!(
            "bulk      {count} made in {took:.2?}: {:.0} a second",
            count as f64 / took.as_secs_f64()
        );
        println!("memory    {each:.0} bytes each (resident, with what the commits left behind)");
    });
    let size = std::fs::metadata(paths.database()).map_or(0, |found| found.len());
    println!("disk      {:.0} bytes each", size as f64 / count as f64);
}

fn restart(paths: &Paths, count: usize) {
    let (ready, ()) = within(paths, async |_| ());
    println!("restart   ready after {ready:.2?} with {count}");
}

/// Makes all of them overdue by moving their deadlines in the database.
fn drain(paths: &Paths) {
    #[expect(clippy::disallowed_methods, reason = "the bench makes them overdue")]
    let db = rusqlite::Connection::open(paths.database()).expect("the database");
    db.execute("UPDATE timer SET due_ms = due_ms - 100000000", [])
        .expect("an update");
    drop(db);
    within(paths, async |handle| {
        let began = now();
        let mut slowest = Duration::ZERO;
        loop {
            let asked = now();
            let left = call(&handle, timer::Request::Count).await;
            slowest = slowest.max(asked.elapsed());
            if left == Outcome::TimersCounted(0) {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        println!(
            "overdue   all drained in {:.2?}; a call took {slowest:.2?} at most",
            began.elapsed()
        );
    });
}

/// Many callers, one timer each at a time, every one of them durable.
fn single(paths: &Paths) {
    const EACH: usize = 500;
    for callers in [1_usize, 64] {
        within(paths, async |handle| {
            let handle = Arc::new(handle);
            let began = now();
            let tasks: Vec<_> = (0..callers)
                .map(|_| {
                    let handle = handle.clone();
                    tokio::spawn(async move {
                        for _ in 0..EACH {
                            let new = mission(Millis::from_secs(36_000));
                            call(&handle, timer::Request::Create(new)).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a caller");
            }
            let rate = (callers * EACH) as f64 / began.elapsed().as_secs_f64();
            println!("durable   {rate:.0} a second from {callers} callers");
        });
    }
}

/// How long after a port was opened the call that waits for it is answered.
fn port_opens(paths: &Paths) {
    const ROUNDS: u64 = 200;
    within(paths, async |handle| {
        let before = processor_time();
        let began = now();
        let mut took = Vec::new();
        for round in 0..ROUNDS {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            drop(listener);
            let until = Condition::Port {
                host: None,
                port: address.port(),
                every_ms: None,
            };
            let until = serde_json::to_string(&until).expect("JSON");
            let new = Create {
                kind: Kind::Waiting,
                detach: false,
                until: Some(until.into()),
                ..mission(Millis::from_secs(60))
            };
            let waiting = handle.clone();
            let waiting = tokio::spawn(async move {
                call(&waiting, timer::Request::Create(new)).await;
                now()
            });
            // Short waits and longer ones, at no fixed distance from a look.
            sleep(Duration::from_millis(50 + round * 7_919 % 450)).await;
            let opened = now();
            let _listener = std::net::TcpListener::bind(address).expect("the port");
            let answered = waiting.await.expect("a caller");
            took.push(answered.duration_since(opened));
        }
        took.sort();
        let at = |part: usize| took[(took.len() - 1) * part / 100];
        let busy = (processor_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
        println!(
            "port      answered after it opened: p50 {:.1?}, p95 {:.1?}, most {:.1?}; {:.1} % of a \
             processor while waiting for one",
            at(50),
            at(95),
            at(100),
            busy * 100.0
        );
    });
}

/// What this process has used of the processors.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32)
}

/// Ten thousand due in one second, each stood by on.
fn same_second(paths: &Paths) {
    const COUNT: u64 = 10_000;
    within(paths, async |handle| {
        let handle = Arc::new(handle);
        let mut waiting = Vec::new();
        for n in 0..COUNT {
            let handle = handle.clone();
            waiting.push(tokio::spawn(async move {
                let total = Millis(8_000 + n / 10);
                let new = Create {
                    kind: Kind::Waiting,
                    detach: false,
                    ..mission(total)
                };
                let began = now();
                let outcome = call(&handle, timer::Request::Create(new)).await;
                let took = began.elapsed();
                let Outcome::Timer(timer, _) = outcome else {
                    panic!("a timer");
                };
                let Status::Completed { late, .. } = timer.status else {
                    panic!("completed");
                };
                (took < Duration::from_millis(total.0), late.0)
            }));
        }
        let mut late = Vec::new();
        let mut early = 0;
        for task in waiting {
            let (too_soon, after) = task.await.expect("a caller");
            early += u64::from(too_soon);
            late.push(after);
        }
        late.sort();
        let at = |part: usize| late[(late.len() - 1) * part / 100];
        println!(
            "lateness  {COUNT} in one second: {early} early; when decided p50 {} ms, p99 {} ms, most {} ms",
            at(50),
            at(99),
            at(100)
        );
    });
}
