//! Refusals of a sandbox as text for a result, from the record that the keeper has written.

use std::path::Path;

use abide_output::printable::one_line;
use abide_session::sandbox::{RefusalEntry, RefusalKind, RefusalRecord};
use serde_json::{Map, Value};

/// Limit on folders that the hint about `needs` names.
const FOLDER_LIMIT: usize = 5;

/// Way to change a protected path. A setting would open it to all commands.
const ONCE_OUTSIDE: &str = "To change a protected path, run that command outside the sandbox.";
/// Ways to do what is refused in every sandbox, or without a network of the machine.
const CALL_OUTSIDE: &str = "A refused system call works outside the sandbox only.";
const UDP_SETTING: &str = "To permit UDP, set in [sandbox] of config.toml: network = \"on\"";
const ASK_OUTSIDE: &str = "If nothing else helps, ask to run it outside the sandbox: call again with needs={\"sandbox\":\"off\"} and a justification \
     (one sentence for the person).";
/// Warning about commands such as `git checkout`, which succeed without the file.
const DIFFERS: &str =
    "If git attempted it, the working tree now differs from the branch there: do not commit it.";

/// Reader of the text, who can get more permission in a different way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalReader {
    /// A model, which asks a person.
    Model,
    /// A person, who changes the settings.
    Person,
}

/// Kinds of refusals, in the order in which they are listed.
const REFUSALS: [RefusalKind; 9] = [
    RefusalKind::Write,
    RefusalKind::Remove,
    RefusalKind::Protected,
    RefusalKind::Make,
    RefusalKind::Name,
    RefusalKind::Unreachable,
    RefusalKind::Address,
    RefusalKind::Udp,
    RefusalKind::Call,
];

/// Line of a refusal. `is_off`: the sandbox has no network.
fn refused_line(entry: &RefusalEntry, is_off: bool) -> String {
    let text = one_line(&entry.text);
    let said = match entry.kind {
        RefusalKind::Write => format!("  write  {text}"),
        RefusalKind::Remove => format!("  remove {text}"),
        RefusalKind::Protected => format!("  write  {text}  it is protected"),
        RefusalKind::Make => {
            format!("  make   {text}  other programs run or obey what has this name")
        }
        RefusalKind::Address if !is_off => {
            format!("  address {text}  addresses cannot be reached directly; use a host name")
        }
        RefusalKind::Address if text.ends_with(":53") => {
            "  name   look-up of a host name  the network is off".to_owned()
        }
        RefusalKind::Address => format!("  address {text}  the network is off"),
        RefusalKind::Udp => format!("  udp    {text}  UDP cannot leave the sandbox; use TCP"),
        RefusalKind::Call => format!("  call   {text}"),
        _ => {
            let (name, why) = text.split_once(' ').unwrap_or((&text, "not allowed"));
            format!("  name   {name}  {why}")
        }
    };
    match entry.times {
        1 => said,
        times => format!("{said} ({times} times)"),
    }
}

/// Texts of the entries of a kind, as they are.
fn texts(record: &RefusalRecord, kind: RefusalKind) -> Vec<String> {
    let entries = record.of_kind(kind);
    entries.map(|entry| entry.text.clone()).collect()
}

/// Texts of the entries of a kind, each in one line.
fn lines(record: &RefusalRecord, kind: RefusalKind) -> Vec<String> {
    let entries = record.of_kind(kind);
    entries.map(|entry| one_line(&entry.text)).collect()
}

