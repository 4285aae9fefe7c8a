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
        if !has_value(table, name, &new) {
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
    /// Agent that the entry is for.
    agent: String,
    /// Field that tells entries of different kinds for one agent apart; `None`: the list has one kind.
    kind: Option<&'static str>,
    /// Fields beside the agent.
    fields: Vec<(&'static str, toml_edit::Value)>,
}

impl OwnEntry {
    /// Text with this entry. An entry for the same purpose gets its fields and keeps those that the person has added to it.
    pub fn add(&self, text: &str) -> Result<String> {
        let mut document = parse(text)?;
        let all = self.list_or_new(&mut document)?;
        if let Some(known) = all.iter_mut().find(|known| self.is_same(known)) {
            for (name, wanted) in &self.fields {
                if !has_value(known, name, wanted) {
                    known.insert(name, value(wanted.clone()));
                }
            }
        } else if !all.iter().any(|known| self.is_covered_by(known)) {
            let mut new = Table::new();
            new.insert("agent", value(&self.agent));
            for (name, wanted) in &self.fields {
                new.insert(name, value(wanted.clone()));
            }
            all.push(new);
        } else {
            return Ok(text.to_owned());
        }
        Ok(written(&document, text))
    }

    /// Returns `true` if there is an entry for the same purpose.
    pub fn is_in(&self, text: &str) -> Result<bool> {
        let mut document = parse(text)?;
        let all = self.list(&mut document);
        Ok(all.is_some_and(|all| all.iter().any(|known| self.is_same(known))))
    }

    /// Returns `true` if setup may have written an entry, for whatever agent.
    pub fn has_similar(&self, text: &str) -> Result<bool> {
        let mut document = parse(text)?;
        let all = self.list(&mut document);
        Ok(all.is_some_and(|all| all.iter().any(|known| self.is_similar(known))))
    }

    /// Text without entries for the same purpose.
    pub fn remove(&self, text: &str) -> Result<String> {
        let mut document = parse(text)?;
        if let Some(all) = self.list(&mut document) {
            all.retain(|known| !self.is_same(known));
            let is_empty = all.is_empty();
            if let Some(holder) = holder(&mut document, self.table) {
                if is_empty {
                    holder.remove(self.list);
                }
                if !self.table.is_empty() && holder.is_implicit() && holder.is_empty() {
                    document.remove(self.table);
                }
            }
        }
        Ok(written(&document, text))
    }

    /// Text in which the entries for the same purpose are for this agent.
    pub fn rename(&self, text: &str, agent: &str) -> Result<String> {
        let mut document = parse(text)?;
        let all = self.list(&mut document).into_iter();
        for known in all.flat_map(|all| all.iter_mut()) {
            if self.is_same(known) {
                known.insert("agent", value(agent));
            }
        }
        Ok(written(&document, text))
    }

    /// Returns `true` if the entry is for the same agent and of the same kind, whatever else it says. One that is limited to
    /// a folder was written by the person.
    fn is_same(&self, known: &Table) -> bool {
        known.get("agent").and_then(Item::as_str) == Some(&self.agent) && self.is_similar(known)
    }

    /// Returns `true` if setup may have written the entry for some agent.
    fn is_similar(&self, known: &Table) -> bool {
        self.is_of_kind(known) && !known.contains_key("folder")
    }

    /// Returns `true` if the entry does the same for all agents.
    fn is_covered_by(&self, known: &Table) -> bool {
        let agent = known.get("agent").and_then(Item::as_str);
        self.kind.is_some() && agent.is_none_or(|agent| agent == "*") && self.is_of_kind(known)
    }

    fn is_of_kind(&self, known: &Table) -> bool {
        self.kind
            .is_none_or(|kind| known.get(kind).and_then(Item::as_bool) == Some(true))
    }

    fn list<'a>(&self, document: &'a mut DocumentMut) -> Option<&'a mut ArrayOfTables> {
        holder(document, self.table)?
            .get_mut(self.list)?
            .as_array_of_tables_mut()
    }

    fn list_or_new<'a>(&self, document: &'a mut DocumentMut) -> Result<&'a mut ArrayOfTables> {
        if !self.table.is_empty() && !document.contains_key(self.table) {
            let mut new = Table::new();
            new.set_implicit(true);
            document.insert(self.table, Item::Table(new));
        }
        let (table, name) = (self.table, self.name());
        let holder = holder(document, table)
            .ok_or_else(|| EditError(format!("`{table}` is not a [{table}] table")))?;
        holder
            .entry(self.list)
            .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()))
            .as_array_of_tables_mut()
            .ok_or_else(|| EditError(format!("`{name}` is not a list of [[{name}]] tables")))
    }

    fn name(&self) -> String {
        match self.table {
            "" => self.list.to_owned(),
            table => format!("{table}.{}", self.list),
        }
    }
}

/// Table of this name; the document itself if the name is empty.
fn holder<'a>(document: &'a mut DocumentMut, table: &str) -> Option<&'a mut Table> {
    match table {
        "" => Some(document.as_table_mut()),
        table => document.get_mut(table)?.as_table_mut(),
    }
}

fn has_value(table: &dyn TableLike, name: &str, wanted: &toml_edit::Value) -> bool {
    let found = table.get(name).and_then(Item::as_value);
    found.is_some_and(|found| formatted(found) == formatted(wanted))
}

/// Waker entry that resumes the last session of this client for this agent.
pub fn waker(agent: &str, kind: &'static str) -> OwnEntry {
    OwnEntry {
        table: "",
        list: "wakers",
        agent: agent.to_owned(),
        kind: Some(kind),
        fields: vec![(kind, true.into())],
    }
}

/// Entry that runs the commands of this agent in a sandbox.
pub fn sandbox(agent: &str, mode: &str) -> OwnEntry {
    OwnEntry {
        table: "sandbox",
        list: "for",
        agent: agent.to_owned(),
        kind: None,
        fields: vec![("mode", mode.into())],
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
    fn settings_added_to_an_own_entry_are_kept_and_go_with_it() {
        let text = "[[wakers]]\nagent = \"codex\"\ncodex = true\nafter = 10 # mine\n";
        let ours = waker("codex", "codex");
        assert_eq!(ours.add(text).unwrap(), text);
        assert_eq!(ours.remove(text).unwrap(), "");
        let of_all = "[[wakers]]\nagent = \"*\"\ncodex = true\n";
        assert_eq!(ours.add(of_all).unwrap(), of_all);
        assert_eq!(ours.remove(of_all).unwrap(), of_all);
        let text = "[[sandbox.for]]\nagent = \"codex\"\nmode = \"read-only\"\nnetwork = \"on\"\n";
        let ours = sandbox("codex", "workspace-write");
        let with = text.replace("read-only", "workspace-write");
        assert_eq!(ours.add(text).unwrap(), with);
        assert_eq!(
            ours.rename(&with, "two").unwrap(),
            with.replace("codex", "two")
        );
        assert_eq!(ours.remove(&with).unwrap(), "");
        let of_folder = "[[sandbox.for]]\nagent = \"codex\"\nfolder = \"/srv\"\nmode = \"off\"\n";
        assert!(ours.add(of_folder).unwrap().starts_with(of_folder));
        assert_eq!(ours.remove(of_folder).unwrap(), of_folder);
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
