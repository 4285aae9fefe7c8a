//! Checks of the machine: containment of sessions, resource limits, and the disk.

use std::path::Path;

use super::Finding;
use crate::cli::doctor::system;
use crate::cli::show;
use abide_core::SandboxedBy;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::{Config, Containment, Paths, SandboxConfig};
use abide_engine::peer::can_name_callers;
use abide_engine::sandbox::not_writable;
use abide_session::sandbox::{OWN_LAYERS, Probed, probe, stored_layers};
use rustix::process::{Resource, Rlimit, getrlimit};

/// Limits below which the check warns.
const OPEN_FILES: u64 = 1_024;
const PROCESSES: u64 = 512;
const WATCHES: u64 = 8_192;
const INSTANCES: u64 = 128;
/// Free disk space, in bytes: below the first the check warns, below the second it fails.
const DISK_LOW: u64 = 1 << 30;
const DISK_OUT: u64 = 64 << 20;
/// Size of the layers of all agents above which the check warns, in bytes.
const LAYERS_LARGE: u64 = 10 << 30;
/// Number of free inodes below which the check warns.
const FILES_LOW: u64 = 10_000;

pub fn check(paths: &Paths, config: &Config) -> Vec<Finding> {
    let mut findings = vec![
        containment(config.containment),
        sandbox(&config.sandbox),
        open_files(getrlimit(Resource::Nofile)),
        processes(),
        watches(),
    ];
    findings.push(folder(&paths.state));
    findings.extend(sockets(&paths.runtime));
    findings.extend(disk(&paths.state));
    findings.extend(future_files(paths));
    findings.extend(layers(&paths.state));
    findings.extend(callers(can_name_callers()));
    findings.extend(workspace(&config.sandbox));
    findings
}

/// Folder in which the check runs, if it is the workspace of a sandbox in which root could write nothing.
fn workspace(config: &SandboxConfig) -> Option<Finding> {
    let folder = std::env::current_dir().ok()?;
    let why = not_writable(&folder).filter(|_| config.is_used())?;
    let next = "run abide as the user to whom the folder belongs";
    Some(Finding::warning("workspace", why.to_string(), next))
}

/// Layers of sandboxes that take much room. The kernel has no limit for them.
fn layers(state: &Path) -> Option<Finding> {
    let all = stored_layers(&state.join(OWN_LAYERS)).unwrap_or_default();
    let bytes: u64 = all.iter().map(|layers| layers.bytes).sum();
    (bytes > LAYERS_LARGE).then(|| {
        Finding::warning(
            "layers",
            format!(
                "what agents wrote in sandboxes takes {}",
                show::bytes(bytes)
            ),
            "`abide sandbox layers` lists it, `abide sandbox layers --remove AGENT` removes it",
        )
    })
}

fn containment(wanted: Containment) -> Finding {
    let topic = "containment";
    let root = rustix::process::geteuid().is_root();
    let group = system::control_group();
    match (wanted, group) {
        (Containment::Subreaper, _) => Finding::warning(
            topic,
            "subreaper (configured)",
            "`containment = \"auto\"` uses a control group if there is one",
        ),
        (Containment::PidNamespace, _) if !root => Finding::trouble(
            topic,
            "`containment = \"pid_namespace\"` needs root, and this is not root: no command can be started",
            "set `containment = \"auto\"` in the configuration",
        ),
        (Containment::PidNamespace, _) => Finding::good(topic, "pid_namespace (configured)"),
        (Containment::Cgroup | Containment::Auto, Ok(base)) => {
            Finding::good(topic, format!("cgroup, below {}", base.display()))
        }
        (Containment::Cgroup, Err(why)) => Finding::trouble(
            topic,
            format!("`containment = \"cgroup\"`, but {why}: no command can be started"),
            "set `containment = \"auto\"`, or start abide where control groups are delegated",
        ),
        (Containment::Auto, Err(why)) => Finding::warning(
            topic,
            format!(
                "no control group, since {why}; the processes of a command are found through their parents (`subreaper`)"
            ),
            match Path::new("/run/systemd/system").exists() {
                true => {
                    "everything works; for control groups, start abide with systemd (`systemctl --user enable --now abide.service`)"
                }
                false => {
                    "everything works; abide uses a control group of the second version where it may make one"
                }
            },
        ),
    }
}

