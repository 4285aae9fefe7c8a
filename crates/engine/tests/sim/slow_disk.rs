//! Calls while the disk is slow: the test decides when a commit finishes.

use std::sync::Arc;
use std::time::Duration;

use abide_core::request::Caller;
use abide_core::timer::{self, Create, Kind, Why};
use abide_core::{Asking, Key, Millis, Outcome, Record, Refusal, Request, Run};
use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};

use super::callers::caller;
use super::{Daemon, World, simulated};
use crate::clock::pause;
use crate::handle::{CallStep, CallUpdate, LaunchOptions, PendingCall};
use crate::store::{Store, StoreFault, WakerRecord};

type Done = oneshot::Sender<Result<(), StoreFault>>;

/// Store whose commits the test finishes.
struct HeldStore(mpsc::UnboundedSender<(Vec<Record>, Done)>);

impl Store for HeldStore {
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        let (done, answer) = oneshot::channel();
        let _ = self.0.send((records, done));
        answer
    }

    fn settle(&self) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.commit(Vec::new())
    }

    fn write_waker_record(&self, _: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        oneshot::channel().1
    }

    fn prune(&self, _: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        oneshot::channel().1
    }
}

struct Stage {
    world: Arc<World>,
    daemon: Daemon,
    commits: mpsc::UnboundedReceiver<(Vec<Record>, Done)>,
}

impl Stage {
    /// A daemon that has recovered.
    async fn new() -> Self {
        let world = World::new(1, false);
        let (sender, commits) = mpsc::unbounded_channel();
        let daemon = Daemon::start(&world, Arc::new(HeldStore(sender)));
        let mut stage = Stage {
            world,
            daemon,
            commits,
        };
        stage.finish(Ok(())).await;
        let ready = (&mut stage.daemon.ready).await;
        ready.expect("the loop runs");
        stage
    }

    /// Finishes the commit in flight. Returns the number of its records.
    async fn finish(&mut self, result: Result<(), StoreFault>) -> usize {
        let (records, done) = self.commits.recv().await.expect("a commit");
        let _ = done.send(result);
        records.len()
    }

    async fn call(&self, agent: &str, request: Request) -> PendingCall {
        let launch = LaunchOptions::plain("/".into(), Vec::new(), None, Arc::default());
        let handle = &self.daemon.handle;
        handle.call(caller(agent), request, Some(launch)).await
    }

    async fn list(&self) -> PendingCall {
        let (asks, after, most) = (false, None, 10);
        let list = timer::Request::List { asks, after, most };
        let handle = &self.daemon.handle;
        handle
            .call(Caller::PERSON, Request::Timer(list), None)
            .await
    }
}

fn create(text: &str) -> Create {
    Create {
        kind: Kind::Mission,
        purpose: text.into(),
        until: None,
        total: Millis::from_secs(3_600),
        standby: None,
        client_limit: None,
        detach: true,
        key: None,
    }
}

fn make_timer(text: &str) -> Request {
    Request::Timer(timer::Request::Create(create(text)))
}

fn run(idle: Option<Millis>) -> Request {
    Request::Run(Run {
        command: "make".into(),
        deadline: Some(Millis::from_secs(5)),
        idle,
        inactivity: None,
        asking: Asking::Here,
        standby: None,
        detach: false,
        key: None,
        approval: None,
    })
}

fn read_messages() -> Request {
    Request::ReadMessages {
        standby: Millis(0),
        most: 10,
        known: Vec::new(),
    }
}

/// Waits until the loop has handled its events: paused time advances only when no task can run.
async fn loop_is_idle() {
    pause(Duration::from_millis(1)).await;
}

/// True if the call has no answer, however long it waits.
async fn is_unanswered(pending: &mut PendingCall) -> bool {
    pause(Duration::from_secs(60)).await;
    loop {
        match pending.next().now_or_never() {
            None => return true,
            Some(Some(CallStep::Update(_))) => {}
            Some(Some(CallStep::Done(_)) | None) => return false,
        }
    }
}

fn unwritable() -> Result<(), StoreFault> {
    Err(StoreFault::Unwritable("simulated".into()))
}

