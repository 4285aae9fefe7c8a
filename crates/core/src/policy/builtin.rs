//! Built-in rules: a short list of what cannot be undone. Each can be replaced by a rule of the same name, or removed
//! by `without` in the configuration.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use super::builtin_remote::REMOTE;
use super::rule::{Action, Rule, Source};
use super::targets::Targets;

/// One or more rules with the same name and reason. The order of entries does not matter, and several may have one name.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) action: Action,
    /// Words of each rule, separated by spaces: `*` is one word, `...` any number of words. The program `sql` stands for
    /// statements that a database client is given.
    pub(super) run: &'static [&'static str],
    pub(super) with: &'static [&'static str],
    /// Options, names for the first operand, pairs of words and variables with which the command changes nothing.
    pub(super) unless: &'static [&'static str],
    pub(super) targets: Option<Targets>,
    pub(super) why: &'static str,
    pub(super) instead: Option<&'static str>,
}

pub(super) const ASK: Entry = Entry {
    name: "",
    action: Action::Ask,
    run: &[],
    with: &[],
    unless: HELP,
    targets: None,
    why: "",
    instead: None,
};

/// Options with which programs only print how they are used.
const HELP: &[&str] = &["--help"];

/// Options that let programs say what they would do.
pub(super) const TRIAL: &[&str] = &[
    "--help",
    "--dry-run",
    "--dry-run=true",
    "--dry-run=client",
    "--dry-run=server",
];

/// Options of git with which it says what it would do.
pub(super) const GIT_TRIAL: &[&str] = &["--help", "--dry-run", "-n"];

const RECURSIVE: &[&str] = &["-r", "-R", "--recursive"];

/// Programs that run a command as another user.
const AS_OTHER_USER: &[&str] = &[
    "sudo", "su", "doas", "pkexec", "run0", "sudoedit", "runuser", "gosu", "su-exec",
];

/// Returns whether the words behind the first operand of a program are for another program.
pub(super) fn runs_others(program: &str) -> bool {
    AS_OTHER_USER.contains(&program) || program == "machinectl"
}

