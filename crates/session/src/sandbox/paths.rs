//! Default paths of a sandbox: hidden, protected, layered. Lists only; [`super::build`] applies them.

use std::path::{Component, Path, PathBuf};

/// Name of the folder with the layers of all agents, in the state of abide.
pub const OWN_LAYERS: &str = "layers";

/// Folders that are layered in every sandbox, besides the home folder.
pub const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Files and folders of the system that look empty.
const HIDDEN_OF_SYSTEM: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/var/spool/cron",
    "/var/spool/at",
    "/var/mail",
];

/// Files and folders of the system that only root can read, and that look empty if it is root who runs the command.
const HIDDEN_OF_ROOT: &[&str] = &[
    "/etc/NetworkManager/system-connections",
    "/etc/credstore",
    "/etc/credstore.encrypted",
    "/etc/kubernetes",
    "/etc/krb5.keytab",
    "/etc/letsencrypt",
    "/etc/openvpn",
    "/etc/pki/tls/private",
    "/etc/postfix/sasl_passwd",
    "/etc/ppp",
    "/etc/rancher",
    "/etc/security/opasswd",
    "/etc/sssd",
    "/etc/wireguard",
    "/var/backups",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/lib/systemd/credential.secret",
    "/var/log/journal",
];

/// Folder of the keys by which this machine is known, and the begin of their names.
const HOST_KEYS: (&str, &str) = ("/etc/ssh", "ssh_host_");

/// Paths of the system that look empty to this user. What only root can read is hidden from root, which owns it and so
/// needs no capability for that.
pub fn hidden_of_system(workspace: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = HIDDEN_OF_SYSTEM.iter().map(PathBuf::from).collect();
    if rustix::process::getuid().is_root() {
        let of_root = HIDDEN_OF_ROOT.iter().map(PathBuf::from);
        all.extend(of_root.filter(|path| !workspace.starts_with(path)));
        let (folder, begin) = HOST_KEYS;
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(begin) && !name.ends_with(".pub") {
                all.push(entry.path());
            }
        }
    }
    all
}

/// Files and folders below `/sys` that look empty.
pub const HIDDEN_OF_SYS: [&str; 5] = [
    "/sys/firmware",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/kernel/security",
    "/sys/fs/bpf",
];

/// Folders below `/proc` that are read-only: root owns them, whatever its capabilities.
pub const READ_ONLY_OF_PROC: [&str; 6] = [
    "/proc/sys",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/acpi",
    "/proc/scsi",
];

/// Files below `/proc` that look empty.
pub const HIDDEN_OF_PROC: [&str; 8] = [
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kallsyms",
    "/proc/kmsg",
    "/proc/timer_list",
    "/proc/sched_debug",
];

/// Paths that cannot be granted: processes would see those outside, and the settings of the kernel are not of one sandbox.
pub const UNWRITABLE: [&str; 2] = ["/proc", "/sys"];

/// Files that must not be writable, also for root.
pub const NEVER_WRITABLE: [&str; 3] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/sys/kernel/uevent_helper",
];

/// Folders that a sandbox has of its own: it does not see those of the machine.
pub const OWN_FOLDERS: [&str; 4] = ["/proc", "/dev", "/run", "/var/run"];

