//! Branches, loops and functions: which state of the shell their commands begin in, and which one they leave.

use abide_core::policy::Word;
use tree_sitter::Node;

use super::shell_state::ShellState;
use super::walk::Walker;
use super::word::words;
use super::{Added, Input, Unparsed};

/// Values of a loop that are tried.
const MAX_VALUES: usize = 8;
/// Calls of functions in functions that are followed.
const MAX_CALLS: usize = 4;
/// Bytes of the bodies of loops and functions that are read more than once in a command line.
const MAX_REPEATED: usize = 256 << 10;

/// Function that the script defines.
pub(super) struct Function<'a> {
    name: String,
    body: Node<'a>,
    /// True if every way through the script defines it.
    is_certain: bool,
    was_called: bool,
}

impl<'a> Walker<'a> {
    /// Visits something that runs in a process of its own.
    pub(super) fn child(&mut self, visit: impl FnOnce(&mut Self) -> Added) -> Added {
        let shell = self.reader.shell.clone();
        visit(self)?;
        self.reader.shell = shell;
        Ok(())
    }

    /// Visits a body once more, as far as the limit allows. Only the commands that are new count.
    fn again(&mut self, body: Node<'a>) -> Added {
        self.reader.repeated += body.byte_range().len() + 1;
        if self.reader.repeated > MAX_REPEATED {
            return Ok(());
        }
        let count = self.reader.commands.len();
        self.visit(body)?;
        self.reader.keep_new(count);
        Ok(())
    }

    /// `if` and `case`: one of the branches runs, or none.
    pub(super) fn branches(&mut self, node: Node<'a>) -> Added {
        let mut begin = self.reader.shell.clone();
        let mut ends = Vec::new();
        let mut has_last = false;
        let mut cursor = node.walk();
        let children: Vec<Node<'a>> = node.named_children(&mut cursor).collect();
        let condition = node.child_by_field_name("condition");
        for child in children {
            if matches!(child.kind(), "elif_clause" | "else_clause" | "case_item") {
                ends.push(std::mem::replace(&mut self.reader.shell, begin.clone()));
                has_last |= child.kind() == "else_clause";
            }
            self.visit(child)?;
            if Some(child) == condition {
                begin = self.reader.shell.clone();
            }
        }
        if !has_last {
            ends.push(begin);
        }
        self.join(ends);
        Ok(())
    }

    /// Takes a state of which only one is certain: this one or one of the others.
    pub(super) fn join(&mut self, others: Vec<ShellState>) {
        for other in others {
            let shell = std::mem::replace(&mut self.reader.shell, other);
            self.reader.shell = shell.joined(&self.reader.shell);
        }
    }

    /// `while` and `until`: a second round begins in the state in which the first one ends.
    pub(super) fn conditional_loop(&mut self, node: Node<'a>) -> Added {
        let before = self.reader.shell.clone();
        self.children(node)?;
        self.join(vec![before.clone()]);
        if let Some(body) = node
            .child_by_field_name("body")
            .filter(|_| self.reader.shell != before)
        {
            self.again(body)?;
            self.join(vec![before]);
        }
        Ok(())
    }

    /// `for`: a round with each value.
    pub(super) fn for_loop(&mut self, node: Node<'a>) -> Added {
        let mut inner = Vec::new();
        let mut cursor = node.walk();
        let values = node.children_by_field_name("value", &mut cursor);
        let values = values.flat_map(|value| words(value, self.source(), &mut inner));
        let mut values: Vec<Word> = values.take(MAX_VALUES).collect();
        self.visit_all(inner)?;
        let is_certain = !values.is_empty() && values.iter().all(|value| value.text().is_some());
        if values.is_empty() {
            values.push(Word::unknown());
        }
        let before = self.reader.shell.clone();
        let variable = node.child_by_field_name("variable");
        let variable = variable.map(|name| &self.text[name.byte_range()]);
        let body = node.child_by_field_name("body");
        for (round, value) in values.iter().enumerate() {
            if let Some(name) = variable {
                self.assign(name, value);
            }
            match (body, round) {
                (Some(body), 0) => self.visit(body)?,
                (Some(body), _) => self.again(body)?,
                (None, _) => {}
            }
        }
        if !is_certain {
            self.join(vec![before]);
        }
        Ok(())
    }

    /// Remembers a function. Its commands are those of its calls.
    pub(super) fn define(&mut self, node: Node<'a>) {
        self.reader.names_changed = true;
        let name = node.child_by_field_name("name");
        if let (Some(name), Some(body)) = (name, node.child_by_field_name("body")) {
            self.functions.push(Function {
                name: self.text[name.byte_range()].to_owned(),
                body,
                is_certain: node.parent().is_some_and(|above| above.kind() == "program"),
                was_called: false,
            });
        }
    }

    /// Visits the body of the function that a command calls. `true`: the command certainly calls it.
    pub(super) fn call(&mut self, words: &[Word], input: &Input) -> Result<bool, Unparsed> {
        let name = words.first().and_then(Word::text);
        let mut functions = self.functions.iter_mut().rev();
        let Some(function) = functions.find(|function| Some(&function.name) == name.as_ref())
        else {
            return Ok(false);
        };
        function.was_called = true;
        let (body, is_certain) = (function.body, function.is_certain);
        if self.calls >= MAX_CALLS {
            return Ok(is_certain);
        }
        let before = self.reader.shell.clone();
        let arguments = words[1..].iter().map(|word| before.resolved(word));
        self.reader.shell.parameters = Some(arguments.collect());
        let outer_input = std::mem::replace(&mut self.input, input.clone());
        self.calls += 1;
        let result = self.again(body);
        self.calls -= 1;
        self.input = outer_input;
        self.reader.shell.parameters.clone_from(&before.parameters);
        if !is_certain {
            self.join(vec![before]);
        }
        result.map(|()| is_certain)
    }

    /// Visits the functions that the script does not call: something else may.
    pub(super) fn functions_without_call(&mut self) -> Added {
        while let Some(function) = self
            .functions
            .iter_mut()
            .find(|function| !function.was_called)
        {
            function.was_called = true;
            let body = function.body;
            self.reader.shell.parameters = None;
            self.child(|walker| walker.level(|walker| walker.visit(body)))?;
        }
        Ok(())
    }
}