const RULES: &[Entry] = &[
    Entry {
        name: "delete-root",
        action: Action::Deny,
        run: &["rm"],
        with: RECURSIVE,
        unless: &[],
        targets: Some(Targets::Roots),
        why: "deletes the root directory, the home directory or the whole workspace",
        instead: Some("delete the files by name"),
    },
    Entry {
        name: "delete-workspace",
        run: &["rm"],
        with: RECURSIVE,
        unless: &[],
        targets: Some(Targets::AboveWorkspace),
        why: "deletes everything in the workspace, its repository, or a directory above it",
        ..ASK
    },
    Entry {
        name: "delete-system",
        run: &["rm"],
        with: RECURSIVE,
        unless: &[],
        targets: Some(Targets::System),
        why: "deletes a directory of the system",
        ..ASK
    },
    Entry {
        name: "delete-system",
        run: &["rm"],
        with: RECURSIVE,
        unless: &[],
        targets: Some(Targets::Parts),
        why: "deletes a part of the system, or keys, settings or documents of the user",
        ..ASK
    },
    Entry {
        name: "change-system",
        run: &["chmod", "chown", "chgrp"],
        with: &["-R", "--recursive"],
        targets: Some(Targets::System),
        why: "changes the owner or mode of everything in the home directory or a directory of the system",
        ..ASK
    },
    Entry {
        name: "change-system",
        run: &["chmod", "chown", "chgrp"],
        with: &["-R", "--recursive"],
        targets: Some(Targets::Above),
        why: "changes the owner or mode of everything in a directory above the workspace",
        ..ASK
    },
    Entry {
        name: "move-workspace",
        run: &["mv"],
        targets: Some(Targets::Moved),
        why: "moves the workspace, the home directory or a directory above them to another place",
        ..ASK
    },
    Entry {
        name: "disk",
        run: &[
            "mkfs*",
            "mke2fs",
            "mkdosfs",
            "mkswap",
            "wipefs",
            "shred",
            "truncate",
            "blkdiscard",
            "parted ... mklabel",
            "parted ... mktable",
            "parted ... mkpart",
            "parted ... resizepart",
            "parted ... rm",
            "sgdisk --clear",
            "sgdisk --delete",
            "sgdisk --new",
            "sgdisk --zap",
            "sgdisk --zap-all",
            "sgdisk -Z",
            "sgdisk -d",
            "sgdisk -n",
            "sgdisk -o",
            "sgdisk -z",
        ],
        with: &["/dev/*"],
        why: "overwrites a disk",
        ..ASK
    },
    Entry {
        name: "disk",
        run: &["fdisk", "sfdisk", "cfdisk", "gdisk"],
        with: &["/dev/*"],
        unless: &[
            "--help",
            "--version",
            "-l",
            "--list",
            "-d",
            "--dump",
            "-J",
            "--json",
        ],
        why: "changes the partitions of a disk",
        ..ASK
    },
    Entry {
        name: "disk",
        run: &["dd"],
        with: &[
            "of=/dev/sd*",
            "of=/dev/hd*",
            "of=/dev/vd*",
            "of=/dev/xvd*",
            "of=/dev/nvme*",
            "of=/dev/mmcblk*",
            "of=/dev/disk*",
            "of=/dev/mapper/*",
            "of=/dev/dm-*",
            "of=/dev/md*",
            "of=/dev/loop*",
            "of=/dev/zvol/*",
        ],
        why: "overwrites a disk",
        ..ASK
    },
    Entry {
        name: "power",
        run: &[
            "shutdown",
            "reboot",
            "poweroff",
            "halt",
            "systemctl poweroff",
            "systemctl reboot",
            "systemctl halt",
        ],
        why: "stops the machine",
        ..ASK
    },
    Entry {
        name: "force-push",
        run: &["git push"],
        with: &["--force", "-f", "+*", "--mirror", "--prune"],
        unless: GIT_TRIAL,
        why: "rewrites commits that others have",
        instead: Some("git push --force-with-lease"),
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &["git reset"],
        with: &["--hard"],
        why: "discards changes that are not committed",
        instead: Some("git reset --keep, which stops if changes would be lost, or git stash"),
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &["git clean"],
        with: &[
            "-f",
            "--force",
            "clean.requireForce=*",
            "clean.requireforce=*",
        ],
        unless: GIT_TRIAL,
        targets: Some(Targets::Untracked),
        why: "deletes files that are not in the repository",
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &[
            "git checkout .",
            "git checkout * .",
            "git checkout :/",
            "git checkout * :/",
            "git restore .",
            "git restore :/",
        ],
        unless: &["--help", "--staged", "-S"],
        why: "discards changes that are not committed",
        instead: Some("git stash"),
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &["git restore .", "git restore :/"],
        with: &["--worktree", "-W"],
        why: "discards changes that are not committed",
        instead: Some("git stash"),
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &[
            "git checkout",
            "git switch",
            "git worktree remove",
            "git rm .",
        ],
        with: &["--force", "-f", "--discard-changes"],
        unless: &["--help", "--dry-run", "-n", "--cached"],
        why: "discards changes that are not committed",
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &[
            "git filter-branch",
            "git filter-repo",
            "git reflog delete",
            "git reflog expire",
        ],
        unless: GIT_TRIAL,
        why: "deletes commits that cannot be restored",
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &["git gc", "git prune"],
        with: &["--prune=now", "--prune=all", "--expire=now", "--expire=all"],
        unless: GIT_TRIAL,
        why: "deletes commits that cannot be restored",
        ..ASK
    },
    Entry {
        name: "discard-work",
        run: &["git stash clear", "git stash drop"],
        why: "deletes changes that are stashed",
        ..ASK
    },
    Entry {
        name: "database",
        run: &[
            "sql drop",
            "sql truncate",
            "sql delete",
            "sql update",
            "sql alter table",
        ],
        // `--help` in a statement is a comment.
        unless: &[],
        why: "deletes data of a database",
        ..ASK
    },
    Entry {
        name: "database",
        run: &[
            "rails db:drop",
            "rails db:reset",
            "rake db:drop",
            "rake db:reset",
        ],
        unless: &["--help", "RAILS_ENV=test", "RACK_ENV=test"],
        why: "deletes data of a database",
        ..ASK
    },
    Entry {
        name: "database",
        run: &[
            "dropdb",
            "prisma migrate reset",
            "manage.py flush",
            "python* manage.py flush",
            "php artisan migrate:fresh",
            "php artisan migrate:reset",
            "php artisan db:wipe",
            "mysqladmin drop",
            "redis-cli FLUSHALL",
            "redis-cli FLUSHDB",
            "redis-cli flushall",
            "redis-cli flushdb",
        ],
        why: "deletes data of a database",
        ..ASK
    },
    Entry {
        name: "database",
        run: &["prisma db push", "mongosh", "mongo"],
        with: &["--force-reset", "--accept-data-loss", "*dropDatabase*"],
        why: "deletes data of a database",
        ..ASK
    },
    Entry {
        name: "cloud",
        run: &[
            "rclone delete",
            "rclone purge",
            "rclone sync",
            "gsutil rsync",
        ],
        unless: &["--help", "--dry-run", "-n"],
        why: "deletes files of the target",
        ..ASK
    },
    Entry {
        name: "crontab",
        run: &["crontab"],
        unless: &["--help", "-l", "-e", "-T", "-V"],
        why: "deletes or replaces all commands that the user has scheduled",
        ..ASK
    },
    Entry {
        name: "volumes",
        run: &[
            "docker volume rm",
            "docker volume prune",
            "podman volume rm",
            "podman volume prune",
        ],
        why: "deletes volumes with the data in them",
        ..ASK
    },
    Entry {
        name: "volumes",
        run: &[
            "docker system prune",
            "docker compose down",
            "docker-compose down",
            "podman system prune",
            "podman compose down",
        ],
        with: &["--volumes", "-v"],
        why: "deletes volumes with the data in them",
        ..ASK
    },
    Entry {
        name: "root-user",
        run: AS_OTHER_USER,
        unless: &["--help", "--version"],
        why: "runs a command as another user",
        ..ASK
    },
    Entry {
        name: "root-user",
        run: &["machinectl shell"],
        why: "runs a command as another user",
        ..ASK
    },
];

/// All built-in rules.
pub fn builtin_rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for entry in RULES.iter().chain(REMOTE) {
        for run in entry.run {
            let words: Vec<&str> = run.split(' ').collect();
            rules.push(Rule {
                with: entry.with.iter().map(|&word| word.to_owned()).collect(),
                unless: entry.unless.iter().map(|&word| word.to_owned()).collect(),
                targets: entry.targets,
                why: entry.why.to_owned(),
                instead: entry.instead.map(ToOwned::to_owned),
                source: Source::Builtin,
                ..Rule::new(entry.name, entry.action, &words)
            });
        }
    }
    rules
}
