//! Record of the folders that setup has created, in a file of the state folder: `--undo` removes those again, and leaves an empty
//! folder that was there before.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::replace_file;
use crate::cli::error::CliError;
use abide_engine::config::Paths;

/// Name of the record: a JSON list of paths.
const RECORD: &str = "setup-folders.json";

pub struct CreatedFolders {
    record: PathBuf,
}

impl CreatedFolders {
    pub fn of(paths: &Paths) -> Self {
        CreatedFolders {
            record: paths.state.join(RECORD),
        }
    }

    /// Runs `write` and records the folders of `files` that it has created.
    pub fn keep_record<'a>(
        &self,
        files: impl Iterator<Item = &'a Path>,
        write: impl FnOnce() -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut missing: Vec<PathBuf> = files.flat_map(missing_folders).collect();
        let written = write();
        if !missing.is_empty() {
            missing.extend(missing_folders(&self.record));
            missing.extend(self.read());
            // The folder of the record is in the record too.
            let _ = self.record.parent().map(create_private_folder);
            self.save(missing);
        }
        written
    }

    /// Removes the folders of `files` that setup has created, as far as they are empty.
    pub fn remove_empty<'a>(&self, files: impl Iterator<Item = &'a Path>) {
        let files: Vec<&Path> = files.collect();
        let holds = |folder: &PathBuf| {
            files.iter().any(|file| file.starts_with(folder)) || self.record.starts_with(folder)
        };
        let (mut of_files, others): (Vec<PathBuf>, Vec<PathBuf>) =
            self.read().into_iter().partition(holds);
        // The record may be in one of the folders.
        self.save(others.clone());
        // A folder is removed after those in it.
        of_files.sort_by_key(|folder| std::cmp::Reverse(folder.components().count()));
        // Fails if something is in the folder, for instance the file of another client.
        of_files.retain(|folder| std::fs::remove_dir(folder).is_err());
        self.save([of_files, others].concat());
    }

    fn read(&self) -> Vec<PathBuf> {
        let text = replace_file::read(&self.record).ok().flatten();
        text.and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    /// Writes the record. Where that fails, an empty folder stays after `--undo`.
    fn save(&self, mut folders: Vec<PathBuf>) {
        folders.retain(|folder| folder.to_str().is_some() && folder.is_dir());
        folders.sort();
        folders.dedup();
        let before = replace_file::read(&self.record).ok().flatten();
        let after = serde_json::to_string(&folders).ok();
        let after = after.filter(|_| !folders.is_empty());
        if before != after {
            let _ = replace_file::replace(&self.record, before.as_deref(), after.as_deref());
        }
    }
}

/// Folders above `file` that do not exist.
fn missing_folders(file: &Path) -> Vec<PathBuf> {
    let folders = file.ancestors().skip(1);
    folders
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .map(Path::to_owned)
        .collect()
}

fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}
