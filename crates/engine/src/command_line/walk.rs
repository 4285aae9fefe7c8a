//! Walk over a syntax tree: finds every simple command, in order, and follows the state of the shell.

use abide_core::policy::{Origin, Redirect, SimpleCommand, Word};
use tree_sitter::{Node, Tree};

use super::control_flow::Function;
use super::names::{
    NAME_TABLES, changed_variables, changes_meaning, changes_names, hides_program, names_variable,
    sets_names,
};
use super::variables::{default_of, visit};
use super::word::{Source, collect_inner, has_braces, word, words};
use super::wrapper::joined;
use super::{Added, Input, MAX_LEVELS, NOT_SHELL, Reader, Scope, TOO_DEEP, braces, values};

/// Levels of the tree below which the walk stops. Each nested construct takes a few levels.
const MAX_DEPTH: usize = 4 * MAX_LEVELS;

/// Words that are never the name of a program where one is expected.
const RESERVED_WORDS: &[&str] = &[
    "!", "{", "}", "[[", "]]", "if", "then", "elif", "else", "fi", "case", "esac", "for", "while",
    "until", "do", "done", "select",
];

/// Adds the commands of a script to the reader.
pub(super) fn walk<'a>(
    reader: &'a mut Reader,
    text: &'a str,
    tree: &'a Tree,
    scope: Scope,
) -> Added {
    let mut walker = Walker {
        reader,
        text,
        input: scope.input.clone(),
        scope,
        origin: Origin::Plain,
        levels: 0,
        depth: 0,
        functions: Vec::new(),
        numbers: Vec::new(),
        calls: 0,
        is_made_up: false,
        has_variables: false,
    };
    let mut assigned = Vec::new();
    visit(tree.root_node(), &mut |node| {
        walker.reader.names_changed |= sets_names(node, text);
        let is_arithmetic = |above: Node<'_>| above.kind().ends_with("_expression");
        if matches!(node.kind(), "variable_name" | "word")
            && node.parent().is_some_and(is_arithmetic)
        {
            walker.numbers.push(&text[node.byte_range()]);
        }
        if node.kind() == "expansion"
            && let Some(default) = default_of(&text[node.byte_range()])
            && default.assigns
        {
            assigned.push((default.name, default.value.trim_matches(['\'', '"'])));
        }
    });
    for (name, value) in assigned {
        walker.set_variable(name, value)?;
    }
    walker.visit(tree.root_node())?;
    walker.functions_without_call()
}

pub(super) struct Walker<'a> {
    pub(super) reader: &'a mut Reader,
    pub(super) text: &'a str,
    scope: Scope,
    origin: Origin,
    levels: usize,
    depth: usize,
    /// Standard input of the command that is visited.
    pub(super) input: Input,
    /// Functions that the script has defined so far.
    pub(super) functions: Vec<Function<'a>>,
    /// Variables that arithmetic may set.
    numbers: Vec<&'a str>,
    /// Calls of functions around the command that is visited.
    pub(super) calls: usize,
    /// The text does not tell the program of the command that is visited.
    is_made_up: bool,
    /// Words of the command that is visited have values of variables.
    has_variables: bool,
}

impl<'a> Walker<'a> {
    pub(super) fn visit(&mut self, node: Node<'a>) -> Added {
        if self.depth >= MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        self.depth += 1;
        let result = self.visit_kind(node);
        self.depth -= 1;
        result
    }

