//! Edits one table of a TOML text and keeps the rest as it is, including comments.

use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, value};

use super::clients::{FoundServer, ServerEntry};
use super::jsonc::EditError;

/// Name of the table of servers in the Codex configuration.
const SERVERS: &str = "mcp_servers";

type Result<T> = std::result::Result<T, EditError>;

fn parse(text: &str) -> Result<DocumentMut> {
    text.parse().map_err(|fault: toml_edit::TomlError| {
        let line = fault.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        EditError(format!(
            "line {line}: {}",
            fault.message().replace('\n', ", ")
        ))
    })
}

/// Text of the document with the line endings of `before`.
fn written(document: &DocumentMut, before: &str) -> String {
    let text = document.to_string();
    match before.contains("\r\n") {
        true => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        false => text,
    }
}

fn servers(document: &DocumentMut) -> Option<&dyn TableLike> {
    document.get(SERVERS)?.as_table_like()
}

/// Entry of a server.
pub fn server(text: &str, name: &str) -> Result<Option<FoundServer>> {
    let document = parse(text)?;
    let found = servers(&document).and_then(|servers| servers.get(name));
    Ok(found.map(|found| {
        let text = |field: &str| found.get(field).and_then(Item::as_str);
        let words = |args: &toml_edit::Array| -> Option<Vec<String>> {
            args.iter()
                .map(|arg| Some(arg.as_str()?.to_owned()))
                .collect()
        };
        FoundServer {
            command: text("command").map(str::to_owned),
            args: found.get("args").and_then(Item::as_array).and_then(words),
            without_approval: text("default_tools_approval_mode") == Some("approve"),
        }
    }))
}

pub fn add_server(text: &str, name: &str, server: &ServerEntry) -> Result<String> {
    let mut document = parse(text)?;
    let all = document.entry(SERVERS).or_insert_with(|| {
        let mut all = Table::new();
        all.set_implicit(true);
        Item::Table(all)
    });
    let inline = all.is_inline_table();
    let all = all
        .as_table_like_mut()
        .ok_or_else(|| EditError(format!("`{SERVERS}` is not a table")))?;
    if let Some(found) = all.get_mut(name).and_then(Item::as_table_like_mut) {
        fill(found, server);
    } else if inline {
        let mut new = InlineTable::new();
        fill(&mut new, server);
        all.insert(name, value(new));
    } else {
        let mut new = Table::new();
        fill(&mut new, server);
        all.insert(name, Item::Table(new));
    }
    Ok(written(&document, text))
}

/// Sets the fields of the entry; other fields, which the person has added, are kept.
fn fill(table: &mut dyn TableLike, server: &ServerEntry) {
    let mut put = |name: &str, new: toml_edit::Value| {
        let same = table
            .get(name)
            .and_then(Item::as_value)
            .is_some_and(|old| formatted(old) == formatted(&new));
        if !same {
            table.insert(name, value(new));
        }
    };
    put("command", server.command.as_str().into());
    put("args", server.args.iter().map(String::as_str).collect());
    if let Some(limit) = server.call_limit {
        put("tool_timeout_sec", limit.cast_signed().into());
    }
    if server.without_approval {
        put("default_tools_approval_mode", "approve".into());
    }
    // A server has either a command or a URL.
    table.remove("url");
    fill_env(table, server);
}

fn fill_env(table: &mut dyn TableLike, server: &ServerEntry) {
    if let Some(env) = table.get_mut("env").and_then(Item::as_table_like_mut) {
        for name in server.stale_variables() {
            env.remove(name);
        }
        for (name, text) in &server.env {
            if env.get(name).and_then(Item::as_str) != Some(text) {
                env.insert(name, value(text));
            }
        }
    } else if !server.env.is_empty() {
        let pairs = server.env.iter().map(|(name, text)| (name, text.as_str()));
        table.insert("env", value(InlineTable::from_iter(pairs)));
    }
}

/// Value without the white space and comments around it.
fn formatted(of: &toml_edit::Value) -> String {
    let mut of = of.clone();
    of.decor_mut().clear();
    if let Some(list) = of.as_array_mut() {
        list.fmt();
    }
    if let Some(table) = of.as_inline_table_mut() {
        table.fmt();
    }
    of.to_string()
}

