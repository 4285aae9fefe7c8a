//! Timers in memory only: the `DelayQueue` of tokio, behind the verbs of the other contenders. Nothing
//! of it survives anything; it is what being told costs where nothing is kept.
//!
//! `bulk COUNT` prints seconds and bytes each, `single CALLERS EACH` seconds and the median of one
//! call, `drain COUNT` seconds, `late COUNT` how many milliseconds late each came.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

/// A timer as the others keep it.
struct Timer {
    due: SystemTime,
    _agent: String,
    _text: String,
}

type Queue = DelayQueue<Timer>;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> usize {
        let word = words.get(at).and_then(|word| word.parse().ok());
        word.expect("a number")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        match words.first().map(String::as_str) {
            Some("bulk") => bulk(number(1)),
            Some("single") => single(number(1), number(2)).await,
            Some("drain") => drain(number(1)).await,
            Some("late") => late(number(1)).await,
            _ => panic!("bulk, single, drain or late"),
        }
    });
}

fn put(queue: &mut Queue, after: Duration) {
    let timer = Timer {
        due: SystemTime::now() + after,
        _agent: "bench".into(),
        _text: "look at the logs of the build".into(),
    };
    queue.insert(timer, after);
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.expect("a size") * 1024.0
}

fn bulk(count: usize) {
    let before = resident();
    let begun = Instant::now();
    let mut queue = Queue::new();
    for n in 0..count {
        put(&mut queue, Duration::from_secs(3600 + n as u64 % 86_400));
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{seconds:.6} {:.1}", (resident() - before) / count as f64);
}

/// Callers that each wait for the answer of the task that has the queue.
async fn single(callers: usize, each: usize) {
    let (ask, mut asked) = mpsc::channel::<oneshot::Sender<()>>(callers);
    let server = tokio::spawn(async move {
        let mut queue = Queue::new();
        while let Some(answer) = asked.recv().await {
            put(&mut queue, Duration::from_secs(36_000));
            let _ = answer.send(());
        }
    });
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let ask = ask.clone();
            tokio::spawn(async move {
                let mut took = Vec::with_capacity(each);
                for _ in 0..each {
                    let (answer, answered) = oneshot::channel();
                    let asked = Instant::now();
                    ask.send(answer).await.expect("a server");
                    answered.await.expect("an answer");
                    took.push(asked.elapsed());
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.expect("a caller"));
    }
    let seconds = begun.elapsed().as_secs_f64();
    took.sort();
    println!("{seconds:.6} {:.9}", took[took.len() / 2].as_secs_f64());
    drop(ask);
    server.await.expect("the server");
}

async fn drain(count: usize) {
    let mut queue = Queue::new();
    for _ in 0..count {
        put(&mut queue, Duration::ZERO);
    }
    let begun = Instant::now();
    while queue.next().await.is_some() {}
    println!("{:.6}", begun.elapsed().as_secs_f64());
}

async fn late(count: usize) {
    let mut queue = Queue::new();
    let begin = Instant::now() + Duration::from_secs(2);
    let calendar = SystemTime::now() + begin.duration_since(Instant::now());
    for n in 0..count {
        let at = Duration::from_secs_f64(n as f64 / count as f64);
        let timer = Timer {
            due: calendar + at,
            _agent: "bench".into(),
            _text: "look at the logs of the build".into(),
        };
        queue.insert_at(timer, begin + at);
    }
    let mut late = Vec::with_capacity(count);
    while let Some(expired) = queue.next().await {
        let due = expired.into_inner().due;
        late.push(match SystemTime::now().duration_since(due) {
            Ok(after) => after.as_secs_f64() * 1e3,
            Err(before) => -before.duration().as_secs_f64() * 1e3,
        });
    }
    let words: Vec<String> = late.iter().map(|one| format!("{one:.4}")).collect();
    println!("{}", words.join(" "));
}
