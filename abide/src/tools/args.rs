//! Arguments as they came, read field by field. What is wrong is said in one sentence that names the
//! field, what was given and what is allowed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use abide_core::Millis;
use abide_output::printable::is_invisible;
use serde_json::{Map, Value};

use super::Context;
use abide_engine::search::Pattern;

/// A tool's arguments. Each field is taken out when read; what is left over is unknown.
pub struct Args {
    fields: Map<String, Value>,
}

/// Input that is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// Longest text of one argument, in bytes.
const TEXT_LIMIT: usize = 1 << 20;

impl Args {
    /// Arguments as a client sent them.
    pub fn new(fields: Map<String, Value>) -> Self {
        Args { fields }
    }

    /// Takes a field out; `null` counts as absent, since many clients send it for that.
    fn take(&mut self, field: &str) -> Option<Value> {
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    /// A text, where there is one.
    pub fn text(&mut self, field: &str) -> Result<Option<String>, BadInput> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.contains('\0') => Err(BadInput(format!(
                "`{field}` must be text without NUL bytes; got one at byte {}.",
                text.find('\0').unwrap_or(0)
            ))),
            Some(Value::String(text)) if text.len() > TEXT_LIMIT => Err(BadInput(format!(
                "`{field}` must be at most {TEXT_LIMIT} bytes long; got {}.",
                text.len()
            ))),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(field, "text", &other)),
        }
    }

    /// A text that must be there.
    pub fn required_text(&mut self, field: &str) -> Result<String, BadInput> {
        self.text(field)?.ok_or_else(|| {
            BadInput(format!(
                "`{field}` is required and must be text; got nothing."
            ))
        })
    }

    /// Yes or no.
    pub fn flag(&mut self, field: &str) -> Result<bool, BadInput> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(field, "true or false", &other)),
        }
    }

    /// A whole number within bounds.
    pub fn whole(
        &mut self,
        field: &str,
        allowed: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, BadInput> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let (least, most) = (allowed.start(), allowed.end());
        // 5.0 is a whole number too, and some clients know no other kind.
        let whole = value.as_u64().or_else(|| {
            value
                .as_f64()
                .filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n))
                .map(|n| n as u64)
        });
        match whole {
            Some(number) if allowed.contains(&number) => Ok(Some(number)),
            _ => Err(wrong(
                field,
                &format!("a whole number from {least} to {most}"),
                &value,
            )),
        }
    }

    /// Whole seconds, at least one.
    pub fn whole_seconds(&mut self, field: &str) -> Result<Option<Millis>, BadInput> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let most = Millis::MAX.0 / 1_000;
        let whole = value.as_u64().or_else(|| {
            value
                .as_f64()
                .filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n))
                .map(|n| n as u64)
        });
        match whole {
            Some(secs) if (1..=most).contains(&secs) => Ok(Some(Millis::from_secs(secs))),
            _ => Err(wrong(
                field,
                "a whole number of seconds, at least 1 and at most 100 years",
                &value,
            )),
        }
    }

    /// Seconds, fractions allowed, more than none.
    pub fn seconds(&mut self, field: &str) -> Result<Option<Millis>, BadInput> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let most = Millis::MAX.0 as f64 / 1_000.0;
        match value.as_f64() {
            Some(secs) if secs.is_finite() && secs > 0.0 && secs <= most => {
                Ok(Some(in_millis(secs)))
            }
            _ => Err(wrong(
                field,
                "a number of seconds above 0 and at most 100 years",
                &value,
            )),
        }
    }

    /// Whatever it is, where there is something.
    pub fn any(&mut self, field: &str) -> Option<Value> {
        self.take(field)
    }

    /// Text for a command's input; NUL is as good as any other byte there.
    pub fn stdin(&mut self, field: &str) -> Result<Option<String>, BadInput> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(field, "text", &other)),
        }
    }

    /// Text that may hold anything.
    pub fn anything(&mut self, field: &str) -> Result<Option<String>, BadInput> {
        self.stdin(field)
    }

    /// The same, where some write it as a number.
    pub fn anything_or_number(&mut self, field: &str) -> Result<Option<String>, BadInput> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(wrong(field, "text", &other)),
        }
    }

    /// A value of any kind.
    pub fn value(&mut self, field: &str) -> Option<Value> {
        self.take(field)
    }

    /// Yes or no, where it is said at all.
    pub fn flag_or(&mut self, field: &str, otherwise: bool) -> Result<bool, BadInput> {
        match self.take(field) {
            None => Ok(otherwise),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(field, "true or false", &other)),
        }
    }

    /// Seconds, fractions allowed, or none at all.
    pub fn patience(&mut self, field: &str) -> Result<Option<Millis>, BadInput> {
        let given = self.fields.get(field).cloned().unwrap_or_default();
        if given.as_f64() == Some(0.0) {
            self.take(field);
            return Ok(Some(Millis(0)));
        }
        let allowed = "a number of seconds from 0 to 100 years";
        self.seconds(field)
            .map_err(|_| wrong(field, allowed, &given))
    }

    /// A regular expression.
    pub fn pattern(&mut self, field: &str) -> Result<Option<Pattern>, BadInput> {
        let Some(text) = self.text(field)? else {
            return Ok(None);
        };
        let pattern = Pattern::new(&text).map_err(|fault| {
            let given = shown_text(&text);
            BadInput(format!(
                "`{field}` must be a regular expression; got {given}: {fault}."
            ))
        })?;
        Ok(Some(pattern))
    }

    /// A list of words, or one text of words with blanks or commas between them.
    pub fn words(&mut self, field: &str, most: usize) -> Result<Vec<String>, BadInput> {
        let words: Vec<String> = match self.take(field) {
            None => Vec::new(),
            Some(Value::String(text)) => text
                .split([' ', ','])
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
            Some(Value::Array(list)) => list
                .into_iter()
                .map(|word| match word {
                    Value::String(word) => Ok(word),
                    other => Err(wrong(field, "a list of texts", &other)),
                })
                .collect::<Result<_, _>>()?,
            Some(other) => return Err(wrong(field, "a list of texts", &other)),
        };
        if words.len() > most {
            return Err(BadInput(format!(
                "`{field}` must hold at most {most}; got {}.",
                words.len()
            )));
        }
        Ok(words)
    }

    /// A folder; a relative one is meant from the agent's root folder, `~` from its home.
    pub fn folder(&mut self, field: &str, context: &Context) -> Result<PathBuf, BadInput> {
        let text = self.text(field)?.filter(|text| !text.is_empty());
        Ok(text.map_or_else(|| context.root.clone(), |text| full_path(&text, context)))
    }

    /// Variables to set; `null` takes one away.
    pub fn env(&mut self, field: &str) -> Result<Vec<(OsString, Option<OsString>)>, BadInput> {
        let given = match self.take(field) {
            None => return Ok(Vec::new()),
            Some(Value::Object(given)) => given,
            Some(other) => return Err(wrong(field, "an object of names and text values", &other)),
        };
        let mut env = Vec::with_capacity(given.len());
        for (name, value) in given {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(BadInput(format!(
                    "`{field}` names must not be empty and must hold neither '=' nor NUL; got {}.",
                    shown(&Value::String(name))
                )));
            }
            let value = match value {
                Value::Null => None,
                Value::String(text) if !text.contains('\0') => Some(text.into()),
                Value::Number(number) => Some(number.to_string().into()),
                Value::Bool(flag) => Some(flag.to_string().into()),
                other => {
                    return Err(wrong(
                        &format!("{field}.{name}"),
                        "text without NUL bytes",
                        &other,
                    ));
                }
            };
            env.push((name.into(), value));
        }
        Ok(env)
    }

    /// All fields have been read: what is left is none of the tool's.
    pub fn finish(self, known: &str) -> Result<(), BadInput> {
        self.finish_of("this tool", known)
    }

    /// The same for a part of a tool that has fields of its own.
    pub fn finish_of(self, part: &str, known: &str) -> Result<(), BadInput> {
        match self.fields.into_iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((field, _)) => Err(BadInput(format!(
                "`{}` is not a field of {part}; the fields are {known}.",
                shown_text(&field)
            ))),
        }
    }
}

