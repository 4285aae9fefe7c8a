//! Edits one member of a JSON text and keeps every other byte as it is, including comments and trailing
//! commas, which several clients allow in their settings.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

/// Deepest nesting that is parsed.
const DEPTH: usize = 128;
/// Indentation of a level if the text has none to copy.
const INDENT: &str = "  ";

/// Parse error with its position, as a phrase that follows the name of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError(pub String);

type Result<T> = std::result::Result<T, EditError>;

/// Value at `path`, if any.
pub fn get(text: &str, path: &[&str]) -> Result<Option<Value>> {
    let Some(mut node) = parse(text)? else {
        return Ok(None);
    };
    for name in path {
        match node.member(name) {
            Some(member) => node = member.value.clone(),
            None => return Ok(None),
        }
    }
    plain(text, &node).map(Some)
}

/// Text with `value` at `path`. Missing objects on the path are created.
pub fn set(text: &str, path: &[&str], value: &impl Serialize) -> Result<String> {
    let text = match parse(text)? {
        Some(_) => text.to_owned(),
        None => format!("{}{{}}\n", text.trim_end_matches([' ', '\t'])),
    };
    let mut node = parse(&text)?.ok_or_else(|| EditError("it is empty".into()))?;
    for (depth, name) in path.iter().enumerate() {
        node.object(name)?;
        match node.member(name) {
            Some(member) if depth + 1 == path.len() => {
                let style = Style::of(&text, &node);
                let new = style.render(value, &style.inner)?;
                return Ok(replaced(&text, member.value.span.clone(), &new));
            }
            Some(member) => node = member.value.clone(),
            None => return insert(&text, &node, &path[depth..], value),
        }
    }
    Err(EditError("there is no member to set".into()))
}

/// Text without the member at `path`; unchanged if there is none.
pub fn remove(text: &str, path: &[&str]) -> Result<String> {
    let Some(mut node) = parse(text)? else {
        return Ok(text.to_owned());
    };
    let Some((last, way)) = path.split_last() else {
        return Ok(text.to_owned());
    };
    for name in way {
        match node.member(name) {
            Some(member) => node = member.value.clone(),
            None => return Ok(text.to_owned()),
        }
    }
    let Some(place) = node.members.iter().position(|member| member.key == *last) else {
        return Ok(text.to_owned());
    };
    Ok(cut(text, &node, place))
}

fn cut(text: &str, node: &Node, place: usize) -> String {
    let member = &node.members[place];
    let begin = text[..member.start].trim_end().len();
    let only = node.members.len() == 1;
    let inside = node.span.start + 1..node.span.end - 1;
    let (begin, end) = match member.comma {
        Some(comma) => (begin, comma + 1),
        None => (begin, member.value.span.end),
    };
    if only
        && text[inside.start..begin].trim().is_empty()
        && text[end..inside.end].trim().is_empty()
    {
        return replaced(text, inside, "");
    }
    let mut rest = replaced(text, begin..end, "");
    let before = place.checked_sub(1).map(|before| &node.members[before]);
    if member.comma.is_none()
        && let Some(comma) = before.and_then(|before| before.comma)
    {
        rest.remove(comma);
    }
    rest
}

fn insert(text: &str, node: &Node, path: &[&str], value: &impl Serialize) -> Result<String> {
    let style = Style::of(text, node);
    let (name, deeper) = path
        .split_first()
        .ok_or_else(|| EditError("nothing to insert".into()))?;
    let mut new = style.render(value, &nested(&style, deeper.len()))?;
    for (depth, name) in deeper.iter().enumerate().rev() {
        let (outer, inner) = (nested(&style, depth), nested(&style, depth + 1));
        let line = &style.line;
        new = format!("{{{line}{inner}{}: {new}{line}{outer}}}", quoted(name));
    }
    let member = format!("{}: {new}", quoted(name));
    let Some(last) = node.members.last() else {
        let inside = node.span.start + 1..node.span.end - 1;
        let kept = text[inside.clone()].trim_end();
        let (line, inner, outer) = (&style.line, &style.inner, &style.outer);
        let filled = format!("{kept}{line}{inner}{member}{line}{outer}");
        return Ok(replaced(text, inside, &filled));
    };
    // Insert after anything behind the last member, such as a comment on its line.
    let end = text[..node.span.end - 1].trim_end().len();
    let before = if style.spread {
        format!("{}{}", style.line, style.inner)
    } else {
        " ".to_owned()
    };
    let trailing = if last.comma.is_some() { "," } else { "" };
    let mut filled = replaced(text, end..end, &format!("{before}{member}{trailing}"));
    if last.comma.is_none() {
        filled.insert(last.value.span.end, ',');
    }
    Ok(filled)
}

