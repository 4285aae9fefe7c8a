//! Refusals of a sandbox as text for a result, from the record that the keeper has written.

use std::path::Path;

use abide_output::printable::one_line;
use serde_json::{Map, Value};

/// Folders that the hint about `needs` names.
const MOST_ASKED: usize = 5;

/// Refusals in a record, and names that the command has made and other programs obey.
pub(super) fn refused_text(record: &str) -> Option<String> {
    let (head, lines) = record.split_once('\n')?;
    let [mode, network, count] = *head.split(' ').collect::<Vec<_>>() else {
        return None;
    };
    let of_kind = |kind: &str| -> Vec<String> {
        let lines = lines.lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(|text| one_line(text.trim())).collect()
    };
    let (writes, names) = (of_kind("write "), of_kind("name "));
    let (addresses, failed, planted) =
        (of_kind("address "), of_kind("failed "), of_kind("planted "));
    let mut said = Vec::new();
    if !(writes.is_empty() && names.is_empty() && addresses.is_empty()) {
        let things = match count {
            "1" => "1 thing was".to_owned(),
            count => format!("{count} things were"),
        };
        said.push(format!(
            "SANDBOX: {things} refused ({mode}, network {network})"
        ));
        said.extend(writes.iter().map(|path| format!("  write  {path}")));
        said.extend(names.iter().map(|line| {
            let (name, why) = line.split_once(' ').unwrap_or((line, "not allowed"));
            format!("  name   {name}  {why}")
        }));
        let is_off = network == "off";
        said.extend(addresses.iter().map(|address| match is_off {
            true if address.ends_with(":53") => {
                "  name   look-up of a host name  the network is off".to_owned()
            }
            true => format!("  address {address}  the network is off"),
            false => format!(
                "  address {address}  addresses cannot be reached directly; use a host name"
            ),
        }));
        let unknown = (is_off && !addresses.is_empty()).then(|| "HOST".to_owned());
        if let Some(needs) = needs(&writes, names.iter().chain(&unknown)) {
            said.push(format!(
                "To ask for more, call again with needs={needs} and a justification (one sentence for the person)."
            ));
        }
    }
    said.extend(
        failed
            .iter()
            .map(|line| format!("SANDBOX: network: {line}")),
    );
    if !planted.is_empty() {
        said.push(format!(
            "SANDBOX: planted, other programs may run or obey it: {}",
            planted.join(", ")
        ));
    }
    if let Some(layers) = of_kind("full ").first() {
        said.push(format!(
            "SANDBOX: the disk is full; what the command wrote to the home and temporary folders goes to {layers}. A person \
             can make room: `abide sandbox layers`."
        ));
    }
    (!said.is_empty()).then(|| said.join("\n"))
}

/// Permissions to ask for. `None`: no permission would help.
fn needs<'a>(writes: &[String], names: impl Iterator<Item = &'a String>) -> Option<Value> {
    let mut needs = Map::new();
    let mut folders: Vec<&str> = Vec::new();
    for path in writes {
        // What does not exist is made in the nearest folder that does. The root folder is never granted.
        let there = Path::new(path).ancestors().find(|path| path.exists());
        let there = there.and_then(Path::to_str).filter(|path| *path != "/");
        folders.extend(there.filter(|path| !folders.contains(path)));
    }
    folders.truncate(MOST_ASKED);
    if !folders.is_empty() {
        needs.insert("write".into(), folders.into());
    }
    let mut wanted: Vec<&str> = names
        .filter_map(|line| line.split(' ').next())
        .map(|name| name.strip_suffix(":443").unwrap_or(name))
        .collect();
    wanted.dedup();
    if !wanted.is_empty() {
        needs.insert("network".into(), wanted.into());
    }
    (!needs.is_empty()).then_some(Value::Object(needs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_listed_with_how_to_ask_for_more() {
        let record = "workspace-write off 2\nwrite /etc/x\nwrite /opt/y\nplanted .vscode\n";
        let expected = "SANDBOX: 2 things were refused (workspace-write, network off)\n  write  /etc/x\n  write  /opt/y\n\
                        To ask for more, call again with needs={\"write\":[\"/etc\",\"/opt\"]} and a justification (one \
                        sentence for the person).\nSANDBOX: planted, other programs may run or obey it: .vscode";
        assert_eq!(refused_text(record).as_deref(), Some(expected));
        let full = refused_text("workspace-write off 0\nfull /state/layers\n").unwrap();
        assert!(full.starts_with("SANDBOX: the disk is full; "), "{full}");
        let deep = refused_text("read-only off 2\nwrite /etc/new/deep/x\nwrite /new\n").unwrap();
        assert!(deep.contains("needs={\"write\":[\"/etc\"]}"), "{deep}");
        assert_eq!(refused_text("nonsense"), None);
        assert_eq!(refused_text("read-only on 0\n"), None);
    }

    #[test]
    fn refused_names_are_listed_with_their_reason_and_addresses_without_a_way_to_ask() {
        let record = "workspace-write allowlist 4\nname evil.example:443 the question was answered \"no\"\n\
                      name other.example:80 nobody could be asked\naddress 1.1.1.1:53\n\
                      failed slow.example:443 cannot connect: timed out\n";
        let expected = "SANDBOX: 4 things were refused (workspace-write, network allowlist)\n  \
                        name   evil.example:443  the question was answered \"no\"\n  \
                        name   other.example:80  nobody could be asked\n  \
                        address 1.1.1.1:53  addresses cannot be reached directly; use a host name\n\
                        To ask for more, call again with needs={\"network\":[\"evil.example\",\"other.example:80\"]} and a \
                        justification (one sentence for the person).\n\
                        SANDBOX: network: slow.example:443 cannot connect: timed out";
        assert_eq!(refused_text(record).as_deref(), Some(expected));
        let direct = refused_text("read-only allowlist 1\naddress 8.8.8.8:53\n").unwrap();
        assert!(!direct.contains("needs="), "{direct}");
    }

    #[test]
    fn connections_without_network_are_listed_with_how_to_ask_for_a_host() {
        let record = "workspace-write off 2\naddress 0.0.0.0:53\naddress 1.1.1.1:443\n";
        let expected = "SANDBOX: 2 things were refused (workspace-write, network off)\n  \
                        name   look-up of a host name  the network is off\n  \
                        address 1.1.1.1:443  the network is off\n\
                        To ask for more, call again with needs={\"network\":[\"HOST\"]} and a justification (one sentence \
                        for the person).";
        assert_eq!(refused_text(record).as_deref(), Some(expected));
    }
}