/// Builds throw-away sandboxes, because no setting of the machine says whether one would work.
fn sandbox(config: &SandboxConfig) -> Finding {
    let folder = std::env::temp_dir().join(format!("abide-probe-{}", std::process::id()));
    let probed = probe(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    match probed {
        Some(probed) => judge_sandbox(config, &probed),
        None => Finding::good("sandbox", "not tried"),
    }
}

/// Finding about the mechanisms that were tried.
fn judge_sandbox(config: &SandboxConfig, probed: &[Probed]) -> Finding {
    let topic = "sandbox";
    // The strongest one comes first.
    let used = probed.iter().find_map(said);
    let used = used.unwrap_or_else(|| "no mechanism works".to_owned());
    let failed: Vec<String> = probed
        .iter()
        .filter_map(|(by, made)| Some(format!("{}: {}", by.as_str(), made.as_ref().err()?)))
        .collect();
    let has = |wanted: SandboxedBy| {
        let mut all = probed.iter();
        all.any(|(by, made)| *by == wanted && made.is_ok())
    };
    let works = |says: String| match config.is_used() {
        true => Finding::good(topic, says),
        false => Finding::off(
            topic,
            format!("commands of agents run without a sandbox; it would work here: {says}"),
            "`abide setup CLIENT --sandbox workspace-write` switches it on for one client, `mode = \"workspace-write\"` in \
             `[sandbox]` of the configuration for all",
        ),
    };
    if has(SandboxedBy::Namespaces) {
        return works(used);
    }
    let says = format!("{used}. {}", failed.join("; "));
    let at_least: SandboxedBy = config.at_least.into();
    // Bubblewrap is needed only where namespaces do not work.
    if has(SandboxedBy::Bubblewrap) && SandboxedBy::Bubblewrap >= at_least {
        return works(says);
    }
    let is_landlock_accepted = at_least <= SandboxedBy::Landlock;
    let weaker = match (has(SandboxedBy::Landlock), config.uses_allowlist()) {
        (false, _) => "",
        (true, true) => {
            "; or accept less with `at_least = \"landlock\"` and `network = \"off\"` in `[sandbox]`, since an allowlist needs \
             namespaces"
        }
        (true, false) if is_landlock_accepted => {
            return Finding::warning(topic, says, sandbox_remedy());
        }
        (true, false) => "; or accept less with `at_least = \"landlock\"` in `[sandbox]`",
    };
    let remedy = format!("{}{weaker}", sandbox_remedy());
    match config.is_used() {
        true => Finding::trouble(topic, says, remedy),
        false => Finding::warning(topic, format!("off, and it would not work: {says}"), remedy),
    }
}

/// A mechanism that works, with its gaps.
fn said((by, made): &Probed) -> Option<String> {
    let gaps = made.as_ref().ok()?;
    let gaps: Vec<&str> = gaps.iter().map(|gap| gap.as_str()).collect();
    Some(match gaps.is_empty() {
        true => by.as_str().to_owned(),
        false => format!("{}, but {}", by.as_str(), gaps.join("; ")),
    })
}

/// Next step on a machine that does not allow namespaces.
fn sandbox_remedy() -> String {
    if system::number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        let program = std::env::current_exe().unwrap_or_default();
        return format!(
            "allow namespaces for this program: echo 'abi <abi/4.0>, profile abide {} flags=(unconfined) {{ userns, }}' | sudo \
             tee /etc/apparmor.d/abide && sudo apparmor_parser -r /etc/apparmor.d/abide; or install bubblewrap and its profile \
             `bwrap-userns-restrict`",
            program.display()
        );
    }
    if system::number("/proc/sys/user/max_user_namespaces") == Some(0) {
        return "sudo sysctl user.max_user_namespaces=15000".into();
    }
    "allow user namespaces (in a container: a seccomp profile that permits unshare)".into()
}

/// Finding for a kernel that does not name the process at the other end of a unix socket.
fn callers(are_named: bool) -> Option<Finding> {
    (!are_named).then(|| {
        Finding::warning(
            "callers",
            "this kernel does not say which process calls the daemon, so every caller counts as a command of an agent: \
             `abide answer` and `abide open` are refused",
            "load the kernel module `unix_diag`: sudo modprobe unix_diag; or use Linux 6.5 or later",
        )
    })
}

fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "no limit".into(), |limit| limit.to_string())
}

