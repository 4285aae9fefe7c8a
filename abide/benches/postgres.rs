//! Timers in PostgreSQL beside bare statements that write the same rows into a table with the same columns and indexes,
//! on the same server with fsync on: one caller and `INSERT`, bulk and `COPY`, completions, and many daemons beside as
//! many connections. `cargo bench -p abide --bench postgres`. Prints numbers and judges none.
//! `ABIDE_OFF=prepared_statements` shows what these save.

#[path = "../tests/common/postgres.rs"]
#[expect(dead_code, reason = "the bench uses a part")]
mod postgres;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use abide_core::request::Caller;
use abide_core::timer::{self, Create, Kind};
use abide_core::{Agent, Millis, Outcome, Request};
use abide_engine::config::{Config, Paths};
use abide_engine::{Handle, Runtime};
use futures_util::future::join_all;
use postgres::Server;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls};

/// Rounds, so that both ways have the same load beside them.
const ROUNDS: usize = 3;
const SINGLE: usize = 1_000;
const BULK: usize = 20_000;
/// Daemons that share the server, and the timers that each makes one after the other.
const DAEMONS: usize = 32;
const EACH: usize = 100;

const TABLE: &str = "CREATE TABLE bare (LIKE abide.timer INCLUDING ALL)";
/// Times and shard of the bare rows.
const MADE: i64 = 1_800_000_000_000;
const DUE: i64 = MADE + 36_000_000;
const SHARD: i64 = 7_777_777_777_777_777;
/// Columns of a new timer.
const COLUMNS: &str = "number, id, agent, kind, purpose, condition, key, created_ms, checked_ms, total_ms, standby_ms, \
    status, background, due_ms, conversation, epoch, batch, shard";

#[expect(clippy::disallowed_methods, reason = "a bench measures")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    let server = Server::with_settings(&["fsync=on", "max_connections=300"]);
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let engine = start(&server, &dir.path().join("first")).await;
        let handle = engine.handle.clone();
        let client = connect(&server).await;
        client.batch_execute(TABLE).await.expect("a table");
        for round in 0..ROUNDS {
            let first = i64::try_from(round * (SINGLE + BULK)).expect("a number");
            let bare = rate(SINGLE, insert(&client, first, SINGLE)).await;
            let ours = rate(SINGLE, create(&handle, SINGLE)).await;
            print("one caller, INSERT", ours, bare);
            let bare = rate(BULK, copy(&client, first + SINGLE as i64)).await;
            let ours = rate(BULK, create_many(&handle)).await;
            print("bulk, COPY", ours, bare);
        }
        let took = complete(&handle).await;
        println!("completions     {took:.0} a second");
        let mut engines = vec![engine];
        for number in 1..DAEMONS {
            engines.push(start(&server, &dir.path().join(number.to_string())).await);
        }
        let handles: Vec<&Handle> = engines.iter().map(|engine| &engine.handle).collect();
        for handle in &handles {
            wait_until_joined(handle).await;
        }
        let clients = join_all((0..DAEMONS).map(|_| connect(&server))).await;
        for round in 0..ROUNDS {
            let first = |at: usize| ((ROUNDS + round) * (SINGLE + BULK) + at * EACH) as i64;
            let all = clients.iter().enumerate();
            let all = join_all(all.map(|(at, client)| insert(client, first(at), EACH)));
            let bare = rate(DAEMONS * EACH, async { drop(all.await) }).await;
            let all = join_all(handles.iter().map(|handle| create(handle, EACH)));
            let ours = rate(DAEMONS * EACH, async { drop(all.await) }).await;
            print(&format!("{DAEMONS} daemons, INSERT"), ours, bare);
        }
        for engine in engines {
            engine.handle.stop().await;
            engine.stopped().await.expect("it stops well");
        }
    });
}

/// Starts an engine with its state in this folder.
async fn start(server: &Server, folder: &Path) -> Runtime {
    let paths = Paths::under(folder);
    std::fs::create_dir_all(paths.sessions()).expect("folders");
    let config = Config {
        idle_keepers: 0,
        store: Some(server.url()),
        ..Config::default()
    };
    let program: PathBuf = Path::new(env!("CARGO_BIN_EXE_abide")).into();
    Runtime::start(&paths, config, program, abide::tools::approved_refusal)
        .await
        .expect("an engine")
}