    fn visit_kind(&mut self, node: Node<'a>) -> Added {
        match node.kind() {
            "program" => self.children(node),
            "list" => self.list(node),
            "command" => self.command(node, Vec::new(), Vec::new()),
            "redirected_statement" => self.redirected(node),
            "declaration_command" | "unset_command" => self.declaration(node),
            "variable_assignment" | "variable_assignments" => self.assignment(node),
            "pipeline" => self.pipeline(node),
            "subshell" | "command_substitution" | "process_substitution" => self.nested(node),
            "function_definition" => {
                self.define(node);
                Ok(())
            }
            "if_statement" | "case_statement" => self.level(|walker| walker.branches(node)),
            "for_statement" => self.level(|walker| walker.for_loop(node)),
            "while_statement" | "c_style_for_statement" => {
                self.level(|walker| walker.conditional_loop(node))
            }
            "compound_statement" | "do_group" | "else_clause" | "elif_clause" | "case_item"
            | "negated_command" => self.level(|walker| walker.children(node)),
            _ => self.inner(node),
        }
    }

    /// Text and state for reading words.
    pub(super) fn source(&self) -> Source<'_> {
        Source {
            text: self.text,
            shell: &self.reader.shell,
        }
    }

    pub(super) fn children(&mut self, node: Node<'a>) -> Added {
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            // What runs in the background changes no directory.
            let background = child.next_sibling().is_some_and(|next| next.kind() == "&");
            match background {
                true => self.child(|walker| walker.visit(child))?,
                false => self.visit(child)?,
            }
        }
        Ok(())
    }

    /// Counts a level of nesting.
    pub(super) fn level(&mut self, visit: impl FnOnce(&mut Self) -> Added) -> Added {
        if self.levels >= MAX_LEVELS {
            return Err(TOO_DEEP);
        }
        self.levels += 1;
        let result = visit(self);
        self.levels -= 1;
        result
    }

    fn nested(&mut self, node: Node<'a>) -> Added {
        let origin = match node.kind() {
            "subshell" => self.origin.clone(),
            _ => Origin::Substitution,
        };
        let before = std::mem::replace(&mut self.origin, origin);
        let input = std::mem::replace(&mut self.input, Input::None);
        self.level(|walker| walker.child(|walker| walker.children(node)))?;
        self.origin = before;
        self.input = input;
        Ok(())
    }

    /// Visits the substitutions in a node that is no command.
    fn inner(&mut self, node: Node<'a>) -> Added {
        let mut inner = Vec::new();
        collect_inner(node, &mut inner);
        self.visit_all(inner)
    }

    pub(super) fn visit_all(&mut self, nodes: Vec<Node<'a>>) -> Added {
        nodes.into_iter().try_for_each(|node| self.visit(node))
    }

    /// `a && b || c`: the tree is as deep as the list is long, so the list is visited without recursion.
    fn list(&mut self, node: Node<'a>) -> Added {
        let mut rest = Vec::new();
        let mut first = node;
        while first.kind() == "list" {
            let mut cursor = first.walk();
            let mut parts: Vec<Node<'a>> = first.children(&mut cursor).collect();
            let Some(next) = parts.first().copied() else {
                break;
            };
            parts.remove(0);
            rest.extend(parts.into_iter().rev());
            first = next;
        }
        self.visit(first)?;
        let mut may_be_skipped = false;
        for part in rest.into_iter().rev() {
            if !part.is_named() {
                may_be_skipped = part.kind() == "||";
                continue;
            }
            let before = may_be_skipped.then(|| self.reader.shell.clone());
            self.visit(part)?;
            self.join(before.into_iter().collect());
        }
        Ok(())
    }

    fn pipeline(&mut self, node: Node<'a>) -> Added {
        let mut cursor = node.walk();
        let parts: Vec<Node<'a>> = node.named_children(&mut cursor).collect();
        let begin = std::mem::replace(&mut self.input, Input::None);
        // The first command of a pipeline has the input of the pipeline.
        self.input = begin.clone();
        for part in parts {
            let printed = self.printed(part);
            self.level(|walker| walker.child(|walker| walker.visit(part)))?;
            self.input = printed;
        }
        self.input = begin;
        Ok(())
    }

    /// Output of a command in a pipeline.
    fn printed(&self, node: Node<'a>) -> Input {
        let body = node.child_by_field_name("body");
        let (mut redirects, mut late_words) = (Vec::new(), Vec::new());
        let (mut inner, mut behind) = (Vec::new(), Vec::new());
        let mut input = self.input.clone();
        let mut all = Vec::new();
        for part in body.into_iter().chain([node]) {
            let mut cursor = part.walk();
            for child in part.named_children(&mut cursor) {
                match child.kind() {
                    "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {
                        let given = self.redirect(
                            child,
                            &mut redirects,
                            &mut late_words,
                            &mut inner,
                            &mut behind,
                        );
                        input = given.unwrap_or(input);
                    }
                    "variable_assignment" | "command" => {}
                    _ => all.extend(words(child, self.source(), &mut inner)),
                }
            }
        }
        all.extend(late_words);
        self.reader.output(&all, &input, &self.reader.shell.folder)
    }

    fn assignment(&mut self, node: Node<'a>) -> Added {
        if node.kind() == "variable_assignments" {
            return self.children(node);
        }
        let (name, value) = self.variable(node, &mut Vec::new());
        self.inner(node)?;
        match self.array(node) {
            Some(elements) => self.reader.shell.set_array(&name, &elements),
            None => self.assign(&name, &value),
        }
        self.set_variable(&name, &joined(&[value]))
    }

    /// Elements of `NAME=(…)`.
    fn array(&self, assignment: Node<'a>) -> Option<Vec<Word>> {
        let value = assignment.child_by_field_name("value")?;
        let name = assignment.child_by_field_name("name")?;
        let is_plain = self.text[name.end_byte()..value.start_byte()] == *"=";
        if value.kind() != "array" || !is_plain {
            return None;
        }
        let mut cursor = value.walk();
        let elements = value.named_children(&mut cursor);
        Some(
            elements
                .flat_map(|element| words(element, self.source(), &mut Vec::new()))
                .collect(),
        )
    }

    /// Gives a variable a value.
    pub(super) fn assign(&mut self, name: &str, value: &Word) {
        match self.numbers.contains(&name) {
            true => self.reader.shell.set(name, &Word::unknown()),
            false => self.reader.shell.set(name, value),
        }
    }

    /// Handles the commands in the value of a variable that the script sets.
    fn set_variable(&mut self, name: &str, value: &str) -> Added {
        if changes_names(name) {
            self.reader.names_changed = true;
        }
        if NAME_TABLES.contains(&name) {
            let words = vec![Word::literal("declare"), Word::literal(name)];
            self.finish(words, Vec::new(), Vec::new(), Input::None)?;
        }
        let inside = Scope {
            scripts: self.scope.scripts + 1,
            ..self.scope.clone()
        };
        values::add_variable(self.reader, name, value, &inside)
    }

    fn variable(&self, node: Node<'a>, inner: &mut Vec<Node<'a>>) -> (String, Word) {
        let source = &self.text[node.byte_range()];
        let name = source.split(['=', '[', '+']).next().unwrap_or_default();
        let is_plain = source[name.len()..].starts_with('=');
        let value = match node.child_by_field_name("value") {
            Some(value) if value.kind() == "array" || !is_plain => {
                collect_inner(value, inner);
                Word::unknown()
            }
            Some(value) => word(value, self.source(), inner),
            None => Word::literal(""),
        };
        (name.to_owned(), value)
    }

    /// `export`, `declare` and the like, and `unset`.
    fn declaration(&mut self, node: Node<'a>) -> Added {
        let source = &self.text[node.byte_range()];
        let program = source.split_whitespace().next().unwrap_or_default();
        let mut words = vec![Word::literal(program)];
        let mut inner = Vec::new();
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            words.push(match child.kind() {
                "variable_assignment" => {
                    let (name, value) = self.variable(child, &mut inner);
                    self.assign(&name, &value);
                    let mut whole = Word::literal(&format!("{name}="));
                    whole.pieces.extend(value.pieces);
                    whole
                }
                _ => word(child, self.source(), &mut inner),
            });
        }
        self.visit_all(inner)?;
        self.finish(words, Vec::new(), Vec::new(), Input::None)?;
        self.reader.names_changed = true;
        Ok(())
    }

    /// Command with redirections behind it. Words after a redirection are arguments of the command.
    fn redirected(&mut self, node: Node<'a>) -> Added {
        let mut redirects = Vec::new();
        let mut late_words = Vec::new();
        let mut behind = Vec::new();
        let mut input = None;
        let mut inner = Vec::new();
        let mut cursor = node.walk();
        for child in node.children_by_field_name("redirect", &mut cursor) {
            let given = self.redirect(
                child,
                &mut redirects,
                &mut late_words,
                &mut inner,
                &mut behind,
            );
            input = given.or(input);
        }
        let before = self.input.clone();
        if let Some(input) = input {
            self.input = input;
        }
        let body = node.child_by_field_name("body");
        match body {
            Some(body) if body.kind() == "command" => self.command(body, redirects, late_words)?,
            Some(body) => {
                self.visit(body)?;
                self.redirect_only(redirects)?;
            }
            None => self.redirect_only(redirects)?,
        }
        self.visit_all(inner)?;
        // `cat <<E | sh`: the rest of the line is part of the redirection.
        let body = body.map_or(Input::Unknown, |body| self.heredoc_output(body));
        self.input = body;
        self.visit_all(behind)?;
        self.input = before;
        Ok(())
    }

    /// Output of `cat <<E`.
    fn heredoc_output(&self, body: Node<'a>) -> Input {
        match self.text[body.byte_range()].trim() {
            "cat" | "tee" => self.input.clone(),
            _ => Input::Unknown,
        }
    }

    /// Redirections of something that is no simple command write files all the same.
    fn redirect_only(&mut self, redirects: Vec<Redirect>) -> Added {
        match redirects.iter().any(|redirect| redirect.writes) {
            true => self.finish(vec![Word::literal(":")], Vec::new(), redirects, Input::None),
            false => Ok(()),
        }
    }

    /// Adds one redirection. Returns the input that it gives.
    fn redirect(
        &self,
        node: Node<'a>,
        redirects: &mut Vec<Redirect>,
        late_words: &mut Vec<Word>,
        inner: &mut Vec<Node<'a>>,
        behind: &mut Vec<Node<'a>>,
    ) -> Option<Input> {
        let mut cursor = node.walk();
        match node.kind() {
            "file_redirect" => {
                let source = &self.text[node.byte_range()];
                let mut targets = node.children_by_field_name("destination", &mut cursor);
                let target = targets.next()?;
                late_words.extend(targets.flat_map(|extra| words(extra, self.source(), inner)));
                let duplicates = source.contains(">&") && target.kind() == "number";
                let target = word(target, self.source(), inner);
                if !duplicates {
                    // What is read from the network is also connected to.
                    let shown = target.shown();
                    let connects = shown.starts_with("/dev/tcp/") || shown.starts_with("/dev/udp/");
                    let writes = source.contains('>') || connects;
                    let written = || self.reader.written_text(&target, &self.reader.shell.folder);
                    let given = (!writes).then(|| written().map_or(Input::Unknown, Input::Text));
                    redirects.push(Redirect { writes, target });
                    return given;
                }
                None
            }
            "herestring_redirect" => {
                let given = node.named_child(0)?;
                let given = word(given, self.source(), inner).text();
                Some(given.map_or(Input::Unknown, Input::Text))
            }
            "heredoc_redirect" => Some(self.heredoc(node, redirects, late_words, inner, behind)),
            _ => {
                collect_inner(node, inner);
                None
            }
        }
    }

    /// Adds the parts of a here-document. Returns its text.
    fn heredoc(
        &self,
        node: Node<'a>,
        redirects: &mut Vec<Redirect>,
        late_words: &mut Vec<Word>,
        inner: &mut Vec<Node<'a>>,
        behind: &mut Vec<Node<'a>>,
    ) -> Input {
        let mut cursor = node.walk();
        let mut given = Input::Text(String::new());
        let mut is_quoted = false;
        for child in node.named_children(&mut cursor) {
            match child.kind() {
                "heredoc_body" => {
                    collect_inner(child, inner);
                    let text = &self.text[child.byte_range()];
                    given = Input::Text(match is_quoted {
                        true => text.to_owned(),
                        false => text.replace("\\$", "$").replace("\\`", "`"),
                    });
                }
                "heredoc_start" => {
                    is_quoted = self.text[child.byte_range()].contains(['\'', '"', '\\']);
                }
                "heredoc_end" | "file_descriptor" => {}
                "file_redirect" | "herestring_redirect" => {
                    self.redirect(child, redirects, late_words, inner, behind);
                }
                "word" | "string" | "raw_string" | "concatenation" | "simple_expansion"
                | "expansion" | "number" | "ansi_c_string" => {
                    late_words.extend(words(child, self.source(), inner));
                }
                _ => behind.push(child),
            }
        }
        given
    }

    fn command(
        &mut self,
        node: Node<'a>,
        mut redirects: Vec<Redirect>,
        late_words: Vec<Word>,
    ) -> Added {
        let mut all = Vec::new();
        let mut assignments = Vec::new();
        let mut inner = Vec::new();
        let mut extra = Vec::new();
        let mut behind = Vec::new();
        let mut input = self.input.clone();
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => assignments.push(self.variable(child, &mut inner)),
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {
                    let given =
                        self.redirect(child, &mut redirects, &mut extra, &mut inner, &mut behind);
                    input = given.unwrap_or(input);
                }
                "comment" => {}
                // The parser takes some compound commands, such as `( ! { rm x; } )`, for a program of this name.
                "command_name" if RESERVED_WORDS.contains(&&self.text[child.byte_range()]) => {
                    return Err(NOT_SHELL);
                }
                _ => all.extend(words(child, self.source(), &mut inner)),
            }
        }
        all.append(&mut extra);
        all.extend(late_words);
        self.visit_all(inner)?;
        let name = node.child_by_field_name("name");
        let source = &self.text[node.byte_range()];
        self.has_variables = source.contains(['$', '`']);
        self.is_made_up = name.is_some_and(|name| self.is_made_up(&self.text[name.byte_range()]));
        self.finish(all, assignments, redirects, input)?;
        self.visit_all(behind)
    }

    /// Returns whether the name of a program is made of braces for too many words, or of the changed value of a variable
    /// that the script may set: `${x,,}`, `${x#y}`, `${!x}`.
    fn is_made_up(&self, name: &str) -> bool {
        let is_set = |variable: &str| self.scope.scripts > 0 || names_variable(self.text, variable);
        (has_braces(name) && braces::words(name).is_none()) || changed_variables(name).any(is_set)
    }

    fn finish(
        &mut self,
        words: Vec<Word>,
        assignments: Vec<(String, Word)>,
        redirects: Vec<Redirect>,
        input: Input,
    ) -> Added {
        if words.is_empty() {
            return Ok(());
        }
        if self.call(&words, &input)? {
            return self.redirect_only(redirects);
        }
        let changed = assignments.iter().any(|(name, _)| changes_names(name));
        let command = SimpleCommand {
            words,
            assignments,
            redirects,
            folder: self.reader.shell.folder.clone(),
            origin: self.origin.clone(),
            runs_code: None,
            names_changed: self.reader.names_changed || changed,
            has_variables: std::mem::take(&mut self.has_variables),
            from_default: false,
            hides_program: false,
        };
        let command = SimpleCommand {
            hides_program: std::mem::take(&mut self.is_made_up) || hides_program(&command),
            ..command
        };
        let changes = changes_meaning(&command);
        self.reader.record_written(&command, &input);
        self.reader.add(command, input, &self.scope)?;
        self.reader.names_changed |= changes;
        Ok(())
    }
}