#[test]
fn calls_about_sessions_are_answered_while_a_commit_is_in_flight() {
    simulated(async {
        let mut stage = Stage::new().await;
        let mut first = stage.call("ann", make_timer("first")).await;
        let session = stage.call("bob", run(None)).await;
        assert!(matches!(session.done().await, Some(Outcome::Ended(_))));
        let messages = stage.call("bob", read_messages()).await.done().await;
        assert_eq!(messages, Some(Outcome::Messages(Vec::new(), 0)));
        let mut second = stage.call("bob", make_timer("second")).await;
        let mut list = stage.list().await;
        assert!(is_unanswered(&mut first).await);
        stage.finish(Ok(())).await;
        let made = first.done().await;
        assert!(
            matches!(made, Some(Outcome::Timer(_, Why::Made))),
            "{made:?}"
        );
        assert!(is_unanswered(&mut second).await);
        assert!(is_unanswered(&mut list).await);
        stage.finish(Ok(())).await;
        let made = second.done().await;
        assert!(
            matches!(made, Some(Outcome::Timer(_, Why::Made))),
            "{made:?}"
        );
        let listed = list.done().await;
        assert!(
            matches!(&listed, Some(Outcome::Timers(all)) if all.len() == 2),
            "{listed:?}"
        );
    });
}

#[test]
fn failed_commit_refuses_the_calls_of_both_generations() {
    simulated(async {
        let mut stage = Stage::new().await;
        let first = stage.call("ann", make_timer("first")).await;
        loop_is_idle().await;
        let second = stage.call("bob", make_timer("second")).await;
        let list = stage.list().await;
        loop_is_idle().await;
        let count = stage.finish(unwritable()).await;
        assert_eq!(count, 1, "the second waits for the next commit");
        let refused = Some(Outcome::Refused(Refusal::NotRecorded));
        assert_eq!(first.done().await, refused);
        assert_eq!(second.done().await, refused);
        assert_eq!(list.done().await, Some(Outcome::Timers(Vec::new())));
        let third = stage.call("ann", make_timer("third")).await;
        let count = stage.finish(Ok(())).await;
        assert_eq!(count, 1, "nothing of the failed generations is tried again");
        let made = third.done().await;
        assert!(
            matches!(made, Some(Outcome::Timer(_, Why::Made))),
            "{made:?}"
        );
    });
}

#[test]
fn calls_are_refused_while_the_outcome_of_a_commit_is_unknown() {
    simulated(async {
        for settled in [Ok(()), unwritable()] {
            let mut stage = Stage::new().await;
            let first = stage.call("ann", make_timer("first")).await;
            let unknown = StoreFault::Unknown("simulated".into());
            stage.finish(Err(unknown)).await;
            loop_is_idle().await;
            let refused = Some(Outcome::Refused(Refusal::NotRecorded));
            let second = stage.call("bob", make_timer("second")).await;
            assert_eq!(second.done().await, refused);
            let list = stage.list().await.done().await;
            assert_eq!(list, refused, "what it would list may be reverted");
            let session = stage.call("bob", run(None)).await;
            assert!(matches!(session.done().await, Some(Outcome::Ended(_))));
            let is_durable = settled.is_ok();
            stage.finish(settled).await;
            let first = first.done().await;
            let made = matches!(first, Some(Outcome::Timer(_, Why::Made)));
            assert_eq!(made, is_durable, "{first:?}");
            let list = stage.list().await.done().await;
            let listed = usize::from(is_durable);
            assert!(
                matches!(&list, Some(Outcome::Timers(all)) if all.len() == listed),
                "{list:?}"
            );
        }
    });
}

#[test]
fn call_whose_outcome_stays_unknown_is_told_so_and_joins_its_timer_later() {
    simulated(async {
        for settled in [Ok(()), unwritable()] {
            let keyed = || {
                let key = Some(Key("given:once".into()));
                let create = Create {
                    key,
                    ..create("once")
                };
                Request::Timer(timer::Request::Create(create))
            };
            let mut stage = Stage::new().await;
            let first = stage.call("ann", keyed()).await;
            stage.finish(unknown()).await;
            assert!(is_doubt(first.done().await.as_ref()));
            let is_durable = settled.is_ok();
            stage.finish(settled).await;
            let again = stage.call("ann", keyed()).await;
            if !is_durable {
                stage.finish(Ok(())).await;
            }
            let again = again.done().await;
            assert!(matches!(again, Some(Outcome::Timer(..))), "{again:?}");
            let list = stage.list().await.done().await;
            assert!(
                matches!(&list, Some(Outcome::Timers(all)) if all.len() == 1),
                "{list:?}"
            );
        }
    });
}