fn nested(style: &Style, depth: usize) -> String {
    format!("{}{}", style.inner, style.unit.repeat(depth))
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

fn replaced(text: &str, range: Range<usize>, new: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(range, new);
    text
}

/// Layout of an object, so that a new member looks like the others.
struct Style {
    line: &'static str,
    unit: String,
    /// Indentation of the closing brace.
    outer: String,
    /// Indentation of the members.
    inner: String,
    /// Set if each member is on its own line.
    spread: bool,
}

impl Style {
    fn of(text: &str, node: &Node) -> Self {
        let line = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let unit = first_indent(text).unwrap_or(INDENT).to_owned();
        let outer = indent_at(text, node.span.start);
        let first = node.members.first();
        let own_line = |member: &Member| {
            let begin = text[..member.start].rfind('\n').map_or(0, |at| at + 1);
            begin > node.span.start && text[begin..member.start].trim().is_empty()
        };
        let inner = match first {
            Some(member) if own_line(member) => indent_at(text, member.start),
            _ => format!("{outer}{unit}"),
        };
        Style {
            line,
            unit,
            outer,
            inner,
            spread: first.is_none_or(own_line),
        }
    }

    /// Value formatted for this indentation; the first line is not indented.
    fn render(&self, value: &impl Serialize, indent: &str) -> Result<String> {
        if !self.spread {
            let compact = serde_json::to_string(value);
            return compact.map_err(|fault| EditError(fault.to_string()));
        }
        let mut bytes = Vec::new();
        let pretty = PrettyFormatter::with_indent(self.unit.as_bytes());
        value
            .serialize(&mut Serializer::with_formatter(&mut bytes, pretty))
            .map_err(|fault| EditError(fault.to_string()))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.replace('\n', &format!("{}{indent}", self.line)))
    }
}

/// Indentation of the first indented member.
fn first_indent(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let rest = line.trim_start();
        let indent = &line[..line.len() - rest.len()];
        (rest.starts_with('"') && !indent.is_empty()).then_some(indent)
    })
}

/// Indentation of the line that contains offset `at`.
fn indent_at(text: &str, at: usize) -> String {
    let begin = text[..at].rfind('\n').map_or(0, |line| line + 1);
    let line = &text[begin..at];
    line[..line.len() - line.trim_start().len()].to_owned()
}

#[derive(Clone, Debug)]
struct Node {
    span: Range<usize>,
    is_object: bool,
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    key: String,
    start: usize,
    value: Node,
    comma: Option<usize>,
}

impl Node {
    /// Last member of this name, because the last duplicate wins in JSON parsers.
    fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().rfind(|member| member.key == name)
    }

    fn object(&self, wanted: &str) -> Result<()> {
        if self.is_object {
            return Ok(());
        }
        Err(EditError(format!(
            "what should hold \"{wanted}\" is not an object"
        )))
    }
}

/// Value of a node, after comments and trailing commas are removed.
fn plain(text: &str, node: &Node) -> Result<Value> {
    let bare = Bare::of(&text[node.span.clone()]);
    serde_json::from_str(&bare).map_err(|fault| EditError(fault.to_string()))
}

/// Removal of comments and trailing commas from a text that was parsed before.
struct Bare;

impl Bare {
    fn of(text: &str) -> String {
        let mut reader = Reader { text, at: 0 };
        let mut bare = String::with_capacity(text.len());
        while reader.skip().is_ok() && reader.at < text.len() {
            let begin = reader.at;
            match text.as_bytes()[begin] {
                b'"' => {
                    if reader.string().is_err() {
                        break;
                    }
                    bare.push_str(&text[begin..reader.at]);
                }
                b',' => {
                    reader.at += 1;
                    let _ = reader.skip();
                    if !matches!(reader.peek(), Some(b'}' | b']') | None) {
                        bare.push(',');
                    }
                }
                _ => {
                    let end = text[begin..].chars().next().map_or(1, char::len_utf8);
                    reader.at += end;
                    bare.push_str(&text[begin..reader.at]);
                }
            }
        }
        bare
    }
}

