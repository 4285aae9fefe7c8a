//! Tool calls that a model wrote as text: blocks of `<tool name="…">` with one element per field. The text
//! around them is ignored. Errors name the line, and are found before anything is run.

#[cfg(test)]
mod random_blocks;
mod value;

use std::str::FromStr as _;

use abide_api::ToolName;
use serde_json::{Map, Value};

use super::tools::{self, ToolDescription};
use value::parse_value;

/// Tool call as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Name of the tool.
    pub tool: &'static str,
    /// Arguments, typed by the tool's schema.
    pub arguments: Map<String, Value>,
    /// Line where the block begins.
    pub line: usize,
}

/// Error in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {sentence}")]
pub struct BlockError {
    /// Line of the error.
    pub line: usize,
    /// Description of the error, and what is allowed.
    pub sentence: String,
}

/// Finds the blocks of a text, in order, and blocks with the tools of another host.
pub fn parse(text: &str) -> Result<ParsedText, BlockError> {
    let mut parser = BlockParser { text, at: 0 };
    let mut parsed = ParsedText::default();
    while parser.find_tool()? {
        match parser.block()? {
            FoundBlock::Own(block) => parsed.blocks.push(block),
            FoundBlock::Foreign(block) => parsed.foreign.push(block),
        }
    }
    // A text without any tool of ours is more likely misspelled than meant for another host.
    match parsed.foreign.first() {
        Some(block) if parsed.blocks.is_empty() => Err(block.error.clone()),
        _ => Ok(parsed),
    }
}

/// Blocks of a text.
#[derive(Debug, Default, PartialEq)]
pub struct ParsedText {
    /// Calls of abide's tools.
    pub blocks: Vec<Block>,
    /// Blocks that name no tool of abide, which are not run.
    pub foreign: Vec<ForeignBlock>,
}

/// Block that names no tool of abide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignBlock {
    /// Name of the tool, as written.
    pub tool: String,
    /// Error that says that there is no such tool.
    pub error: BlockError,
}

/// One block of a text.
enum FoundBlock {
    Own(Block),
    Foreign(ForeignBlock),
}