#[test]
fn completion_whose_outcome_stays_unknown_is_told_once() {
    simulated(async {
        let mut stage = Stage::new().await;
        let soon = Create {
            kind: Kind::Waiting,
            total: Millis::from_secs(5),
            detach: false,
            ..create("soon")
        };
        let create = Request::Timer(timer::Request::Create(soon));
        let waiting = stage.call("ann", create).await;
        stage.finish(Ok(())).await;
        stage.finish(unknown()).await;
        assert!(is_doubt(waiting.done().await.as_ref()));
        stage.finish(Ok(())).await;
        let mut told = 0;
        for _ in 0..2 {
            // Commits: that nobody was told, that the message is told, and that it was seen.
            let read = stage.call("ann", read_messages()).await;
            let read = loop {
                tokio::select! {
                    biased;
                    Some((_, done)) = stage.commits.recv() => drop(done.send(Ok(()))),
                    () = pause(Duration::from_secs(60)) => break read.done().await,
                }
            };
            let Some(Outcome::Messages(messages, 0)) = read else {
                panic!("{read:?}");
            };
            told += messages.len();
        }
        assert_eq!(told, 1);
    });
}

fn unknown() -> Result<(), StoreFault> {
    Err(StoreFault::Unknown("simulated".into()))
}

fn is_doubt(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Refused(Refusal::OutcomeUnknown(why))) if why.contains("does not answer"))
}

#[test]
fn stop_leaves_a_commit_of_unknown_outcome_to_the_next_daemon() {
    simulated(async {
        let mut stage = Stage::new().await;
        let _first = stage.call("ann", make_timer("first")).await;
        let unknown = StoreFault::Unknown("simulated".into());
        stage.finish(Err(unknown)).await;
        loop_is_idle().await;
        stage.daemon.handle.stop().await;
        let stopped = stage.daemon.event_loop.await.expect("no panic");
        assert!(stopped.is_ok(), "{stopped:?}");
    });
}

#[test]
fn question_is_asked_after_its_commit() {
    simulated(async {
        let mut stage = Stage::new().await;
        let mut session = stage.call("ann", run(Some(Millis::from_secs(1)))).await;
        let (records, done) = stage.commits.recv().await.expect("a commit");
        assert!(matches!(records[..], [Record::Asked { .. }]), "{records:?}");
        let questions = || stage.daemon.handle.published().questions().len();
        pause(Duration::from_secs(1)).await;
        assert_eq!(questions(), 0);
        done.send(Ok(())).expect("the loop runs");
        loop {
            match session.next().await {
                Some(CallStep::Update(CallUpdate::Asked(_))) => break,
                Some(CallStep::Update(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(questions(), 1);
    });
}

#[test]
fn loop_takes_no_more_calls_when_too_much_waits_for_a_commit() {
    simulated(async {
        let mut stage = Stage::new().await;
        let first = stage.call("ann", make_timer("first")).await;
        loop_is_idle().await;
        let many = (0..9_000).map(|_| create("one of many")).collect();
        let many = Request::Timer(timer::Request::CreateMany(many));
        let many = stage.call("ann", many).await;
        loop_is_idle().await;
        let mut session = stage.call("bob", run(None)).await;
        assert!(is_unanswered(&mut session).await);
        stage.finish(Ok(())).await;
        assert!(matches!(session.done().await, Some(Outcome::Ended(_))));
        stage.finish(Ok(())).await;
        assert!(first.done().await.is_some() && many.done().await.is_some());
    });
}

#[test]
fn stop_waits_for_the_commits() {
    simulated(async {
        let mut stage = Stage::new().await;
        let first = stage.call("ann", make_timer("first")).await;
        loop_is_idle().await;
        let second = stage.call("ann", make_timer("second")).await;
        stage.daemon.handle.stop().await;
        loop_is_idle().await;
        stage.finish(Ok(())).await;
        stage.finish(Ok(())).await;
        assert!(first.done().await.is_some() && second.done().await.is_some());
        let stopped = stage.daemon.event_loop.await.expect("no panic");
        assert!(stopped.is_ok(), "{stopped:?}");
        drop(stage.world);
    });
}
