//! Looks at what the processes of a session do when it writes something, for somebody who waits for that.
//!
//! The daemon's one thread has enough to do then: it reads what was written and makes an answer of it. So a
//! second one hears the bell that a keeper rings when it has told of output, and looks at the processes
//! meanwhile. Where it has not come to it in time, whoever needs to know looks for themselves.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use abide_core::{Millis, Mono};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::thread::sched_getcpu as processor;

use super::clock::{SystemClock, micros};
use super::facts::{Facts, facts_from};
use super::lookout::Lookout;
use crate::keeper::folder::Meta;

/// Events that are taken at once.
const EVENTS: usize = 16;
/// The event that ends the thread; posts are counted from one.
const END: u64 = 0;
/// How far the thread steps back behind others, in the units of `nice`.
const BEHIND: i32 = 5;
/// Microseconds that a look takes, even if it has to be taken far from its memory.
const A_LOOK: u64 = 100;
/// An older look is none.
const JUST_NOW: Millis = Millis(2);

/// The thread, which is there from when it is first needed.
#[derive(Default)]
pub struct Sentry(OnceLock<Option<Arc<Posts>>>);

/// Where it stands.
struct Posts {
    epoll: OwnedFd,
    end: OwnedFd,
    all: Mutex<All>,
}

/// They are few, and looked up by a thread that has just been woken: nothing is nearer than a row.
#[derive(Default)]
struct All {
    last: u64,
    row: Vec<(u64, Arc<Post>)>,
}

/// One session that somebody waits for.
struct Post {
    meta: Meta,
    lookout: Arc<Lookout>,
    bell: Arc<OwnedFd>,
    /// One more than the number of the processor on which somebody is looking; zero: nobody is.
    looking: AtomicUsize,
    /// What was seen, and when.
    seen: Mutex<Option<(Mono, Facts)>>,
}

/// A post that is given up when this is dropped.
pub struct Stand {
    posts: Arc<Posts>,
    number: u64,
    post: Arc<Post>,
    /// It hears the bell.
    hears: bool,
}

impl Sentry {
    /// Has it look, from that lookout, when the bell of that session rings; once.
    pub fn stand(&self, bell: Arc<OwnedFd>, lookout: Arc<Lookout>, meta: Meta) -> Option<Stand> {
        let posts = self.0.get_or_init(|| Posts::begin().ok()).clone()?;
        // What rang before is over.
        hush(&bell);
        let post = Arc::new(Post {
            meta,
            lookout,
            bell,
            looking: AtomicUsize::new(0),
            seen: Mutex::default(),
        });
        let mut stand = Stand {
            number: posts.take(post.clone()),
            posts,
            post,
            hears: false,
        };
        let data = epoll::EventData::new_u64(stand.number);
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        // Where somebody else waits for the same, they hear it.
        epoll::add(&stand.posts.epoll, &stand.post.bell, data, once).ok()?;
        stand.hears = true;
        Some(stand)
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        if let Some(Some(posts)) = self.0.get() {
            let _ = rustix::io::write(&posts.end, &1_u64.to_ne_bytes());
        }
    }
}

impl Posts {
    fn begin() -> io::Result<Arc<Self>> {
        let posts = Arc::new(Posts {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            end: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            all: Mutex::default(),
        });
        let data = epoll::EventData::new_u64(END);
        epoll::add(&posts.epoll, &posts.end, data, epoll::EventFlags::IN)?;
        let here = posts.clone();
        let thread = std::thread::Builder::new().name("sentry".into());
        thread.spawn(move || here.watch())?;
        Ok(posts)
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().expect("no holder panics")
    }

    fn take(&self, post: Arc<Post>) -> u64 {
        let mut all = self.all();
        all.last += 1;
        let number = all.last;
        all.row.push((number, post));
        number
    }

    fn post(&self, number: u64) -> Option<Arc<Post>> {
        let all = self.all();
        let mut row = all.row.iter();
        row.find(|post| post.0 == number).map(|post| post.1.clone())
    }

    fn watch(&self) {
        step_behind();
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let woken = epoll::wait(&self.epoll, spare_capacity(&mut events), None);
            if woken.is_err_and(|fault| fault != rustix::io::Errno::INTR) {
                return;
            }
            for event in &events {
                let number = { event.data }.u64();
                if number == END {
                    return;
                }
                if let Some(post) = self.post(number) {
                    post.look();
                }
            }
        }
    }
}

impl Post {
    /// Whoever looks on the same processor cannot go on before we let them.
    fn is_looked_at_elsewhere(&self, here: usize) -> bool {
        let looking = self.looking.load(Ordering::Acquire);
        looking != 0 && looking != 1 + here
    }

    fn look(&self) {
        self.looking.store(1 + processor(), Ordering::Release);
        let at = SystemClock.mono();
        let seen = facts_from(&self.lookout, &self.meta);
        *self.seen.lock().expect("no holder panics") = Some((at, seen));
        self.looking.store(0, Ordering::Release);
    }
}

impl Stand {
    /// What was seen, if that was just now. A keeper may ring late: of output that was waited for before.
    pub fn seen(&self) -> Option<Facts> {
        // A look that has begun is done sooner than another one would be, unless whoever looks has to wait.
        let until = micros() + A_LOOK;
        let here = processor();
        while self.post.is_looked_at_elsewhere(here) && micros() < until {
            std::hint::spin_loop();
        }
        let (at, facts) = self.looked()?;
        (SystemClock.mono().since(at) <= JUST_NOW).then_some(facts)
    }

    /// What was seen, and when.
    pub fn looked(&self) -> Option<(Mono, Facts)> {
        *self.post.seen.lock().expect("no holder panics")
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.posts.all().row.retain(|post| post.0 != self.number);
        if self.hears {
            let _ = epoll::delete(&self.posts.epoll, &self.post.bell);
        }
    }
}

/// Takes away what has rung.
fn hush(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// From here on, whoever else wants to run comes before this thread: first of all the keeper, which the same
/// output wakes. It still gets its share, since it may hold what others wait for.
fn step_behind() {
    // For Linux this is about the calling thread alone.
    let _ = rustix::process::setpriority_process(None, BEHIND);
}
