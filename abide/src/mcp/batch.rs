//! Batches: many messages in one line, of which the answers come in one line too. One version of the
//! protocol has them. The daemon hears of none that come through a front: it passes on each message by itself,
//! and keeps the answers until all of them are there. (Those that come over HTTP: `http/batch`.)

use serde_json::value::RawValue;

use super::hello::RESENT;

/// The version that has batches.
pub const VERSION: &str = "2025-03-26";

/// Messages that a batch may hold: as many as may wait for an answer. Even of what is no message each is
/// answered, and a few bytes for each would become very many.
pub const MOST: usize = RESENT;

/// Whether a line is meant to be a batch.
pub fn is_one(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'[')
}

/// The messages in a batch; of one that holds too many, one too many. `None`: it cannot be read.
pub fn messages(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let all: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    let line = |message: &RawValue| {
        let mut line = message.get().as_bytes().to_vec();
        line.push(b'\n');
        line
    };
    Some(all.into_iter().take(MOST + 1).map(line).collect())
}

/// Why so many messages are no batch.
pub fn objection(messages: &[Vec<u8>]) -> Option<String> {
    match messages.len() {
        0 => Some("a batch must not be empty".into()),
        count if count > MOST => Some(format!("a batch must hold at most {MOST} messages")),
        _ => None,
    }
}

/// The batches that are not answered yet.
#[derive(Default)]
pub struct Batches(Vec<Batch>);

struct Batch {
    /// The ids of what is not answered.
    waiting: Vec<Vec<u8>>,
    /// The answers that are there, with commas between.
    answers: Vec<u8>,
}

impl Batch {
    fn take(&mut self, line: &[u8]) {
        if !self.answers.is_empty() {
            self.answers.push(b',');
        }
        self.answers.extend_from_slice(line.trim_ascii_end());
    }
}

impl Batches {
    /// A batch has come: of these requests, and of what is `refused` already.
    pub fn open(&mut self, waiting: Vec<Vec<u8>>, refused: &[Vec<u8>]) {
        let mut batch = Batch {
            waiting,
            answers: Vec::new(),
        };
        refused.iter().for_each(|line| batch.take(line));
        self.0.push(batch);
    }

    /// Keeps an answer that belongs into a batch. `false`: it belongs into none.
    pub fn keep(&mut self, id: &[u8], line: &[u8]) -> bool {
        let waits = self.0.iter_mut().find_map(|batch| {
            let at = batch.waiting.iter().position(|waiting| waiting == id)?;
            Some((batch, at))
        });
        let Some((batch, at)) = waits else {
            return false;
        };
        batch.waiting.swap_remove(at);
        batch.take(line);
        true
    }

    /// To this one no answer comes.
    pub fn forget(&mut self, id: &[u8]) {
        for batch in &mut self.0 {
            batch.waiting.retain(|waiting| waiting != id);
        }
    }

    /// Says all that is complete. A batch that wanted no answer gets none.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.retain(|batch| {
            let complete = batch.waiting.is_empty();
            if complete && !batch.answers.is_empty() {
                out.push(b'[');
                out.extend_from_slice(&batch.answers);
                out.extend_from_slice(b"]\n");
            }
            !complete
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(batches: &mut Batches) -> String {
        let mut out = Vec::new();
        batches.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers_are_said_together_when_all_are_there() {
        let mut batches = Batches::default();
        batches.open(
            vec![b"1".to_vec(), b"2".to_vec(), b"3".to_vec()],
            &[b"x\n".to_vec()],
        );
        batches.open(vec![b"4".to_vec()], &[]);
        assert!(batches.keep(b"2", b"b\n"));
        assert!(!batches.keep(b"2", b"b\n"), "it was answered");
        assert!(!batches.keep(b"5", b"e\n"), "it came by itself");
        assert!(batches.keep(b"4", b"d\n"));
        assert_eq!(said(&mut batches), "[d]\n");
        batches.forget(b"3");
        assert_eq!(said(&mut batches), "");
        assert!(batches.keep(b"1", b"a\n"));
        assert_eq!(said(&mut batches), "[x,b,a]\n");
        batches.open(Vec::new(), &[]);
        assert_eq!(said(&mut batches), "", "nothing wanted an answer");
    }

    #[test]
    fn messages_are_taken_out_as_they_are() {
        let line = b" [ {\"id\": 1.0, \"a\":\"]\"} ,2]\r\n";
        assert!(is_one(line));
        let messages = messages(line).unwrap();
        assert_eq!(messages, [&b"{\"id\": 1.0, \"a\":\"]\"}\n"[..], b"2\n"]);
        assert!(!is_one(b"{}") && super::messages(b"[1,").is_none());
    }
}