/// Makes timers until one is made: a machine of a fleet needs some seconds to join.
async fn wait_until_joined(handle: &Handle) {
    let new = || timer::Request::Create(mission(Millis::from_secs(36_000)));
    while let Outcome::Refused(_) = call(handle, new()).await {
        tokio::task::yield_now().await;
    }
}

fn print(what: &str, ours: f64, bare: f64) {
    let part = 100.0 * ours / bare;
    println!("{what:<20} abide {ours:>8.0} a second, bare {bare:>8.0}: {part:.0} %");
}

async fn rate(count: usize, work: impl Future<Output = ()>) -> f64 {
    let began = now();
    work.await;
    count as f64 / began.elapsed().as_secs_f64()
}

async fn connect(server: &Server) -> Client {
    let url = server.url();
    let (url, _) = url.split_once('?').expect("a schema");
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a server");
    tokio::spawn(connection);
    client
}

async fn insert(client: &Client, first: i64, count: usize) {
    let sql = format!(
        "INSERT INTO bare ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
         $17, $18)"
    );
    let insert = client.prepare(&sql).await.expect("a statement");
    let (none, no_time): (Option<&str>, Option<i64>) = (None, None);
    for number in first..first + count as i64 {
        let row: [&(dyn ToSql + Sync); 18] = [
            &number,
            &"timer_k3v9x2bc",
            &"bench",
            &"mission",
            &"look at the logs of the build",
            &none,
            &none,
            &MADE,
            &MADE,
            &36_000_000_i64,
            &no_time,
            &"running",
            &0_i64,
            &DUE,
            &none,
            &1_i64,
            &number,
            &SHARD,
        ];
        client.execute(&insert, &row).await.expect("a row");
    }
}

async fn copy(client: &Client, first: i64) {
    use futures_util::SinkExt;
    let sql = format!("COPY bare ({COLUMNS}) FROM STDIN");
    let sink = client.copy_in(&sql).await.expect("a copy");
    let mut sink = std::pin::pin!(sink);
    let mut rows = String::new();
    for number in first..first + BULK as i64 {
        rows.push_str(&format!(
            "{number}\ttimer_k3v9x2bc\tbench\tmission\tlook at the logs of the build\t\\N\t\\N\t{MADE}\t{MADE}\t36000000\t\\N\t\
             running\t0\t{DUE}\t\\N\t1\t1\t{SHARD}\n"
        ));
    }
    sink.send(bytes::Bytes::from(rows)).await.expect("rows");
    sink.close().await.expect("a copy");
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

async fn call(handle: &Handle, request: timer::Request) -> Outcome {
    let caller = Caller {
        agent: Some(Agent("bench".into())),
        conversation: None,
    };
    let pending = handle.call(caller, Request::Timer(request), None).await;
    pending.done().await.expect("an answer")
}

async fn create(handle: &Handle, count: usize) {
    for _ in 0..count {
        let new = mission(Millis::from_secs(36_000));
        let made = call(handle, timer::Request::Create(new)).await;
        assert!(!matches!(made, Outcome::Refused(_)), "{made:?}");
    }
}

async fn create_many(handle: &Handle) {
    for _ in 0..BULK / 10_000 {
        let new = (0..10_000).map(|_| mission(Millis::from_secs(36_000)));
        call(handle, timer::Request::CreateMany(new.collect())).await;
    }
}

/// Completions per second of many timers that are due together.
async fn complete(handle: &Handle) -> f64 {
    let Outcome::TimersCounted(before) = call(handle, timer::Request::Count).await else {
        panic!("a count");
    };
    let due = now() + Duration::from_secs(5);
    for _ in 0..BULK / 10_000 {
        let left = due.saturating_duration_since(now());
        let total = Millis(u64::try_from(left.as_millis()).expect("a time").max(1));
        let new = (0..10_000).map(|_| mission(total));
        call(handle, timer::Request::CreateMany(new.collect())).await;
    }
    let left = due.saturating_duration_since(now());
    #[expect(clippy::disallowed_methods, reason = "a bench lets time pass")]
    tokio::time::sleep(left).await;
    let began = now();
    while call(handle, timer::Request::Count).await != Outcome::TimersCounted(before) {
        tokio::task::yield_now().await;
    }
    BULK as f64 / began.elapsed().as_secs_f64()
}