/// List of what the sandbox has refused, and how to get more. Empty: it has refused nothing that is listed.
fn refusal_list(record: &RefusalRecord, reader: RefusalReader) -> Vec<String> {
    let listed: Vec<&RefusalEntry> = REFUSALS
        .iter()
        .flat_map(|kind| record.of_kind(*kind))
        .collect();
    if listed.is_empty() && record.count == 0 {
        return Vec::new();
    }
    let RefusalRecord { mode, network, .. } = record;
    let things = match record.count {
        1 => "1 thing was".to_owned(),
        count => format!("{count} things were"),
    };
    let mut said = vec![format!(
        "SANDBOX: {things} refused ({mode}, network {network})"
    )];
    let is_off = network == "off";
    said.extend(listed.iter().map(|entry| refused_line(entry, is_off)));
    let times: u64 = listed.iter().map(|entry| entry.times).sum();
    let more = record.count.saturating_sub(times);
    said.extend((more > 0).then(|| format!("  … and {more} more")));
    let protected = texts(record, RefusalKind::Protected);
    let makes = texts(record, RefusalKind::Make);
    let has_address = record.of_kind(RefusalKind::Address).next().is_some();
    let mut names = texts(record, RefusalKind::Name);
    names.extend((is_off && has_address).then(|| "HOST".to_owned()));
    let mut writes = texts(record, RefusalKind::Write);
    let removed = texts(record, RefusalKind::Remove);
    let folder = |path: &String| Some(Path::new(path).parent()?.to_str()?.to_owned());
    writes.extend(removed.iter().filter_map(folder));
    let needs = Needs::of(&writes, &protected, &makes, names.iter());
    match reader {
        RefusalReader::Model => said.extend(needs.as_json().map(|needs| {
            format!(
                "To ask for more, call again with needs={needs} and a justification (one sentence for the person)."
            )
        })),
        RefusalReader::Person => {
            said.extend(needs.as_settings(is_off));
            if !needs.protected.is_empty() {
                said.push(ONCE_OUTSIDE.into());
            }
        }
    }
    said.extend((needs.left_out > 0).then(|| {
        let left_out = needs.left_out;
        format!("That leaves out {left_out} of the paths; ask for them afterwards.")
    }));
    let has = |kind| record.of_kind(kind).next().is_some();
    let (has_udp, has_call) = (has(RefusalKind::Udp), has(RefusalKind::Call));
    match reader {
        RefusalReader::Model if has_udp || has_call => said.push(ASK_OUTSIDE.into()),
        RefusalReader::Model => {}
        RefusalReader::Person => {
            said.extend(has_udp.then(|| UDP_SETTING.into()));
            said.extend(has_call.then(|| CALL_OUTSIDE.into()));
        }
    }
    let mut kept = protected.iter().chain(&makes);
    if kept.any(|path| is_of_working_tree(path)) {
        said.push(DIFFERS.into());
    }
    said
}

/// Refusals in a record, and names that the command has made and other programs obey.
pub(super) fn refused_text(record: &RefusalRecord, reader: RefusalReader) -> Option<String> {
    let of_kind = |kind| lines(record, kind);
    let mut said = refusal_list(record, reader);
    said.extend(
        of_kind(RefusalKind::Failed)
            .iter()
            .map(|line| format!("SANDBOX: network: {line}")),
    );
    let planted = of_kind(RefusalKind::Planted);
    if !planted.is_empty() {
        said.push(format!(
            "SANDBOX: planted, other programs may run or obey it: {}",
            planted.join(", ")
        ));
    }
    if let Some(layers) = of_kind(RefusalKind::Full).first() {
        said.push(format!(
            "SANDBOX: the disk is full; what the command wrote to the home and temporary folders goes to {layers}. A person \
             can make room: `abide sandbox layers`."
        ));
    }
    if let Some((bytes, limit)) = of_kind(RefusalKind::Limit)
        .first()
        .and_then(|line| line.split_once(' '))
    {
        said.push(format!(
            "SANDBOX: the command was ended: what its agent has in home and temporary folders takes {bytes} bytes, more than \
             `sandbox.layer_bytes`, {limit}. A person can make room: `abide sandbox layers`."
        ));
    }
    if let Some(path) = of_kind(RefusalKind::Removed).first() {
        said.push(format!(
            "SANDBOX: the command was ended and {path} removed: it changes where git looks for its configuration and hooks."
        ));
    }
    (!said.is_empty()).then(|| said.join("\n"))
}

/// True for a path that a repository may have as a file, and not only in its git directory.
fn is_of_working_tree(path: &str) -> bool {
    !Path::new(path).iter().any(|part| part == ".git")
}

/// Paths that exist, for those that were refused: what does not exist is made in the nearest folder that does. The root
/// folder is never granted.
fn existing(refused: &[String]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for path in refused {
        let there = Path::new(path).ancestors().find(|path| path.exists());
        let there = there.and_then(Path::to_str).filter(|path| *path != "/");
        found.extend(there.filter(|path| !found.contains(path)));
    }
    found
}

/// Cuts a list of paths. Returns how many were left out.
fn cut(paths: &mut Vec<&str>) -> usize {
    let left_out = paths.len().saturating_sub(FOLDER_LIMIT);
    paths.truncate(FOLDER_LIMIT);
    left_out
}

/// Permissions that would have helped.
struct Needs<'a> {
    write: Vec<&'a str>,
    protected: Vec<&'a str>,
    network: Vec<&'a str>,
    /// Number of paths that are not named.
    left_out: usize,
}

