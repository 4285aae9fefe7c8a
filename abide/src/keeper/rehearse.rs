//! A spare goes once through what a start and an ending will need of it. A forked process finds its
//! memory and its program page by page, each at the price of a fault; a spare has the time for that.

use abide_core::{Containment, End, Exit};

use super::folder::{EndingFile, Meta};
use super::frame::{Exited, FromKeeper, ToKeeper};
use super::launch::{Hold, Launch, Stdin};
use super::place::Place;
use super::run::wait_any;
use super::spawn;

/// Does everything that leaves no trace.
pub fn rehearse(place: &Place) {
    let mut wire = Vec::new();
    ToKeeper::Start(Box::new(launch())).encode(&mut wire);
    let Ok(Some(ToKeeper::Start(launch))) = ToKeeper::take_from(&mut wire) else {
        return;
    };
    let path = place.leaf.as_ref().map(|leaf| leaf.path.as_path());
    let meta = Meta::new(&launch, Containment::Cgroup, path, place.identity.clone());
    spawn::rehearse(&launch);
    let exited = Exited {
        exit: Some(Exit::Code(0)),
        end: End::Exited,
        duration_ms: 0,
        bytes: 0,
        dropped: 0,
        empty: true,
        closed: true,
        cpu_ms: 0,
        max_rss_kb: 0,
    };
    FromKeeper::Exited(exited).encode(&mut wire);
    let texts = [meta.to_text(), EndingFile::Ended(exited).to_text()];
    place.read_signals();
    let mut none_left = wait_any(&mut false).is_none();
    none_left &= !place.leaf.as_ref().is_some_and(|leaf| leaf.populated());
    drop(place.oom_watch());
    // Nothing of it is of use, and nothing of it may be left out.
    std::hint::black_box((texts, wire, none_left));
}

fn launch() -> Launch {
    Launch {
        session: String::new(),
        agent: String::new(),
        command: Vec::new(),
        argv: ["sh", "-c", ":"].map(Into::into).to_vec(),
        cwd: b"/".to_vec(),
        env: vec![(b"PATH".to_vec(), b"/bin".to_vec())],
        stdin: Stdin::None,
        pty: None,
        deadline_ms: Some(1),
        idle_ms: None,
        inactivity_ms: None,
        log_quota: 0,
        created_wall_ms: 0,
        key: None,
        conversation: None,
        started_by: None,
        grace_ms: 0,
        containment: Hold::Auto,
        max_processes: 0,
        heritage: None,
        secret_fingerprints: Vec::new(),
    }
}