/// Syntax tree of a text; `None`: it contains only white space and comments.
fn parse(text: &str) -> Result<Option<Node>> {
    let mut reader = Reader { text, at: 0 };
    if text.starts_with('\u{feff}') {
        reader.at = '\u{feff}'.len_utf8();
    }
    reader.skip()?;
    if reader.at == text.len() {
        return Ok(None);
    }
    let node = reader.value(0)?;
    reader.skip()?;
    match reader.at == text.len() {
        true => Ok(Some(node)),
        false => Err(reader.fault("something stands after its end")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fault(&self, what: &str) -> EditError {
        let line = self.text[..self.at.min(self.text.len())]
            .matches('\n')
            .count()
            + 1;
        EditError(format!("line {line}: {what}"))
    }

    /// Skips white space and comments.
    fn skip(&mut self) -> Result<()> {
        loop {
            let rest = &self.text[self.at..];
            if let Some(byte) = self.peek()
                && byte.is_ascii_whitespace()
            {
                self.at += 1;
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").map(|end| end + 2);
                self.at += end.ok_or_else(|| self.fault("a comment is not closed"))?;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node> {
        if depth > DEPTH {
            return Err(self.fault("it is nested too deeply"));
        }
        let start = self.at;
        let mut members = Vec::new();
        match self.peek() {
            Some(b'{') => members = self.members(depth)?,
            Some(b'[') => self.items(depth)?,
            Some(b'"') => drop(self.string()?),
            _ => self.word()?,
        }
        Ok(Node {
            is_object: self.text.as_bytes()[start] == b'{',
            span: start..self.at,
            members,
        })
    }

    fn members(&mut self, depth: usize) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        self.at += 1;
        loop {
            self.skip()?;
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(members);
            }
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.fault("a name in quotes was expected"));
            }
            let key = self.string()?;
            self.skip()?;
            if self.peek() != Some(b':') {
                return Err(self.fault("a colon was expected"));
            }
            self.at += 1;
            self.skip()?;
            let value = self.value(depth + 1)?;
            self.skip()?;
            let comma = self.comma(b'}')?;
            members.push(Member {
                key,
                start,
                value,
                comma,
            });
        }
    }

    fn items(&mut self, depth: usize) -> Result<()> {
        self.at += 1;
        loop {
            self.skip()?;
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(());
            }
            self.value(depth + 1)?;
            self.skip()?;
            self.comma(b']')?;
        }
    }

    /// Reads a comma and returns its offset; without a comma, `end` must follow.
    fn comma(&mut self, end: u8) -> Result<Option<usize>> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(Some(self.at - 1))
            }
            Some(byte) if byte == end => Ok(None),
            _ => Err(self.fault("a comma or the end was expected")),
        }
    }

    fn string(&mut self) -> Result<String> {
        let begin = self.at;
        let bytes = self.text.as_bytes();
        let mut at = begin + 1;
        loop {
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(b'\n') | None => return Err(self.fault("unterminated string")),
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        serde_json::from_str(&self.text[begin..self.at]).map_err(|_| self.fault("invalid string"))
    }

    /// Reads a number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<()> {
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)))
            .unwrap_or(rest.len());
        let value = serde_json::from_str::<Value>(&rest[..end]);
        if value.is_err() {
            return Err(self.fault("expected a value"));
        }
        self.at += end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn added(text: &str) -> String {
        set(text, &["servers", "abide"], &json!({"a": [1]})).unwrap()
    }

    #[test]
    fn what_is_added_looks_like_what_is_there() {
        let two = "{\n  \"x\": 1,\n  \"servers\": {\n    \"y\": {}\n  }\n}\n";
        let wanted = two.replace(
            "\"y\": {}\n",
            "\"y\": {},\n    \"abide\": {\n      \"a\": [\n        1\n      ]\n    }\n",
        );
        assert_eq!(added(two), wanted);
        let tabs = "{\r\n\t\"servers\": {},\r\n}";
        assert_eq!(
            added(tabs),
            "{\r\n\t\"servers\": {\r\n\t\t\"abide\": {\r\n\t\t\t\"a\": [\r\n\t\t\t\t1\r\n\t\t\t]\r\n\t\t}\r\n\t},\r\n}"
        );
        assert_eq!(
            added("{\"servers\": {\"y\": 1}}"),
            "{\"servers\": {\"y\": 1, \"abide\": {\"a\":[1]}}}"
        );
        assert!(added("").starts_with("{\n  \"servers\": {\n    \"abide\": {"));
    }

    #[test]
    fn comments_stay_where_they_are() {
        let text =
            "// mine\n{\n  \"servers\": {\n    \"y\": 1 // keep\n    /* last */\n  } // end\n}";
        let with = added(text);
        assert!(with.starts_with(
            "// mine\n{\n  \"servers\": {\n    \"y\": 1, // keep\n    /* last */\n    \"abide\""
        ));
        assert_eq!(remove(&with, &["servers", "abide"]).unwrap(), text);
        assert_eq!(
            get(&with, &["servers", "abide", "a"]).unwrap(),
            Some(json!([1]))
        );
    }

    #[test]
    fn what_was_added_can_be_taken_out() {
        for text in [
            "{\n  \"servers\": {\n    \"y\": 1\n  }\n}\n",
            "{\n  \"servers\": {\n    \"y\": 1,\n  },\n}\n",
            "{\"servers\":{\"y\":1}}",
            "{\n  \"servers\": {}\n}\n",
        ] {
            let with = added(text);
            assert_eq!(remove(&with, &["servers", "abide"]).unwrap(), text);
            assert_eq!(added(&with), with, "a second time changes nothing");
        }
        let first = "{\"a\": 1, \"b\": 2}";
        assert_eq!(remove(first, &["a"]).unwrap(), "{ \"b\": 2}");
        assert_eq!(remove(first, &["nothing"]).unwrap(), first);
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_line() {
        for (text, line) in [
            ("{\n\"a\": 1\n\"b\": 2}", "line 3"),
            ("{\"a\": nope}", "line 1"),
            ("{\"a\": \"x}", "line 1"),
            ("{} {}", "line 1"),
            ("/* x", "line 1"),
            ("{\"a\": 1e}", "line 1"),
        ] {
            let EditError(why) = set(text, &["servers", "abide"], &1).unwrap_err();
            assert!(why.contains(line), "{text}: {why}");
        }
        assert!(set("{\"servers\": 3}", &["servers", "abide"], &1).is_err());
        assert!(set("[]", &["servers", "abide"], &1).is_err());
        let deep = "[".repeat(10_000);
        assert!(get(&deep, &[]).is_err());
    }
}