struct BlockParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> BlockParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn line(&self) -> usize {
        self.line_at(self.at)
    }

    fn line_at(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    fn error<T>(&self, line: usize, sentence: impl Into<String>) -> Result<T, BlockError> {
        let sentence = sentence.into();
        Err(BlockError { line, sentence })
    }

    /// Moves to the next opening tag of a tool; `<toolbox>` does not count. Returns false if there is none. A closing tag before
    /// it is an error: the value of a field may have ended at a `</tool>` that was part of it.
    fn find_tool(&mut self) -> Result<bool, BlockError> {
        while let Some(found) = self.rest().find('<') {
            self.at += found;
            if closing_tag(self.rest(), "tool").is_some() {
                let sentence = "</tool> without a block that it closes; a value that contains it must be in <![CDATA[…]]>";
                return self.error(self.line(), sentence);
            }
            let opening = self.rest().strip_prefix("<tool");
            let after = opening.map(|rest| rest.chars().next());
            if after.is_some_and(|c| c.is_none_or(|c| c.is_whitespace() || c == '>' || c == '/')) {
                return Ok(true);
            }
            self.at += "<".len();
        }
        Ok(false)
    }

    fn block(&mut self) -> Result<FoundBlock, BlockError> {
        let line = self.line();
        self.at += "<tool".len();
        let Some(end) = self.rest().find('>') else {
            return self.error(line, "the tag <tool …> has no closing '>'");
        };
        let head = &self.rest()[..end];
        self.at += end + 1;
        let (head, empty) = match head.strip_suffix('/') {
            Some(head) => (head, true),
            None => (head, false),
        };
        let Some(name) = attribute(head.trim()) else {
            return self.error(
                line,
                "<tool> must have a name and nothing else, as in <tool name=\"shell\">",
            );
        };
        let Ok(tool) = ToolName::from_str(&name).map(tools::of) else {
            let name = tools::shown(&name);
            let known = ToolName::ALL.map(ToolName::as_str).join(", ");
            if let Some(meant) = meant_tool(&name) {
                return self.error(
                    line,
                    format!(
                        "there is no tool '{name}'; did you mean '{meant}'? The tools are {known}"
                    ),
                );
            }
            if !empty {
                let end = self.rest().find("</tool>");
                self.at += end.map_or(self.rest().len(), |end| end + "</tool>".len());
            }
            let sentence = format!("there is no tool '{name}'; the tools are {known}");
            let error = BlockError { line, sentence };
            return Ok(FoundBlock::Foreign(ForeignBlock { tool: name, error }));
        };
        let mut arguments = Map::new();
        if !empty {
            self.fields(tool, line, &mut arguments)?;
        }
        Ok(FoundBlock::Own(Block {
            tool: tool.name.as_str(),
            arguments,
            line,
        }))
    }

    fn fields(
        &mut self,
        tool: &ToolDescription,
        began: usize,
        arguments: &mut Map<String, Value>,
    ) -> Result<(), BlockError> {
        let schema = (tool.input)();
        // Machine to start a command on: a field of these tools where there is a fleet.
        let on = serde_json::json!({"type": "string"});
        loop {
            let gap = self.rest().find('<').unwrap_or(self.rest().len());
            let between = self.rest()[..gap].trim();
            if !between.is_empty() && gap < self.rest().len() {
                let shown = tools::shown(between);
                let blank = self.rest().len() - self.rest().trim_start().len();
                return self.error(
                    self.line_at(self.at + blank),
                    format!("text between the fields of '{}': {shown}", tool.name),
                );
            }
            self.at += gap;
            let line = self.line();
            let rest = self.rest();
            if rest.is_empty() || rest.starts_with("<tool ") || rest.starts_with("<tool>") {
                return self.error(
                    began,
                    format!("the block of '{}' is not closed with </tool>", tool.name),
                );
            }
            if let Some(length) = closing_tag(rest, "tool") {
                self.at += length;
                return Ok(());
            }
            if let Some(comment) = rest.strip_prefix("<!--") {
                let Some(end) = comment.find("-->") else {
                    return self.error(line, "a comment is not closed with -->");
                };
                self.at += "<!--".len() + end + "-->".len();
                continue;
            }
            let (name, value) = self.field(tool, line)?;
            let is_machine = name == "on" && tool.name.starts_commands();
            let known = schema["properties"].get(&name);
            let Some(known) = known.or(is_machine.then_some(&on)) else {
                return self.error(line, no_such_field(tool, &name));
            };
            let value = parse_value(&name, &value, known).or_else(|allowed| {
                self.error(
                    line,
                    format!("`{name}` must be {allowed}; got {}", tools::shown(&value)),
                )
            })?;
            if arguments.insert(name.clone(), value).is_some() {
                return self.error(line, format!("`{name}` is given twice"));
            }
        }
    }

    /// Reads one element; the position is at its `<`.
    fn field(
        &mut self,
        tool: &ToolDescription,
        line: usize,
    ) -> Result<(String, String), BlockError> {
        let tag = &self.rest()[1..];
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = tag.find(|c| !plain(c)).unwrap_or(tag.len());
        let name = tag[..length].to_owned();
        let after = tag[length..].trim_start();
        if name.is_empty() || !(after.starts_with('>') || after.starts_with("/>")) {
            let shown = tools::shown(tag.lines().next().unwrap_or_default());
            return self.error(
                line,
                format!(
                    "a field of '{}' is expected, such as <{}>; got <{shown}",
                    tool.name,
                    fields_of(tool).first().map_or("", String::as_str)
                ),
            );
        }
        let opened = self.text.len() - after.len();
        if after.starts_with("/>") {
            self.at = opened + 2;
            return Ok((name, String::new()));
        }
        self.at = opened + 1;
        let value = self.value(&name, line)?;
        let value = match name.as_str() {
            "input" => typed(&value),
            _ => unindented(&value),
        };
        Ok((name, value))
    }

    /// Reads the text of an element up to the end of its closing tag.
    fn value(&mut self, name: &str, line: usize) -> Result<String, BlockError> {
        let close = format!("</{name}>");
        let mut value = String::new();
        loop {
            let rest = self.rest();
            let Some(mark) = rest.find(['<', '&']) else {
                return self.error(line, format!("<{name}> is not closed with {close}"));
            };
            value.push_str(&rest[..mark]);
            self.at += mark;
            let rest = self.rest();
            if let Some(length) = closing_tag(rest, name) {
                self.at += length;
                return Ok(value);
            }
            if let Some(data) = rest.strip_prefix("<![CDATA[") {
                let Some(end) = data.find("]]>") else {
                    return self.error(self.line(), "a CDATA section is not closed with ]]>");
                };
                value.push_str(&data[..end]);
                self.at += "<![CDATA[".len() + end + "]]>".len();
            } else if let Some((letter, length)) = entity(rest) {
                value.push(letter);
                self.at += length;
            } else if closing_tag(rest, "tool").is_some() {
                return self.error(line, format!("<{name}> is not closed with {close}"));
            } else {
                // A model that writes `a < b && c` without escaping means these characters.
                let mark = &rest[..1];
                value.push_str(mark);
                self.at += 1;
            }
        }
    }
}

