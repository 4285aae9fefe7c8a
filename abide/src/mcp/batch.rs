//! Batches: several messages in one line, whose answers are returned in one line too. Only protocol version
//! 2025-03-26 has them. The front splits a batch, so that the daemon receives single messages, and collects
//! the answers until all of them have arrived. Batches over HTTP are handled in `http/batch`.

use serde_json::value::RawValue;

use super::front_hello::UNANSWERED_LIMIT;

/// Protocol version that has batches.
pub const VERSION: &str = "2025-03-26";

/// Limit on messages in a batch: as many as may be unanswered. Even an invalid message is answered, so
/// without a limit a small input could produce a very large output.
pub const BATCH_LIMIT: usize = UNANSWERED_LIMIT;

/// True if a line is meant to be a batch.
pub fn is_batch(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'[')
}

/// Messages of a batch. Of a batch that is too long, one more than the limit is returned. `None`: invalid JSON.
pub fn messages(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let all: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    let line = |message: &RawValue| {
        let mut line = message.get().as_bytes().to_vec();
        line.push(b'\n');
        line
    };
    Some(all.into_iter().take(BATCH_LIMIT + 1).map(line).collect())
}

/// Reason why a batch with this many messages is refused.
pub fn size_error(messages: &[Vec<u8>]) -> Option<String> {
    match messages.len() {
        0 => Some("a batch must not be empty".into()),
        count if count > BATCH_LIMIT => {
            Some(format!("a batch must hold at most {BATCH_LIMIT} messages"))
        }
        _ => None,
    }
}

/// Batches whose answers are not complete.
#[derive(Default)]
pub struct Batches(Vec<Batch>);

struct Batch {
    /// Ids of the unanswered requests.
    waiting: Vec<Vec<u8>>,
    /// Answers so far, separated by commas.
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
    /// Adds a batch of these requests. `refused` are answers to its invalid messages.
    pub fn open(&mut self, waiting: Vec<Vec<u8>>, refused: &[Vec<u8>]) {
        let mut batch = Batch {
            waiting,
            answers: Vec::new(),
        };
        refused.iter().for_each(|line| batch.take(line));
        self.0.push(batch);
    }

    /// Stores an answer that belongs to a batch. `false`: the answer belongs to no batch.
    pub fn store(&mut self, id: &[u8], line: &[u8]) -> bool {
        let found = self.0.iter_mut().find_map(|batch| {
            let at = batch.waiting.iter().position(|waiting| waiting == id)?;
            Some((batch, at))
        });
        let Some((batch, at)) = found else {
            return false;
        };
        batch.waiting.swap_remove(at);
        batch.take(line);
        true
    }

    /// Removes a request that will not be answered.
    pub fn forget(&mut self, id: &[u8]) {
        for batch in &mut self.0 {
            batch.waiting.retain(|waiting| waiting != id);
        }
    }

    /// Appends the answers of all complete batches to `out`. A batch of notifications alone gets no answer.
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

    fn finished(batches: &mut Batches) -> String {
        let mut out = Vec::new();
        batches.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers_of_a_batch_are_sent_when_all_have_arrived() {
        let mut batches = Batches::default();
        batches.open(
            vec![b"1".to_vec(), b"2".to_vec(), b"3".to_vec()],
            &[b"x\n".to_vec()],
        );
        batches.open(vec![b"4".to_vec()], &[]);
        assert!(batches.store(b"2", b"b\n"));
        assert!(!batches.store(b"2", b"b\n"), "it was answered");
        assert!(!batches.store(b"5", b"e\n"), "it came by itself");
        assert!(batches.store(b"4", b"d\n"));
        assert_eq!(finished(&mut batches), "[d]\n");
        batches.forget(b"3");
        assert_eq!(finished(&mut batches), "");
        assert!(batches.store(b"1", b"a\n"));
        assert_eq!(finished(&mut batches), "[x,b,a]\n");
        batches.open(Vec::new(), &[]);
        assert_eq!(finished(&mut batches), "", "nothing wanted an answer");
    }

    #[test]
    fn messages_of_a_batch_keep_their_bytes() {
        let line = b" [ {\"id\": 1.0, \"a\":\"]\"} ,2]\r\n";
        assert!(is_batch(line));
        let messages = messages(line).unwrap();
        assert_eq!(messages, [&b"{\"id\": 1.0, \"a\":\"]\"}\n"[..], b"2\n"]);
        assert!(!is_batch(b"{}") && super::messages(b"[1,").is_none());
    }
}