fn open_files(limit: Rlimit) -> Finding {
    let sentence = format!("{} open files per process", limit_text(limit.current));
    match limit.current {
        Some(now) if now < OPEN_FILES => Finding::warning(
            "files",
            format!("only {sentence}"),
            format!(
                "run `ulimit -n {}` before the daemon starts",
                limit.maximum.unwrap_or(65_536)
            ),
        ),
        _ => Finding::good("files", sentence),
    }
}

fn processes() -> Finding {
    let user = getrlimit(Resource::Nproc).current;
    let group = system::group_processes();
    let left = group.map(|(most, now)| most.saturating_sub(now));
    let sentence = match group {
        Some((most, now)) => format!(
            "{now} of {most} in this control group, {} for the user",
            limit_text(user)
        ),
        None => format!("{} for the user", limit_text(user)),
    };
    let tight = left.into_iter().chain(user).any(|most| most < PROCESSES);
    if tight {
        return Finding::warning(
            "processes",
            format!("few left: {sentence}"),
            "each session needs one more process than its command; raise `ulimit -u` or TasksMax of the unit",
        );
    }
    Finding::good("processes", sentence)
}

fn watches() -> Finding {
    let watches = system::number("/proc/sys/fs/inotify/max_user_watches");
    let instances = system::number("/proc/sys/fs/inotify/max_user_instances");
    let sentence = format!(
        "inotify watches at most {} files with {} watchers",
        limit_text(watches),
        limit_text(instances)
    );
    let tight = watches.is_some_and(|most| most < WATCHES)
        || instances.is_some_and(|most| most < INSTANCES);
    if tight {
        return Finding::warning(
            "watches",
            format!("low limit: {sentence}"),
            format!(
                "sysctl fs.inotify.max_user_watches={WATCHES} fs.inotify.max_user_instances={INSTANCES}"
            ),
        );
    }
    Finding::good("watches", sentence)
}

fn folder(state: &Path) -> Finding {
    let topic = "state";
    let path = state.display();
    let access = system::access(state);
    let elsewhere = "choose another directory with ABIDE_DIR";
    if access.is_some_and(|access| !access.folder) {
        let sentence = format!(
            "{path} is not a directory (symbolic links are not accepted), so the daemon cannot start"
        );
        return Finding::trouble(topic, sentence, elsewhere);
    }
    if let Err((place, fault)) = system::writable(state) {
        let place = place.display();
        let sentence =
            format!("cannot create files in {place}, so the daemon cannot start: {fault}");
        return Finding::trouble(topic, sentence, elsewhere);
    }
    let Some(access) = access else {
        let sentence = format!("{path}; the daemon creates it when it starts");
        return Finding::good(topic, sentence);
    };
    if !access.ours {
        Finding::trouble(topic, format!("{path} belongs to another user"), elsewhere)
    } else if access.mode & 0o022 != 0 {
        Finding::trouble(
            topic,
            format!(
                "{path} is writable for other users (mode {:o}), so the daemon cannot start",
                access.mode
            ),
            format!("chmod 700 {path}"),
        )
    } else if access.mode & 0o077 != 0 {
        Finding::warning(
            topic,
            format!(
                "{path} is readable for other users (mode {:o})",
                access.mode
            ),
            format!("chmod 700 {path}; the next start of the daemon does it too"),
        )
    } else {
        Finding::good(topic, format!("{path}, private"))
    }
}

/// Finding for a socket directory that other users can access: the daemon refuses to start with it.
fn sockets(runtime: &Path) -> Option<Finding> {
    let access = system::access(runtime)?;
    let path = runtime.display();
    (access.mode & 0o077 != 0).then(|| {
        Finding::trouble(
            "sockets",
            format!("{path} is accessible for other users, so the daemon cannot start"),
            format!("chmod 700 {path}"),
        )
    })
}

fn disk(state: &Path) -> Option<Finding> {
    // If the directory does not exist yet, its nearest existing ancestor is checked.
    let there = state.ancestors().find(|path| path.exists())?;
    let disk = system::disk(there).ok()?;
    let free = show::bytes(disk.free);
    Some(if let Some(network) = disk.network {
        Finding::warning(
            "disk",
            format!("{free} free, but it is on a network file system ({network})"),
            "set ABIDE_DIR to a local directory: sockets and locks are unreliable on network file systems",
        )
    } else if disk.free < DISK_OUT {
        Finding::trouble(
            "disk",
            format!("only {free} free"),
            "free some space: output that cannot be written is lost",
        )
    } else if disk.free < DISK_LOW || disk.files.is_some_and(|files| files < FILES_LOW) {
        Finding::warning(
            "disk",
            match disk.files {
                Some(files) => format!("only {free} free, and room for {files} more files"),
                None => format!("only {free} free"),
            },
            "free some space, or lower `keep_bytes` and `keep_days` in the configuration",
        )
    } else {
        Finding::good("disk", format!("{free} free"))
    })
}