/// Length of the closing tag of this name, if the text begins with it.
fn closing_tag(text: &str, name: &str) -> Option<usize> {
    let after = text.strip_prefix("</")?.strip_prefix(name)?.trim_start();
    let rest = after.strip_prefix('>')?;
    Some(text.len() - rest.len())
}

fn fields_of(tool: &ToolDescription) -> Vec<String> {
    let schema = (tool.input)();
    let fields = schema["properties"].as_object();
    fields.map_or_else(Vec::new, |fields| fields.keys().cloned().collect())
}

fn no_such_field(tool: &ToolDescription, name: &str) -> String {
    format!(
        "'{}' has no field '{}'; its fields are {}",
        tool.name,
        tools::shown(name),
        fields_of(tool).join(", ")
    )
}

/// Tool that a misspelled name probably means. A name that differs more is that of another host's tool.
fn meant_tool(name: &str) -> Option<&'static str> {
    let names = ToolName::ALL.map(ToolName::as_str);
    // One letter of a short name, two of a long one.
    let is_near = |tool: &&str| strsim::osa_distance(name, tool) <= tool.len().min(8) / 4;
    names.into_iter().find(is_near)
}

/// Value of `name="…"`, if the text contains nothing else.
fn attribute(head: &str) -> Option<String> {
    let value = head
        .strip_prefix("name")?
        .trim_start()
        .strip_prefix('=')?
        .trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (name, rest) = value[1..].split_once(quote)?;
    rest.trim().is_empty().then(|| name.to_owned())
}

/// Limit on the length of an entity after its `&`, in bytes.
const ENTITY_LIMIT: usize = 10;

/// Character that is written as an entity, and the length of the entity.
fn entity(text: &str) -> Option<(char, usize)> {
    let rest = text.strip_prefix('&')?;
    let end = rest.bytes().take(ENTITY_LIMIT).position(|b| b == b';')?;
    let name = &rest[..end];
    let letter = match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let number = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(number)?
        }
    };
    Some((letter, name.len() + 2))
}

/// Value without the line breaks around it, if it stands on lines of its own.
fn unindented(value: &str) -> String {
    match own_lines(value) {
        None => value.to_owned(),
        Some(inner) => inner.trim_end_matches(['\r', '\n']).to_owned(),
    }
}

/// Text to type. The line break before the closing tag is Enter, also if the text stands on lines of its own.
fn typed(value: &str) -> String {
    match own_lines(value) {
        None => value.to_owned(),
        Some("") => "\n".to_owned(),
        Some(inner) => inner.to_owned(),
    }
}

