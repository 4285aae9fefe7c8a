//! A database that is damaged or missing. The fault is reported, nothing is deleted, and the daemon continues with
//! what can be read: commands do not depend on the database.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::Value;

use super::{Opened, Sqlite, StoreFault, connect, schema, wal};
use crate::clock::{Clock, SystemClock};
use crate::secret;

/// Largest database that is checked completely at every start, which takes a few milliseconds per MiB.
const MAX_CHECKED: u64 = 32 << 20;
/// Suffix of a damaged database that was renamed, followed by the time.
const DAMAGED_SUFFIX: &str = "damaged-";
/// Suffixes of the files that SQLite keeps beside a database.
const COMPANION_SUFFIXES: [&str; 2] = ["-wal", "-shm"];

/// Checks the database without changing it.
pub fn check(path: &Path) -> Result<(), StoreFault> {
    if std::fs::metadata(path).map_or(0, |found| found.len()) == 0 {
        return match known_key(path) {
            Some(_) => Err(StoreFault::Missing),
            None => Ok(()),
        };
    }
    let db = read_only(path)?;
    quick_check(&db)?;
    // All tables may have been in the WAL.
    let tables: u64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match known_key(path) {
        Some(_) if tables == 0 => Err(StoreFault::Missing),
        _ => Ok(()),
    }
}

/// True if commits are missing in the WAL of a database that no daemon has open.
pub fn wal_is_damaged(path: &Path) -> bool {
    wal::is_damaged(&companion(path, COMPANION_SUFFIXES[0]))
}

/// Damaged databases that were renamed.
pub fn damaged_copies(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let begin = format!("{}.{DAMAGED_SUFFIX}", name.to_string_lossy());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| {
            name.starts_with(&begin) && !COMPANION_SUFFIXES.iter().any(|end| name.ends_with(end))
        })
    });
    found.sort();
    found
}

/// Finds damage that would only show when a page is needed.
pub(super) fn check_at_start(path: &Path) -> Result<(), StoreFault> {
    match std::fs::metadata(path) {
        Ok(found) if (1..=MAX_CHECKED).contains(&found.len()) => quick_check(&connect(path)?),
        _ => Ok(()),
    }
}

fn quick_check(db: &Connection) -> Result<(), StoreFault> {
    let result: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match result.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreFault::Damaged(result)),
    }
}

fn read_only(path: &Path) -> Result<Connection, StoreFault> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    Ok(Connection::open_with_flags(path, flags)?)
}