/// Devices that a sandbox has.
pub const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/run` that programs need and that hold no sockets.
pub const NEEDED_OF_RUN: [&str; 6] = [
    "/run/systemd/resolve/stub-resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "/run/resolvconf/resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/opengl-driver",
];

/// Secrets in the home folder.
const SECRETS: &[&str] = &[
    ".gnupg",
    ".aws",
    ".azure",
    ".aliyun",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".config/doctl",
    ".config/openstack",
    ".config/sops",
    ".config/age",
    ".docker/config.json",
    ".docker/run",
    ".colima",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".vault-token",
    ".terraform.d",
    ".terraformrc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".pypirc",
    ".gem/credentials",
    ".m2/settings-security.xml",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".config/1Password",
    ".config/Bitwarden",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".local/share/fish/fish_history",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".boto",
    ".s3cfg",
    ".oci",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".databrickscfg",
    ".kaggle",
    ".snowflake",
    ".fly",
    ".railway",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/containers/auth.json",
    ".config/heroku",
    ".config/netlify",
    ".config/stripe",
    ".config/github-copilot",
    ".config/configstore",
    ".config/vivaldi",
    ".config/opera",
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    ".cache/huggingface/token",
    ".huggingface/token",
    ".local/share/opencode/auth.json",
    ".var/app",
    "snap/firefox",
    "snap/chromium",
    ".sqlite_history",
    ".rediscli_history",
    ".config/google-chrome-beta",
    ".config/google-chrome-unstable",
    ".librewolf",
    ".zen",
    ".waterfox",
    ".config/pypoetry/auth.toml",
    ".local/share/uv/credentials",
    ".pulumi",
    ".config/helm/registry",
    ".minikube",
    ".config/vercel",
    ".local/share/com.vercel.cli",
    ".config/.wrangler",
    ".wrangler",
    ".supabase",
    ".config/ngrok",
    ".ngrok2",
    ".cloudflared",
    ".config/hcloud",
    ".config/scw",
    ".config/argocd",
    ".talos",
    ".mc",
    ".sentryclirc",
    ".jfrog",
    ".local/share/atuin",
    ".zhistory",
    ".histfile",
    ".viminfo",
    ".local/state/bash/history",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".config/solana",
    ".config/Exodus",
    ".codex/history.jsonl",
    ".codex/sessions",
    ".claude/projects",
    ".claude/history.jsonl",
    ".qwen/oauth_creds.json",
    ".config/goose",
    ".config/linode-cli",
    ".config/rbw",
    ".local/share/rbw",
    ".authinfo",
    ".authinfo.gpg",
    ".msmtprc",
    ".mbsyncrc",
    ".argocd",
    ".bluemix",
    ".cf",
    ".circleci",
    ".config/Code/User/globalStorage",
    ".config/cloudflared",
    ".config/filezilla",
    ".config/msmtp",
    ".cursor/mcp.json",
    ".dbt/profiles.yml",
    ".irb_history",
    ".lesshst",
    ".local/share/remmina",
    ".putty",
    ".snowsql",
    ".tccli",
];

/// Files that are hidden only if they hold a secret, with lower-case words by which that is known: package managers and
/// build tools also keep plain settings in them.
const HIDDEN_WITH_TOKEN: &[(&str, &[&str])] = &[
    (".npmrc", &["_auth", "_password"]),
    (".yarnrc.yml", &["npmauth"]),
    (".yarnrc", &["_auth", "_password"]),
    (".config/pip/pip.conf", &["@"]),
    (".pip/pip.conf", &["@"]),
    (
        ".m2/settings.xml",
        &["<password>", "<passphrase>", "<privatekey>"],
    ),
    (
        ".gradle/gradle.properties",
        &["password", "token", "secret", "apikey"],
    ),
    (".nuget/NuGet/NuGet.Config", &["password", "apikeys"]),
    // Names of hosts, whose values are passwords.
    (
        ".bundle/config",
        &["__com:", "__org:", "__net:", "__io:", "__dev:"],
    ),
    (".config/uv/uv.toml", &["@"]),
    (".condarc", &["@", "/t/"]),
];

/// Files in a home folder that would be hidden if they held a secret.
pub fn may_hold_token(home: &Path) -> impl Iterator<Item = PathBuf> {
    HIDDEN_WITH_TOKEN.iter().map(|(name, _)| home.join(name))
}

/// Files in a home folder that hold a secret beside plain settings.
pub fn hidden_with_token(home: &Path) -> impl Iterator<Item = PathBuf> {
    let holding = HIDDEN_WITH_TOKEN
        .iter()
        .map(|(name, words)| (home.join(name), words));
    let holding = holding.filter(|(path, words)| {
        let text = std::fs::read(path).unwrap_or_default().to_ascii_lowercase();
        let text = String::from_utf8_lossy(&text);
        words.iter().any(|word| text.contains(word))
    });
    holding.map(|(path, _)| path)
}

/// Folder whose keys are hidden, and its files that stay readable.
pub const SSH: &str = ".ssh";

/// Files of [`SSH`] that stay readable.
pub const READABLE_OF_SSH: [&str; 3] = ["config", "known_hosts", "known_hosts2"];

/// Secrets in a home folder, except the keys of SSH.
pub fn secrets_in_home(home: &Path) -> Vec<PathBuf> {
    SECRETS.iter().map(|name| home.join(name)).collect()
}

/// Secrets in a home folder that are hidden in every sandbox.
pub fn hidden_in_home(home: &Path) -> Vec<PathBuf> {
    let mut all = secrets_in_home(home);
    all.push(home.join(SSH));
    all
}

/// Files and folders of a workspace that programs outside the sandbox run or obey by themselves.
pub const PROTECTED: &[&str] = &[
    ".gitmodules",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".envrc",
    ".husky",
    ".pre-commit-config.yaml",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".agents",
    ".mcp.json",
    ".github/workflows",
    ".gitlab-ci.yml",
    ".circleci",
    ".gitea/workflows",
    ".forgejo/workflows",
    ".zed",
    ".windsurf",
    ".opencode",
    ".aider.conf.yml",
    "lefthook.yml",
    ".lefthook.yml",
    ".hg/hgrc",
    ".jj/repo/config.toml",
];

/// Files and folders of a git directory that make git run programs, or look elsewhere for them.
pub const PROTECTED_OF_GIT: [&str; 5] = [
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "info/attributes",
];

/// Files and folders of a git directory that only its main working tree needs, and those that change which commits all
/// working trees see. A linked worktree writes none of them.
pub const PROTECTED_OF_MAIN_TREE: [&str; 15] = [
    "HEAD",
    "index",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "BISECT_RUN",
    "BISECT_START",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "info/grafts",
    "info/sparse-checkout",
    "objects/info/alternates",
    "shallow",
];

/// Files of a git directory of a linked worktree that make git look elsewhere for its configuration.
pub const PROTECTED_OF_WORKTREE: [&str; 3] = ["commondir", "gitdir", "config.worktree"];

/// Folders in a read-only home folder that are private instead, where layering is impossible.
pub const CACHES: [&str; 6] = [
    ".cache",
    ".npm",
    ".cargo/registry",
    ".local/state",
    ".gradle",
    "go/pkg",
];

/// Absolute path without `.` and `..`.
pub fn without_dots(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}