/// A relative path is meant from the agent's root folder, `~` from its home.
pub(super) fn full_path(text: &str, context: &Context) -> PathBuf {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = context.env.iter().find(|(name, _)| name == "HOME");
            let home = home.map_or(Path::new("/"), |(_, home)| Path::new(home));
            home.join(rest.trim_start_matches('/'))
        }
        _ => context.root.join(text),
    }
}

/// Never less than was asked for, and at least one. But 2.007 seconds, which is a little more than
/// 2007 milliseconds once it is multiplied, means just these.
fn in_millis(secs: f64) -> Millis {
    const ROUNDING: f64 = 1e-12;
    let exact = secs * 1_000.0;
    let near = exact.round();
    let meant = match (exact - near).abs() <= near * ROUNDING {
        true => near,
        false => exact.ceil(),
    };
    Millis((meant as u64).max(1))
}

fn wrong(field: &str, allowed: &str, given: &Value) -> BadInput {
    BadInput(format!(
        "`{field}` must be {allowed}; got {}.",
        shown(given)
    ))
}

fn shown(value: &Value) -> String {
    shown_text(&value.to_string())
}

/// What was given, short enough for one sentence and harmless to show.
pub(crate) fn shown_text(text: &str) -> String {
    const MOST: usize = 80;
    let clean: String = text
        .chars()
        .map(|c| match c.is_control() || is_invisible(c) {
            true => '\u{FFFD}',
            false => c,
        })
        .collect();
    match clean.char_indices().nth(MOST) {
        None => clean,
        Some((cut, _)) => format!("{}…", &clean[..cut]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_what_was_written() {
        for millis in (1..5_000).chain([10_203_007, 86_400_001, 3_153_600_000_000]) {
            let written: f64 = format!("{}.{:03}", millis / 1_000, millis % 1_000)
                .parse()
                .expect("a number");
            assert_eq!(in_millis(written), Millis(millis));
        }
        for (secs, millis) in [
            (0.1 + 0.2, 300),
            (0.000_1, 1),
            (1e-300, 1),
            (1.000_1, 1_001),
        ] {
            assert_eq!(in_millis(secs), Millis(millis), "{secs}");
        }
    }
}