/// Text without this server, or with the entry that `before` had.
pub fn remove_server(text: &str, name: &str, before: Option<&str>) -> Result<String> {
    let mut document = parse(text)?;
    let old = before.map(parse).transpose()?;
    let old = old.as_ref().and_then(servers).and_then(|all| all.get(name));
    if let Some(all) = document.get_mut(SERVERS).and_then(Item::as_table_like_mut) {
        match old {
            Some(old) => drop(all.insert(name, old.clone())),
            None => drop(all.remove(name)),
        }
        let had_any = before.is_some_and(|before| before.contains(SERVERS));
        if all.is_empty() && !had_any {
            document.remove(SERVERS);
        }
    }
    Ok(written(&document, text))
}

/// Table in a list of tables of abide's own configuration.
#[derive(Clone, Debug)]
pub struct OwnEntry {
    /// Table that holds the list; empty: the document itself.
    table: &'static str,
    /// Name of the list.
    list: &'static str,
    entry: Table,
}

impl OwnEntry {
    /// Text with this entry after the existing ones; unchanged if it already exists.
    pub fn add(&self, text: &str) -> Result<String> {
        if self.is_in(text)? {
            return Ok(text.to_owned());
        }
        let mut document = parse(text)?;
        let holder: &mut dyn TableLike = match self.table {
            "" => document.as_table_mut(),
            table => document
                .entry(table)
                .or_insert_with(|| {
                    let mut new = Table::new();
                    new.set_implicit(true);
                    Item::Table(new)
                })
                .as_table_mut()
                .ok_or_else(|| EditError(format!("`{table}` is not a [{table}] table")))?,
        };
        let all = holder
            .entry(self.list)
            .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let all = all.as_array_of_tables_mut().ok_or_else(|| {
            let name = self.name();
            EditError(format!("`{name}` is not a list of [[{name}]] tables"))
        })?;
        all.push(self.entry.clone());
        Ok(written(&document, text))
    }

    /// Returns `true` if this entry exists.
    pub fn is_in(&self, text: &str) -> Result<bool> {
        let document = parse(text)?;
        let holder = match self.table {
            "" => Some(document.as_item()),
            table => document.get(table),
        };
        let all = holder.and_then(|holder| holder.get(self.list)?.as_array_of_tables());
        Ok(all.is_some_and(|all| all.iter().any(|known| same(known, &self.entry))))
    }

    /// Text without this entry.
    pub fn remove(&self, text: &str) -> Result<String> {
        let mut document = parse(text)?;
        let holder = match self.table {
            "" => Some(document.as_table_mut()),
            table => document.get_mut(table).and_then(Item::as_table_mut),
        };
        if let Some(holder) = holder
            && let Some(all) = holder
                .get_mut(self.list)
                .and_then(Item::as_array_of_tables_mut)
        {
            all.retain(|known| !same(known, &self.entry));
            if all.is_empty() {
                holder.remove(self.list);
            }
            if !self.table.is_empty() && holder.is_implicit() && holder.is_empty() {
                document.remove(self.table);
            }
        }
        Ok(written(&document, text))
    }

    fn name(&self) -> String {
        match self.table {
            "" => self.list.to_owned(),
            table => format!("{table}.{}", self.list),
        }
    }
}

fn same(left: &Table, right: &Table) -> bool {
    let fields = |table: &Table| -> Vec<(String, String)> {
        let mut fields: Vec<_> = table
            .iter()
            .map(|(name, item)| {
                (
                    name.to_owned(),
                    item.as_value().map(formatted).unwrap_or_default(),
                )
            })
            .collect();
        fields.sort();
        fields
    };
    fields(left) == fields(right)
}

/// Waker entry that resumes the last session of this client for this agent.
pub fn waker(agent: &str, kind: &str) -> OwnEntry {
    let mut entry = Table::new();
    entry.insert("agent", value(agent));
    entry.insert(kind, value(true));
    OwnEntry {
        table: "",
        list: "wakers",
        entry,
    }
}