/// Value that stands on lines of its own: without the line break before it and the indentation of the closing tag.
fn own_lines(value: &str) -> Option<&str> {
    let inner = value
        .strip_prefix("\r\n")
        .or_else(|| value.strip_prefix('\n'))?;
    Some(inner.trim_end_matches([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(text: &str) -> Value {
        let blocks = parse(text).expect("blocks").blocks;
        assert_eq!(blocks.len(), 1, "{blocks:?}");
        Value::Object(blocks[0].arguments.clone())
    }

    fn wrong(text: &str, line: usize, part: &str) {
        let malformed = parse(text).expect_err(text);
        assert_eq!(malformed.line, line, "{malformed}");
        assert!(malformed.sentence.contains(part), "{malformed}");
    }

    #[test]
    fn block_of_the_prompt_parses() {
        let text = "I will wait.\n<tool name=\"timer\">\n  <total_duration>300</total_duration>\n  \
            <timeout_duration>60.5</timeout_duration>\n  <reason>Waiting for server to start</reason>\n</tool>\nDone.";
        let blocks = parse(text).expect("blocks").blocks;
        assert_eq!((blocks[0].tool, blocks[0].line), ("timer", 2));
        assert_eq!(
            one(text),
            json!({"total_duration": 300, "timeout_duration": 60.5, "reason": "Waiting for server to start"})
        );
    }

    #[test]
    fn machine_is_a_field_of_tools_that_start_commands() {
        let shell = one("<tool name='shell'><command>ls</command><on>7</on></tool>");
        assert_eq!(shell, json!({"command": "ls", "on": "7"}));
        let timer = "<tool name='timer'><on>build</on></tool>";
        wrong(timer, 1, "'timer' has no field 'on'");
    }

    #[test]
    fn values_have_the_type_of_the_schema() {
        let shell = |inner: &str| one(&format!("<tool name='shell'>{inner}</tool>"));
        assert_eq!(
            shell(
                "<command>a &lt; b &amp;&amp; c &#65;&#x42;</command><timeout> 5 </timeout><raw>true</raw>"
            ),
            json!({"command": "a < b && c AB", "timeout": 5, "raw": true})
        );
        assert_eq!(
            shell("<command><![CDATA[x </command> & y]]></command>"),
            json!({"command": "x </command> & y"})
        );
        assert_eq!(
            shell("<command>if [ 1 < 2 ] && true; then :; fi</command>"),
            json!({"command": "if [ 1 < 2 ] && true; then :; fi"})
        );
        assert_eq!(
            shell("<command>\necho a\necho b\n  </command>"),
            json!({"command": "echo a\necho b"})
        );
        assert_eq!(
            shell("<!-- why --><command>a</command><stdin/>"),
            json!({"command": "a", "stdin": ""})
        );
        assert_eq!(
            one("<tool  name = \"shell\" >\n<command >a</command\n>\n</tool >"),
            json!({"command": "a"})
        );
        assert_eq!(
            one("<tool name=\"timer\"><until>{\"port\": 3000}</until></tool>"),
            json!({"until": {"port": 3000}})
        );
    }

    #[test]
    fn line_break_before_the_closing_tag_of_input_is_kept() {
        for (written, read) in [
            ("ls", "ls"),
            ("ls\n", "ls\n"),
            ("\nls\n", "ls\n"),
            ("\n    ls\n  ", "    ls\n"),
            ("\n", "\n"),
            ("\n  ", "\n"),
        ] {
            let block = format!("<tool name='terminal_session'><input>{written}</input></tool>");
            assert_eq!(one(&block)["input"], json!(read), "{written:?}");
        }
    }

    #[test]
    fn blanks_around_ids_paths_and_fixed_words_are_dropped() {
        let block = "<tool name='terminal_session'><action> kill </action><session_id>\tlast </session_id>\
            <cwd> /tmp </cwd><pattern> x </pattern></tool>";
        assert_eq!(
            one(block),
            json!({"action": "kill", "session_id": "last", "cwd": "/tmp", "pattern": " x "})
        );
    }

    #[test]
    fn objects_and_lists_parse_from_elements() {
        let until = |inner: &str| {
            let block = format!("<tool name='timer'><until>{inner}</until></tool>");
            one(&block)["until"].clone()
        };
        assert_eq!(until("<port>3000</port>"), json!({"port": 3000}));
        assert_eq!(
            until("\n  <url>http://a/</url>\n  <status> 200 </status>\n  <body>a &lt; b</body>\n"),
            json!({"url": "http://a/", "status": 200, "body": "a < b"})
        );
        assert_eq!(
            until("<url>http://a/</url><body>200</body>"),
            json!({"url": "http://a/", "body": "200"})
        );
        assert_eq!(
            until("<any><file>1</file><command>2</command></any>"),
            json!({"any": [{"file": "1"}, {"command": "2"}]})
        );
        assert_eq!(
            until(
                "<all><port>1</port><condition><file>x</file><is>gone</is></condition>\
                 <any><port>2</port></any><item>{\"port\": 3}</item></all>"
            ),
            json!({"all": [{"port": 1}, {"file": "x", "is": "gone"}, {"any": [{"port": 2}]}, {"port": 3}]})
        );
        assert_eq!(
            until("<any><any><port>1</port></any><port>2</port></any>"),
            json!({"any": [{"any": [{"port": 1}]}, {"port": 2}]})
        );
        assert_eq!(
            one("<tool name='shell'><command>a</command><env><N>1</N><E></E></env></tool>")["env"],
            json!({"N": "1", "E": ""})
        );
        assert_eq!(
            one("<tool name='terminal_session'><keys><key>up</key><key>enter</key></keys></tool>")
                ["keys"],
            json!(["up", "enter"])
        );
        for (written, read) in [
            ("ctrl-c", json!("ctrl-c")),
            (r#"["up", "enter"]"#, json!(["up", "enter"])),
        ] {
            let block = format!("<tool name='terminal_session'><keys>{written}</keys></tool>");
            assert_eq!(one(&block)["keys"], read);
        }
        let broken = "<tool name='terminal_session'>\n<keys>[enter</keys></tool>";
        wrong(broken, 2, "`keys` must be a JSON list");
        for inner in [
            "<port>3000",
            "<port>1</port><port>2</port>",
            "port 3000",
            "",
            "<a b>1</a b>",
        ] {
            let block = format!("<tool name='timer'>\n<until>{inner}</until></tool>");
            wrong(&block, 2, "`until` must be a JSON object");
        }
    }

    #[test]
    fn blocks_keep_their_order() {
        let text = "<tool name=\"read_timer\"/>\n<tool name=\"read_messages\"></tool>";
        let tools: Vec<_> = parse(text)
            .expect("blocks")
            .blocks
            .iter()
            .map(|block| block.tool)
            .collect();
        assert_eq!(tools, ["read_timer", "read_messages"]);
        assert_eq!(parse("no <toolbox> here, 1 < 2"), Ok(ParsedText::default()));
    }

    #[test]
    fn block_of_another_host_is_passed_over_and_listed() {
        let text = "<tool name=\"read_timer\"/>\n<tool name=\"attempt_completion\">\n\
            <result>done</result></tool>\n<tool name=\"read_messages\"/>";
        let parsed = parse(text).expect("blocks");
        let tools: Vec<_> = parsed.blocks.iter().map(|block| block.tool).collect();
        assert_eq!(tools, ["read_timer", "read_messages"]);
        assert_eq!(parsed.foreign.len(), 1);
        let foreign = &parsed.foreign[0];
        assert_eq!(
            (foreign.tool.as_str(), foreign.error.line),
            ("attempt_completion", 2)
        );
    }

    #[test]
    fn misspelled_tool_beside_a_good_one_is_an_error() {
        let text = |name: &str| format!("<tool name='read_timer'/>\n<tool name='{name}'></tool>");
        for (name, meant) in [
            ("tiner", "timer"),
            ("Shell", "shell"),
            ("shlel", "shell"),
            ("execute-comand", "execute_command"),
            ("read_mesages", "read_messages"),
        ] {
            wrong(
                &text(name),
                2,
                &format!("no tool '{name}'; did you mean '{meant}'?"),
            );
        }
        for name in [
            "read_file",
            "list_files",
            "bash",
            "sleep",
            "set_timer",
            "use_mcp_tool",
        ] {
            assert_eq!(parse(&text(name)).expect(name).foreign.len(), 1, "{name}");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let depth = 100_000;
        let inner = format!("{}{}", "<any>".repeat(depth), "</any>".repeat(depth));
        let block = format!("<tool name='timer'>\n<until>{inner}</until></tool>");
        wrong(&block, 2, "`until` must be a JSON object");
    }

    #[test]
    fn ampersands_without_entity_parse_in_linear_time() {
        // A search to the end of the text for each `&` would take hours.
        let many = "<&".repeat(1 << 20);
        let block = format!("<tool name='shell'><command>{many}</command></tool>");
        assert_eq!(one(&block)["command"], json!(many));
    }

    #[test]
    fn errors_name_their_line() {
        wrong(
            "\n<tool name=\"shell\">\n<command>x</command>\n",
            2,
            "not closed with </tool>",
        );
        wrong("<tool name=\"shell\"><command>x</tool>", 1, "</command>");
        wrong("<tool name=\"shell\">\n<command>x", 2, "</command>");
        wrong("<tool name=\"shell\"", 1, "'>'");
        wrong("<tool>\n</tool>", 1, "name");
        wrong("<tool name=\"nope\"></tool>", 1, "no tool 'nope'");
        wrong(
            "<tool name=\"shell\">\n<colour>red</colour></tool>",
            2,
            "no field 'colour'",
        );
        wrong(
            "<tool name=\"shell\">\n<timeout>soon</timeout></tool>",
            2,
            "a whole number",
        );
        wrong(
            "<tool name=\"shell\"><raw>yes</raw></tool>",
            1,
            "true or false",
        );
        wrong(
            "<tool name=\"timer\"><until>port</until></tool>",
            1,
            "a JSON object",
        );
        wrong(
            "<tool name=\"shell\"><command>a</command>\n<command>b</command></tool>",
            2,
            "twice",
        );
        wrong(
            "<tool name=\"shell\">\nls\n<command>a</command></tool>",
            2,
            "between the fields",
        );
        wrong(
            "<tool name=\"shell\"><command><![CDATA[x</command></tool>",
            1,
            "]]>",
        );
        wrong(
            "<tool name=\"shell\"><command>a</command></tool>\nmore\n</command></tool>",
            3,
            "without a block",
        );
        wrong(
            "<tool name=\"shell\">\n<tool name=\"shell\"></tool>",
            1,
            "not closed",
        );
    }
}
