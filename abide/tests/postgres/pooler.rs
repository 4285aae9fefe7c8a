//! PgBouncer between the daemon and its server.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::harness::postgres::{Server, idle_psql};
use super::harness::{look_for, receive};
use super::{at, commands_run, made, made_at_last, make, mission, refused, stored};

struct Pooler {
    folder: TempDir,
    process: Child,
}

impl Pooler {
    fn start(server: &Server, mode: &str) -> Self {
        Pooler::with_size(server, mode, 4)
    }

    /// Pooler with this many connections to the server.
    fn with_size(server: &Server, mode: &str, size: usize) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let everybody = PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), everybody).expect("permissions");
        let (place, target) = (folder.path().display(), server.path(""));
        let config = format!(
            "[databases]\npostgres = host={} dbname=postgres user=postgres\n[pgbouncer]\nlisten_addr =\n\
             unix_socket_dir = {place}\nlisten_port = 5432\nauth_type = any\npool_mode = {mode}\n\
             default_pool_size = {size}\nlogfile = {place}/log\n",
            target.display()
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, config).expect("a configuration");
        #[expect(
            clippy::disallowed_methods,
            reason = "a program that the tests talk to"
        )]
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if rustix::process::geteuid().is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        }
        let process = command
            .arg("/usr/sbin/pgbouncer")
            .arg("-q")
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("PgBouncer is installed (`make programs` does that)");
        let socket = folder.path().join(".s.PGSQL.5432");
        look_for("the pooler", || Path::new(&socket).exists().then_some(()));
        Pooler { folder, process }
    }

    fn url(&self) -> String {
        let host = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}/postgres?schema=abide")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn f40_pooler_in_transaction_mode_can_be_used() {
    let server = Server::start();
    let pooler = Pooler::start(&server, "transaction");
    let abide = at(&pooler.url());
    abide.start();
    let mut known: Vec<String> = (0..20)
        .map(|n| made(&make(&abide, &format!("{n}"))))
        .collect();
    known.sort();
    assert_eq!(stored(&server), known);
    assert_eq!(abide.get("/v1/timers")["total"], 20);
    drop(abide);
}

#[test]
fn f41_two_daemons_share_the_server_processes_of_a_pooler() {
    let server = Server::start();
    let pooler = Pooler::start(&server, "transaction");
    let both = [at(&pooler.url()), at(&pooler.url())];
    both.iter().for_each(|abide| abide.start());
    // Each server process knows the statements that the transactions before have prepared in it.
    let mut known: Vec<String> = std::thread::scope(|scope| {
        let makers = both.each_ref().map(|abide| {
            scope.spawn(|| {
                let each = (0..20).map(|n| made_at_last(abide, &format!("{n}")));
                each.collect::<Vec<_>>()
            })
        });
        let made = makers.map(|maker| maker.join().expect("timers"));
        made.into_iter().flatten().collect()
    });
    known.sort();
    assert_eq!(stored(&server), known);
    drop(both);
}

#[test]
fn f42_pooler_in_statement_mode_is_refused() {
    let server = Server::start();
    let pooler = Pooler::start(&server, "statement");
    let abide = at(&pooler.url());
    abide.start();
    let sentence = refused(&make(&abide, "not possible"));
    assert!(sentence.contains("statement pooling mode"), "{sentence}");
    commands_run(&abide);
    drop(abide);
}

#[test]
fn f39_exhausted_pool_settles_the_timer_when_it_is_free() {
    let server = Server::start();
    let pooler = Pooler::with_size(&server, "transaction", 1);
    let abide = at(&pooler.url());
    abide.start();
    let first = made_at_last(&abide, "before");
    let mut holder = idle_psql(pooler.folder.path(), 5_432, "BEGIN; SELECT 1;");
    look_for("a pool that is exhausted", || {
        let held = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
        (server.sql(held) == "1").then_some(())
    });
    let waiting = abide.begin("/v1/timers", &mission("waits for the pool"));
    commands_run(&abide);
    let sentence = look_for("a refusal", || {
        let answer = make(&abide, "refused");
        (answer.status != 200).then(|| refused(&answer))
    });
    assert!(sentence.contains("cannot be reached since"), "{sentence}");
    holder.kill().expect("psql runs");
    holder.wait().expect("psql ends");
    let second = made(&receive(waiting).expect("an answer"));
    let mut known = [first, second];
    known.sort();
    assert_eq!(
        stored(&server),
        known,
        "once, and nothing of the refused one"
    );
    drop(abide);
}

#[test]
fn doctor_says_that_a_pooler_does_not_notify() {
    let server = Server::start();
    let pooler = Pooler::start(&server, "transaction");
    for (url, does_not) in [(pooler.url(), true), (server.url(), false)] {
        let abide = at(&url);
        let checked = abide.output(["doctor"]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert_eq!(said.contains("does not notify"), does_not, "{said}");
    }
}
