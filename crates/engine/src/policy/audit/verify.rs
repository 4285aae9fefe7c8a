//! Check of the chain of an audit log.

use std::fs::File;
use std::io::{self, BufRead};
use std::path::Path;

use abide_api::AuditLine;

use super::{AuditLog, hash, names};

/// A chain without a break.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub lines: u64,
    /// Lines whose writing was interrupted. Their bytes are in the chain.
    pub torn: u64,
    /// Hash of the last line; empty if there is none.
    pub last: String,
    /// Time of the first line, in Unix milliseconds.
    pub since: Option<u64>,
    /// True if the first line follows one that was removed because of its age.
    pub older_removed: bool,
}

/// First place where the chain is broken.
#[derive(Debug, thiserror::Error)]
pub enum VerifyFault {
    /// A line does not have the hash of the line before it.
    #[error(
        "{file}, line {line}: it does not follow the line before it. A line was changed, removed or inserted there"
    )]
    Broken { file: String, line: u64 },
    /// A line is not JSON, and no later line has its hash.
    #[error("{file}, line {line}: it cannot be read, and nothing follows that proves it")]
    Unreadable { file: String, line: u64 },
    /// A file cannot be read.
    #[error("{file}: {fault}")]
    File {
        file: String,
        #[source]
        fault: io::Error,
    },
}

impl AuditLog {
    /// Checks that every line has the hash of the line before it.
    pub fn verify(&self) -> Result<Verified, VerifyFault> {
        let mut found = Verified::default();
        // A line that is not JSON is proved by the line after it.
        let mut unproved = None;
        for file in names(&self.folder) {
            let each = lines(&self.folder.join(&file));
            let each = each.map_err(|fault| VerifyFault::File {
                file: file.clone(),
                fault,
            })?;
            for (at, line) in each.into_iter().enumerate() {
                let place = (file.clone(), at as u64 + 1);
                match serde_json::from_slice::<AuditLine>(&line) {
                    Ok(entry) => {
                        let is_first = found.lines == 0;
                        if is_first {
                            found.since = Some(entry.at);
                            found.older_removed = !entry.previous.is_empty();
                        } else if entry.previous != found.last {
                            let (file, line) = place;
                            return Err(VerifyFault::Broken { file, line });
                        }
                        unproved = None;
                    }
                    Err(_) => {
                        found.torn += 1;
                        unproved = Some(place);
                    }
                }
                found.lines += 1;
                found.last = hash(&line);
            }
        }
        match unproved {
            Some((file, line)) => Err(VerifyFault::Unreadable { file, line }),
            None => Ok(found),
        }
    }
}

fn lines(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    io::BufReader::new(File::open(path)?).split(b'\n').collect()
}