/// Entry that runs the commands of this agent in a sandbox.
pub fn sandbox(agent: &str, mode: &str) -> OwnEntry {
    let mut entry = Table::new();
    entry.insert("agent", value(agent));
    entry.insert("mode", value(mode));
    OwnEntry {
        table: "sandbox",
        list: "for",
        entry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_in(text: &str) -> Option<FoundServer> {
        super::server(text, "abide").unwrap()
    }

    fn server() -> ServerEntry {
        ServerEntry {
            command: "/bin/abide".into(),
            args: vec!["mcp".into()],
            env: vec![("A".into(), "b".into())],
            call_limit: Some(60),
            without_approval: false,
        }
    }

    #[test]
    fn other_entries_and_comments_are_kept() {
        let text =
            "# mine\nmodel = \"x\" # fast\n\n[mcp_servers.other]\ncommand = 'y'\n\n[tui]\na = 1\n";
        let with = add_server(text, "abide", &server()).unwrap();
        assert!(
            with.starts_with(
                "# mine\nmodel = \"x\" # fast\n\n[mcp_servers.other]\ncommand = 'y'\n"
            )
        );
        assert!(with.contains("[mcp_servers.abide]\ncommand = \"/bin/abide\"\nargs = [\"mcp\"]\ntool_timeout_sec = 60\nenv = { A = \"b\" }\n"), "{with}");
        assert!(with.contains("[tui]\na = 1\n"));
        assert_eq!(add_server(&with, "abide", &server()).unwrap(), with);
        assert_eq!(remove_server(&with, "abide", None).unwrap(), text);
        assert!(server_in(&with).is_some() && server_in(text).is_none());
    }

    #[test]
    fn removing_restores_the_entry_before_setup() {
        let before = "[mcp_servers.abide]\ncommand = \"old\"\nenabled = false\n";
        let with = add_server(before, "abide", &server()).unwrap();
        assert!(with.contains("enabled = false"), "{with}");
        let later = format!("{with}\n[later]\nx = 1\n");
        let back = remove_server(&later, "abide", Some(before)).unwrap();
        assert!(
            back.contains("command = \"old\"") && back.contains("[later]"),
            "{back}"
        );
    }

    #[test]
    fn settings_added_by_the_person_are_kept() {
        for text in [
            "[mcp_servers.abide]\nurl = \"http://old\"\nenv = { MINE = \"1\", ABIDE_DIR = \"/old\" }\n",
            "[mcp_servers.abide]\n\n[mcp_servers.abide.env]\nMINE = \"1\"\nABIDE_DIR = \"/old\"\n",
        ] {
            let with = add_server(text, "abide", &server()).unwrap();
            let document = parse(&with).unwrap();
            let entry = &document["mcp_servers"]["abide"];
            assert_eq!(entry["env"]["MINE"].as_str(), Some("1"), "{with}");
            assert_eq!(entry["env"]["A"].as_str(), Some("b"), "{with}");
            assert!(
                !with.contains("ABIDE_DIR") && !with.contains("url"),
                "{with}"
            );
            assert_eq!(add_server(&with, "abide", &server()).unwrap(), with);
        }
    }

    #[test]
    fn waker_is_added_and_removed_beside_others() {
        let ours = waker("codex", "codex");
        let text = "# mine\nmax_output = 5\n\n[[wakers]] # the pager\ndesktop = true\n";
        let with = ours.add(text).unwrap();
        assert!(with.starts_with(text), "{with}");
        assert!(
            with.ends_with("[[wakers]]\nagent = \"codex\"\ncodex = true\n"),
            "{with}"
        );
        assert_eq!(ours.add(&with).unwrap(), with);
        assert!(ours.is_in(&with).unwrap() && !ours.is_in(text).unwrap());
        assert_eq!(ours.remove(&with).unwrap(), text);
        assert!(ours.add("wakers = 1\n").is_err());
    }

    #[test]
    fn sandbox_of_an_agent_is_added_and_removed_beside_others() {
        let ours = sandbox("codex", "workspace-write");
        for text in [
            "",
            "# mine\nmax_output = 5\n",
            "[sandbox] # mine\nnetwork = \"on\"\n\n[[sandbox.for]]\nagent = \"x\"\n",
        ] {
            let with = ours.add(text).unwrap();
            assert!(
                with.ends_with("[[sandbox.for]]\nagent = \"codex\"\nmode = \"workspace-write\"\n"),
                "{with}"
            );
            assert!(ours.is_in(&with).unwrap() && !ours.is_in(text).unwrap());
            assert_eq!(ours.add(&with).unwrap(), with);
            assert_eq!(ours.remove(&with).unwrap(), text);
        }
        assert!(ours.add("sandbox = 1\n").is_err());
        assert!(ours.add("[sandbox]\nfor = 1\n").is_err());
    }

    #[test]
    fn inline_tables_are_edited_and_other_types_refused() {
        let inline = "mcp_servers = { other = { command = \"y\" } }\n";
        let with = add_server(inline, "abide", &server()).unwrap();
        assert!(server_in(&with).is_some(), "{with}");
        assert!(add_server("mcp_servers = 3\n", "abide", &server()).is_err());
        let EditError(why) = add_server("a = 1\nb = \n", "abide", &server()).unwrap_err();
        assert!(why.starts_with("line 2"), "{why}");
        let windows = "a = 1\r\n";
        assert!(
            !add_server(windows, "abide", &server())
                .unwrap()
                .replace("\r\n", "")
                .contains('\n')
        );
    }
}