/// Finding for files with a modification time in the future: the wall clock was set back.
fn future_files(paths: &Paths) -> Option<Finding> {
    let now = SystemClock.now().wall.0;
    let written = [paths.database(), paths.daemon_log()];
    let newest = written
        .iter()
        .filter_map(|path| system::written_at(path))
        .max()?;
    let ahead = newest.checked_sub(now).filter(|ahead| *ahead > 60_000)?;
    let span = show::short(abide_core::Millis(ahead));
    Some(Finding::warning(
        "calendar",
        format!("some files are dated {span} in the future: the system clock was set back"),
        "check the date; timers complete by the system clock",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use abide_session::sandbox::NotBuilt;

    fn with(mechanisms: [bool; 3]) -> Vec<Probed> {
        let ladder = [
            SandboxedBy::Namespaces,
            SandboxedBy::Bubblewrap,
            SandboxedBy::Landlock,
        ];
        let made = |works| match works {
            true => Ok(Vec::new()),
            false => Err(NotBuilt::unavailable("not here")),
        };
        ladder.into_iter().zip(mechanisms.map(made)).collect()
    }

    /// Level of the finding, and its advice about Landlock.
    fn judged(config: &str, mechanisms: [bool; 3]) -> (Severity, Option<String>) {
        let config = format!("[sandbox]\nmode = \"read-only\"\n{config}");
        let config: Config = toml::from_str(&config).unwrap();
        let finding = judge_sandbox(&config.sandbox, &with(mechanisms));
        let advice = finding.next.unwrap_or_default();
        let at = advice.find("or accept less");
        (finding.level, at.map(|at| advice[at..].to_owned()))
    }

    #[test]
    fn sandbox_that_is_not_configured_is_off_with_the_way_to_switch_it_on() {
        let finding = judge_sandbox(&SandboxConfig::default(), &with([true; 3]));
        assert_eq!(finding.level, Severity::Off);
        assert!(
            finding.says.contains("without a sandbox"),
            "{}",
            finding.says
        );
        let next = finding.next.unwrap_or_default();
        assert!(next.contains("--sandbox workspace-write"), "{next}");
        assert_eq!(judged("", [true; 3]).0, Severity::Ok);
    }

    #[test]
    fn landlock_alone_is_advised_only_where_it_works() {
        let plain = "or accept less with `at_least = \"landlock\"` in `[sandbox]`".to_owned();
        let only_landlock = [false, false, true];
        assert_eq!(judged("", only_landlock), (Severity::Trouble, Some(plain)));
        assert_eq!(judged("", [false; 3]), (Severity::Trouble, None));
        let (level, advice) = judged("network = \"allowlist\"", only_landlock);
        assert_eq!(level, Severity::Trouble);
        let advice = advice.unwrap();
        assert!(
            advice.contains("and `network = \"off\"` in `[sandbox]`"),
            "{advice}"
        );
    }

    #[test]
    fn accepted_landlock_is_a_warning_without_advice_to_accept_it() {
        let accepted = "at_least = \"landlock\"";
        assert_eq!(
            judged(accepted, [false, false, true]),
            (Severity::Warning, None)
        );
        assert_eq!(judged(accepted, [false; 3]), (Severity::Trouble, None));
        assert_eq!(judged("", [false, true, true]), (Severity::Ok, None));
        let strict = "at_least = \"namespaces\"";
        assert_eq!(judged(strict, [false, true, false]).0, Severity::Trouble);
    }

    #[test]
    fn callers_that_the_kernel_does_not_name_are_a_warning() {
        assert_eq!(callers(true), None);
        let finding = callers(false).unwrap();
        assert_eq!(finding.level, Severity::Warning);
        assert!(finding.next.unwrap().contains("modprobe unix_diag"));
    }

    #[test]
    fn low_open_file_limit_is_a_warning() {
        let limit = |current| Rlimit {
            current,
            maximum: Some(4_096),
        };
        assert_eq!(open_files(limit(Some(256))).level, Severity::Warning);
        assert_eq!(open_files(limit(Some(4_096))).level, Severity::Ok);
        assert_eq!(open_files(limit(None)).level, Severity::Ok);
    }
}