/// File that SQLite keeps beside a database.
fn companion(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// File with the id key of the database, which is created with it. A database with another key is another one.
pub(super) fn key_file(path: &Path) -> PathBuf {
    path.with_added_extension("id")
}

pub(super) fn known_key(path: &Path) -> Option<u64> {
    let text = secret::read(&key_file(path)).ok()??;
    u64::from_str_radix(std::str::from_utf8(&text).ok()?.trim(), 16).ok()
}

/// Renames a damaged database, and opens a new one with the rows that could be read.
pub(super) fn replace_damaged(
    path: &Path,
    boot_id: u128,
    why: &str,
) -> Result<(Opened, String), StoreFault> {
    let renamed =
        path.with_added_extension(format!("{DAMAGED_SUFFIX}{}", SystemClock.now().wall.0));
    let rename = |from: &Path, to: &Path| {
        std::fs::rename(from, to).map_err(|fault| {
            StoreFault::Broken(format!(
                "{} is damaged ({why}) and cannot be set aside: {fault}",
                from.display()
            ))
        })
    };
    rename(path, &renamed)?;
    for end in COMPANION_SUFFIXES {
        if companion(path, end).exists() {
            rename(&companion(path, end), &companion(&renamed, end))?;
        }
    }
    let saved = copy_readable(&renamed, path);
    let opened = match Sqlite::open(path, boot_id) {
        Err(StoreFault::Damaged(_)) => {
            // The copied rows are not valid either.
            for end in ["", COMPANION_SUFFIXES[0], COMPANION_SUFFIXES[1]] {
                let _ = std::fs::remove_file(companion(path, end));
            }
            Sqlite::open(path, boot_id)?
        }
        opened => opened?,
    };
    let found = match saved {
        Ok(()) => format!(
            "{} timers that have not ended, {} unseen messages and {} open questions could be read and were taken over",
            opened.open.stored.timers.len(),
            opened.open.stored.messages.len(),
            opened.open.questions.len()
        ),
        Err(_) => {
            "nothing in it could be read, so there are no timers, questions and messages".into()
        }
    };
    let fault_text = format!(
        "the database {} was damaged ({why}). It was set aside as {}; {found}. Sessions are not affected",
        path.display(),
        renamed.display()
    );
    Ok((opened, fault_text))
}

/// Copies all readable rows of one database into a new one.
fn copy_readable(from: &Path, to: &Path) -> Result<(), StoreFault> {
    let mut new = connect(to)?;
    schema::migrate(&mut new)?;
    let old = connect(from)?;
    if let Ok(key) = schema::ids_key(&old) {
        new.execute("UPDATE ids SET key = ?", [key.cast_signed()])?;
    }
    let tables = {
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'ids'";
        let mut select = new.prepare(sql)?;
        let names = select.query_map([], |row| row.get::<_, String>(0))?;
        names.collect::<Result<Vec<_>, _>>()?
    };
    old.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
    let transaction = new.transaction()?;
    for table in tables {
        // From both ends: an unreadable page hides the rows behind it.
        for order in ["", "ORDER BY rowid DESC"] {
            copy_rows(&old, &transaction, &table, order);
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Copies rows until one cannot be read. Rows that the new table does not accept are skipped.
fn copy_rows(old: &Connection, new: &Connection, table: &str, order: &str) -> Option<()> {
    let columns = new
        .prepare(&format!("SELECT * FROM {table} LIMIT 0"))
        .ok()?;
    let names: Vec<&str> = columns.column_names().collect();
    let names = names.join(", ");
    let placeholders = vec!["?"; columns.column_count()].join(", ");
    let insert = format!("INSERT OR IGNORE INTO {table} ({names}) VALUES ({placeholders})");
    let mut insert = new.prepare(&insert).ok()?;
    let mut select = old
        .prepare(&format!("SELECT {names} FROM {table} {order}"))
        .ok()?;
    let count = select.column_count();
    let mut rows = select.query([]).ok()?;
    while let Ok(Some(row)) = rows.next() {
        let values: Result<Vec<Value>, _> = (0..count).map(|at| row.get(at)).collect();
        if let Ok(values) = values {
            let _ = insert.execute(rusqlite::params_from_iter(values));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::store::open;

    const PAGE: u64 = 4_096;

    /// Database with this many timers and an empty WAL.
    fn filled(path: &Path, timers: u64) {
        let (opened, fault_text) = open(path, 1).unwrap();
        assert_eq!(fault_text, None);
        drop(opened);
        let db = connect(path).unwrap();
        db.execute_batch("BEGIN").unwrap();
        for number in 0..timers {
            let sql = "INSERT INTO timer (number, id, agent, kind, purpose, created_ms, checked_ms, total_ms, status, \
                       background, due_ms) VALUES (?, ?, 'a', 'mission', ?, 0, 0, 1000, 'running', 0, 1000)";
            let text = format!("timer {number} {}", "x".repeat(200));
            db.execute(
                sql,
                rusqlite::params![number, format!("timer_{number}"), text],
            )
            .unwrap();
        }
        db.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
            .unwrap();
    }

    fn damage(path: &Path, at: u64) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[0xa5; 200], at).unwrap();
        for end in COMPANION_SUFFIXES {
            let _ = std::fs::remove_file(companion(path, end));
        }
    }

    #[test]
    fn damaged_page_loses_only_its_own_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        filled(&path, 1_000);
        let pages = std::fs::metadata(&path).unwrap().len() / PAGE;
        damage(&path, pages / 2 * PAGE);
        let before = std::fs::read(&path).unwrap();
        assert!(check(&path).is_err());
        let (opened, fault_text) = open(&path, 1).unwrap();
        let left = opened.open.stored.timers.len();
        assert!((900..1_000).contains(&left), "{left}");
        let fault_text = fault_text.expect("it is said");
        assert!(
            fault_text.contains(&format!("{left} timers")),
            "{fault_text}"
        );
        let renamed = damaged_copies(&path);
        assert_eq!(
            std::fs::read(&renamed[0]).unwrap(),
            before,
            "it is kept as it was"
        );
        drop(opened);
        assert_eq!(open(&path, 1).unwrap().1, None, "it is said once");
    }

    #[test]
    fn database_without_header_is_renamed_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        filled(&path, 10);
        damage(&path, 0);
        let (opened, fault_text) = open(&path, 1).unwrap();
        assert!(opened.open.stored.timers.is_empty());
        let fault_text = fault_text.expect("it is said");
        assert!(
            fault_text.contains("nothing in it could be read"),
            "{fault_text}"
        );
        assert_eq!(damaged_copies(&path).len(), 1);
    }

    #[test]
    fn missing_or_emptied_database_is_reported_as_lost() {
        for empty in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("abide.db");
            filled(&path, 10);
            damage(&path, PAGE);
            std::fs::remove_file(&path).unwrap();
            if empty {
                std::fs::write(&path, "").unwrap();
            }
            let (_, fault_text) = open(&path, 1).unwrap();
            assert!(
                fault_text.is_some_and(|result| result.contains("was lost")),
                "{empty}"
            );
            assert_eq!(open(&path, 1).unwrap().1, None, "it is said once");
        }
    }

    #[test]
    fn database_without_the_wal_that_had_its_tables_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        filled(&path, 10);
        assert!(check(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
        for end in COMPANION_SUFFIXES {
            let _ = std::fs::remove_file(companion(&path, end));
        }
        drop(connect(&path).unwrap());
        assert!(std::fs::metadata(&path).unwrap().len() > 0);
        assert!(matches!(check(&path), Err(StoreFault::Missing)));
    }

    #[test]
    fn unopenable_database_gives_a_store_that_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        std::fs::create_dir(&path).unwrap();
        let (opened, fault_text) = open(&path, 1).unwrap();
        assert!(fault_text.is_some_and(|result| result.contains("commands run")));
        let refused = opened.store.commit(Vec::new()).blocking_recv().unwrap();
        assert!(
            matches!(refused, Err(StoreFault::Unopenable(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn newer_database_is_refused_and_left_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        filled(&path, 1);
        let db = connect(&path).unwrap();
        db.pragma_update(None, "user_version", 999).unwrap();
        drop(db);
        assert!(matches!(open(&path, 1), Err(StoreFault::Newer(_))));
        assert!(damaged_copies(&path).is_empty());
    }
}