impl<'a> Needs<'a> {
    /// Permissions for refused writes, protected paths, protected names that were not made, and hosts.
    fn of(
        writes: &'a [String],
        protected: &'a [String],
        makes: &'a [String],
        names: impl Iterator<Item = &'a String>,
    ) -> Self {
        let mut network: Vec<&str> = names
            .filter_map(|line| line.split(' ').next())
            .map(|name| name.strip_suffix(":443").unwrap_or(name))
            .collect();
        network.dedup();
        let mut protected = existing(protected);
        protected.extend(makes.iter().map(String::as_str));
        let mut write = existing(writes);
        Needs {
            left_out: cut(&mut write) + cut(&mut protected),
            write,
            protected,
            network,
        }
    }

    /// Value of the argument `needs`. `None`: no permission would help.
    fn as_json(&self) -> Option<Value> {
        let write = [&*self.write, &*self.protected].concat();
        let mut needs = Map::new();
        for (name, values) in [("write", &write), ("network", &self.network)] {
            if !values.is_empty() {
                needs.insert(name.into(), values.as_slice().into());
            }
        }
        (!needs.is_empty()).then_some(Value::Object(needs))
    }

    /// Sentence about the settings of the sandbox. `None`: none would help.
    fn as_settings(&self, is_off: bool) -> Option<String> {
        let list = |name: &str, values: &[&str]| {
            (!values.is_empty()).then(|| format!("{name} = {}", Value::from(values)))
        };
        let network = match is_off {
            true if self.network.is_empty() => None,
            true => Some("network = \"allowlist\"".to_owned()),
            false => list("allow", &self.network),
        };
        let settings = list("write", &self.write).into_iter().chain(network);
        let settings: Vec<String> = settings.collect();
        (!settings.is_empty()).then(|| {
            format!(
                "To permit it, set in [sandbox] of config.toml: {}",
                settings.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::RefusalReader::{Model, Person};
    use super::*;

    fn text_of(record: &str, reader: RefusalReader) -> Option<String> {
        refused_text(&RefusalRecord::parse(record)?, reader)
    }

    #[test]
    fn refusals_are_counted_and_listed_with_how_to_ask_for_more() {
        let record = "workspace-write off 2\nwrite 1 /etc/x\nwrite 1 /opt/y\nplanted 1 .vscode\n";
        let expected = "SANDBOX: 2 things were refused (workspace-write, network off)\n  write  /etc/x\n  write  /opt/y\n\
                        To ask for more, call again with needs={\"write\":[\"/etc\",\"/opt\"]} and a justification (one \
                        sentence for the person).\nSANDBOX: planted, other programs may run or obey it: .vscode";
        assert_eq!(text_of(record, Model).as_deref(), Some(expected));
        let made = text_of("workspace-write off 1\nmake 1 /w/.vscode\n", Model).unwrap();
        assert!(
            made.contains("  make   /w/.vscode  other") && made.contains("[\"/w/.vscode\"]"),
            "{made}"
        );
        let full = text_of("workspace-write off 0\nfull 1 /state/layers\n", Model).unwrap();
        assert!(full.starts_with("SANDBOX: the disk is full; "), "{full}");
        let limit = text_of("workspace-write off 0\nlimit 1 20 10\n", Model).unwrap();
        assert!(
            limit.contains("takes 20 bytes") && limit.contains("`sandbox.layer_bytes`, 10"),
            "{limit}"
        );
        let removed = text_of(
            "workspace-write off 0\nremoved 1 /w/.git/commondir\n",
            Model,
        )
        .unwrap();
        assert!(
            removed.contains("ended and /w/.git/commondir removed"),
            "{removed}"
        );
        let deep = text_of(
            "read-only off 2\nwrite 1 /etc/new/deep/x\nwrite 1 /new\n",
            Model,
        )
        .unwrap();
        assert!(deep.contains("needs={\"write\":[\"/etc\"]}"), "{deep}");
        assert_eq!(text_of("read-only on 0\n", Model), None);
    }

    #[test]
    fn refused_names_are_listed_with_their_reason_and_addresses_without_a_way_to_ask() {
        let record = "workspace-write allowlist 4\nname 2 evil.example:443 the question was answered \"no\"\n\
                      name 1 other.example:80 nobody could be asked\naddress 1 1.1.1.1:53\n\
                      failed 1 slow.example:443 cannot connect: timed out\n";
        let expected = "SANDBOX: 4 things were refused (workspace-write, network allowlist)\n  \
                        name   evil.example:443  the question was answered \"no\" (2 times)\n  \
                        name   other.example:80  nobody could be asked\n  \
                        address 1.1.1.1:53  addresses cannot be reached directly; use a host name\n\
                        To ask for more, call again with needs={\"network\":[\"evil.example\",\"other.example:80\"]} and a \
                        justification (one sentence for the person).\n\
                        SANDBOX: network: slow.example:443 cannot connect: timed out";
        assert_eq!(text_of(record, Model).as_deref(), Some(expected));
        let other = "workspace-write allowlist 35\nwrite 5 /etc/x\nunreachable 1 loop.example:80 the name resolves to 127.0.0.1\n";
        let said = text_of(other, Model).unwrap();
        let lines: Vec<&str> = said.lines().skip(1).collect();
        let expected = [
            "  write  /etc/x (5 times)",
            "  name   loop.example:80  the name resolves to 127.0.0.1",
            "  … and 29 more",
        ];
        assert_eq!(lines[..3], expected);
        assert!(lines[3].contains("needs={\"write\":[\"/etc\"]}"), "{said}");
        let direct = text_of("read-only allowlist 1\naddress 1 8.8.8.8:53\n", Model).unwrap();
        assert!(!direct.contains("needs="), "{direct}");
    }

    #[test]
    fn connections_without_network_are_listed_with_how_to_ask_for_a_host() {
        let record = "workspace-write off 2\naddress 1 0.0.0.0:53\naddress 1 1.1.1.1:443\n";
        let expected = "SANDBOX: 2 things were refused (workspace-write, network off)\n  \
                        name   look-up of a host name  the network is off\n  \
                        address 1.1.1.1:443  the network is off\n\
                        To ask for more, call again with needs={\"network\":[\"HOST\"]} and a justification (one sentence \
                        for the person).";
        assert_eq!(text_of(record, Model).as_deref(), Some(expected));
    }

    #[test]
    fn person_is_told_which_settings_permit_what_was_refused() {
        let record =
            "workspace-write allowlist 2\nwrite 1 /etc/x\nname 1 evil.example:443 not allowed\n";
        let said = text_of(record, Person).unwrap();
        let last = said.lines().last().unwrap();
        let expected = "To permit it, set in [sandbox] of config.toml: write = [\"/etc\"], allow = [\"evil.example\"]";
        assert_eq!(last, expected);
        let said = text_of("read-only off 1\naddress 1 1.1.1.1:443\n", Person).unwrap();
        assert!(
            said.ends_with("config.toml: network = \"allowlist\""),
            "{said}"
        );
    }

    #[test]
    fn removals_advise_the_folder_and_paths_that_are_left_out_are_counted() {
        let said = text_of("workspace-write off 1\nremove 1 /etc/hostname\n", Model).unwrap();
        let expected = "  remove /etc/hostname\nTo ask for more, call again with needs={\"write\":[\"/etc\"]} and";
        assert!(said.contains(expected), "{said}");
        let folder = tempfile::tempdir().unwrap();
        let mut record = "workspace-write off 7\n".to_owned();
        for number in 0..7 {
            let path = folder.path().join(format!("{number}\n"));
            std::fs::write(&path, "").unwrap();
            let text = format!("{}/{number}\\n", folder.path().display());
            record.push_str(&format!("write 1 {text}\n"));
        }
        let said = text_of(&record, Model).unwrap();
        let named = format!("{}/4\\n\"]}}", folder.path().display());
        assert!(said.contains(&named), "{said}");
        assert!(said.contains("That leaves out 2 of the paths"), "{said}");
    }

    #[test]
    fn system_calls_and_udp_are_listed_with_the_way_outside() {
        let record =
            "workspace-write allowlist 3\nudp 1 8.8.8.8:123\ncall 2 mount  it cannot be; do not\n";
        let expected = "SANDBOX: 3 things were refused (workspace-write, network allowlist)\n  \
                        udp    8.8.8.8:123  UDP cannot leave the sandbox; use TCP\n  \
                        call   mount  it cannot be; do not (2 times)\n";
        let said = text_of(record, Model).unwrap();
        assert_eq!(said, format!("{expected}{ASK_OUTSIDE}"));
        let said = text_of(record, Person).unwrap();
        assert_eq!(said, format!("{expected}{UDP_SETTING}\n{CALL_OUTSIDE}"));
    }

    #[test]
    fn protected_paths_are_advised_for_one_command_only() {
        let record = "workspace-write off 2\nprotected 1 /etc/.git/config\nmake 1 /w/.git/hooks\n";
        let said = text_of(record, Person).unwrap();
        assert!(said.ends_with(ONCE_OUTSIDE), "{said}");
        assert!(!said.contains("config.toml"), "{said}");
        let said = text_of(record, Model).unwrap();
        let needs = "needs={\"write\":[\"/etc\",\"/w/.git/hooks\"]}";
        assert!(said.contains(needs) && !said.contains(DIFFERS), "{said}");
        let tracked = "workspace-write off 1\nprotected 1 /w/.vscode/tasks.json\n";
        let said = text_of(tracked, Model).unwrap();
        assert!(said.ends_with(DIFFERS), "{said}");
    }
}
