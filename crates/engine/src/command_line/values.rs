//! Command lines that are no words of a command: values of options, of variables and of settings of git, escapes to the
//! shell in the commands of editors, recipes of `make`, addresses of `socat`, and scripts of
//! `expect` and `crontab`.

use abide_core::policy::{Origin, SimpleCommand, Word};

use super::quoted_code::{expansion, has_substitution};
use super::wrapper::{as_script, option_values, script, wrapped};
use super::{Added, Input, NameTable, Names, Reader, Scope, Unparsed};

/// Options whose value is a command line.
const OPTIONS: NameTable = NameTable(
    "ansible: -a --args
    gcloud: --command
    env: -S --split-string
    flock runuser script su: -c --command
    rsync: -e --rsh --rsync-path
    tar: -I --use-compress-program --to-command --checkpoint-action -F --info-script
    tar: --new-volume-script --rsh-command
    man: -P --pager
    sort: --compress-program
    split: --filter
    rg: --pre
    zip: -TT --unzip-command
    npm npx: -c --call
    nc ncat: -e -c --exec --sh-exec
    nodemon: -x --exec
    mapfile readarray compgen complete: -C
    sg: -c
    scp sftp: -S
    git: --upload-pack --receive-pack --exec --extcmd --open-files-in-pager --env-filter
    git: --tree-filter --index-filter --msg-filter --commit-filter",
);

/// Variables whose value is a command line.
const VARIABLES: Names = Names(
    "GIT_SSH_COMMAND GIT_SSH GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_EXTERNAL_DIFF GIT_ASKPASS
     GIT_PROXY_COMMAND SSH_ASKPASS SUDO_ASKPASS SUDO_EDITOR PAGER MANPAGER EDITOR VISUAL FCEDIT
     KUBE_EDITOR BROWSER LESSOPEN LESSCLOSE PROMPT_COMMAND RSYNC_RSH RUSTC_WRAPPER",
);

/// Variables whose value is expanded, with the substitutions in it, when a shell starts or prints a prompt.
const EXPANDED: &[&str] = &["BASH_ENV", "ENV", "PS0", "PS1", "PS2", "PS4"];

/// Settings of git whose value is a command line, by the last part of their names.
const SETTINGS: Names = Names(
    "alternaterefscommand askpass cccmd clean cmd command defaultkeycommand difffilter driver
     editor external fsmonitor gitproxy headercmd helper packobjectshook pager process program
     receivepack sendmailcmd smudge sshcommand textconv tocmd tunnel uploadpack",
);

/// Programs whose own commands run a shell, with what stands before its script.
const ESCAPES: &[(&str, &[&str])] = &[
    ("vim", &["!"]),
    ("vi", &["!"]),
    ("nvim", &["!"]),
    ("view", &["!"]),
    ("ex", &["!"]),
    ("less", &["+!"]),
    ("gdb", &["!", "shell "]),
    ("psql", &["\\!"]),
    ("mysql", &["\\!", "system "]),
    ("sqlite3", &[".shell ", ".system "]),
    ("ed", &["!"]),
    ("ftp", &["!"]),
    ("sftp", &["!"]),
];

/// Adds the commands in the values of a command. `true`: an option has one.
pub(super) fn add(
    reader: &mut Reader,
    outer: &SimpleCommand,
    program: &str,
    input: &Input,
    scope: &Scope,
) -> Result<bool, Unparsed> {
    add_variables(reader, outer, scope)?;
    match program {
        "git" => add_settings(reader, outer, scope)?,
        "sed" => {
            for command in outer.arguments().iter().flat_map(of_sed) {
                script(reader, &command, scope.clone())?;
            }
        }
        "make" | "gmake" => add_recipes(reader, outer, input, scope)?,
        "socat" => {
            for command in outer.arguments().iter().flat_map(of_socat) {
                script(reader, &command, scope.clone())?;
            }
        }
        "expect" | "tclsh" => add_expect(reader, outer, input, scope)?,
        "crontab" => add_crontab(reader, input, scope)?,
        "printf" => add_printed_variable(reader, outer, scope)?,
        "compgen" => {
            for (words, _) in option_values(outer, &["-W"]) {
                add_expanded(reader, &as_script(&words), scope)?;
            }
        }
        _ => {}
    }
    for text in escaped(outer, program, input) {
        script(reader, &text, scope.clone())?;
    }
    let mut has_value = false;
    for option in OPTIONS.of(program) {
        for (value, behind) in option_values(outer, &[option]) {
            // Other actions of a checkpoint run nothing.
            let text = as_script(&value);
            let text = text.strip_prefix("exec=").unwrap_or(&text);
            script(reader, text, scope.clone())?;
            has_value = true;
            // `env -S 'git push' --force`: the words behind the value are arguments of its command.
            if program == "env" && behind < outer.arguments().len() {
                let words = text.split_whitespace().map(Word::literal);
                let words = words.chain(outer.arguments()[behind..].iter().cloned());
                wrapped(reader, words.collect(), outer, input.clone(), scope)?;
            }
        }
    }
    Ok(has_value)
}

/// `printf -v NAME text`.
fn add_printed_variable(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let first = option_values(outer, &["-v"]).into_iter().next();
    let Some((name, behind)) = first.filter(|_| outer.arguments()[0].shown().starts_with("-v"))
    else {
        return Ok(());
    };
    for text in &outer.arguments()[behind..] {
        add_variable(reader, &as_script(&name), &as_script(text), scope)?;
    }
    Ok(())
}

/// Adds the substitutions in a text that the shell expands.
fn add_expanded(reader: &mut Reader, text: &str, scope: &Scope) -> Added {
    match has_substitution(text) {
        true => script(reader, &expansion(text), scope.clone()),
        false => Ok(()),
    }
}

/// Returns whether the value of a variable is a command line.
pub(super) fn is_command(name: &str) -> bool {
    VARIABLES.has(name) || EXPANDED.contains(&name)
}

/// Adds the command of a variable that is set, if its value is one.
pub(super) fn add_variable(reader: &mut Reader, name: &str, value: &str, scope: &Scope) -> Added {
    match name {
        name if EXPANDED.contains(&name) => add_expanded(reader, value, scope),
        // `LESSOPEN='|command %s'` reads from the command.
        name if VARIABLES.has(name) => {
            script(reader, value.trim_start_matches(['|', '-']), scope.clone())
        }
        _ => Ok(()),
    }
}

/// Variables before a command, and those among its words: `env NAME=value`, `export NAME=value`.
fn add_variables(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    // Those of a wrapped command were read with the wrapper.
    let is_wrapped = matches!(outer.origin, Origin::Wrapper(_));
    let mut variables = Vec::new();
    for (name, value) in outer.assignments.iter().filter(|_| !is_wrapped) {
        variables.push((name.clone(), as_script(value)));
    }
    for word in outer.arguments() {
        if let Some((name, value)) = as_script(word).split_once('=') {
            variables.push((name.to_owned(), value.to_owned()));
        }
    }
    add_all_variables(reader, &variables, scope)
}

/// Adds the commands of variables that are set together.
pub(super) fn add_all_variables(
    reader: &mut Reader,
    variables: &[(String, String)],
    scope: &Scope,
) -> Added {
    for (name, value) in variables {
        add_variable(reader, name, value, scope)?;
    }
    for (name, value) in settings_in_variables(variables) {
        if let Some(command) = of_setting(name, value) {
            script(reader, &command, scope.clone())?;
        }
    }
    Ok(())
}

/// Settings of git in `GIT_CONFIG_KEY_0=name GIT_CONFIG_VALUE_0=value`, and in `GIT_CONFIG_PARAMETERS="'name=value'"`.
fn settings_in_variables(variables: &[(String, String)]) -> Vec<(&str, &str)> {
    let value_of = |name: String| {
        let mut all = variables.iter();
        all.find_map(|(known, value)| (*known == name).then_some(value.as_str()))
    };
    let mut found = Vec::new();
    for (name, value) in variables {
        if let Some(number) = name.strip_prefix("GIT_CONFIG_KEY_") {
            let setting = value_of(format!("GIT_CONFIG_VALUE_{number}"));
            found.extend(setting.map(|setting| (value.as_str(), setting)));
        }
        if name == "GIT_CONFIG_PARAMETERS" {
            let mut parts = value.split('\'').filter(|part| !part.trim().is_empty());
            while let Some(part) = parts.next() {
                found.extend(match part.split_once('=') {
                    Some(setting) => Some(setting),
                    // `'name'='value'`
                    None => parts.find(|part| *part != "=").map(|value| (part, value)),
                });
            }
        }
    }
    found
}

/// `git -c name=value` and `git config name value`.
fn add_settings(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let words: Vec<String> = outer.arguments().iter().map(as_script).collect();
    let configures = words.iter().any(|word| word == "config");
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).filter(|_| configures);
        let (name, value) = match (word.split_once('='), next) {
            (Some((name, value)), _) => (name, value),
            (None, Some(value)) => (word.as_str(), value.as_str()),
            (None, None) => continue,
        };
        if let Some(command) = of_setting(name, value) {
            script(reader, &command, scope.clone())?;
        }
    }
    // `git --config-env=name=VARIABLE`
    for (setting, _) in option_values(outer, &["--config-env"]) {
        let setting = as_script(&setting);
        let Some((name, variable)) = setting.split_once('=') else {
            continue;
        };
        let values = outer.assignments.iter().filter(|(set, _)| set == variable);
        for (_, value) in values {
            if let Some(command) = of_setting(name, &as_script(value)) {
                script(reader, &command, scope.clone())?;
            }
        }
    }
    Ok(())
}

/// Command line in a setting of git.
fn of_setting(name: &str, value: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let (section, last) = (name.split('.').next()?, name.rsplit('.').next()?);
    if !name.contains('.') {
        return None;
    }
    let command = value.strip_prefix('!');
    match section {
        "alias" => Some(command.map_or_else(|| format!("git {value}"), str::to_owned)),
        "pager" => Some(value.to_owned()),
        _ => {
            let is_command = SETTINGS.has(last) || command.is_some();
            is_command.then(|| command.unwrap_or(value).to_owned())
        }
    }
}

/// Commands of `e`, or of `s` with the flag `e`, in a script of sed.
fn of_sed(word: &Word) -> Vec<String> {
    let text = as_script(word);
    text.lines().filter_map(of_sed_line).collect()
}

fn of_sed_line(text: &str) -> Option<String> {
    let command = text.trim_start_matches(|c: char| c.is_ascii_digit() || ",$! {".contains(c));
    if let Some(run) = command.strip_prefix("e ") {
        return Some(run.to_owned());
    }
    if let Some((_, run)) = command
        .split_once("/e ")
        .filter(|_| command.starts_with('/'))
    {
        return Some(run.to_owned());
    }
    let rest = command.strip_prefix('s')?;
    let mark = rest
        .chars()
        .next()
        .filter(|mark| mark.is_ascii_punctuation())?;
    let parts: Vec<&str> = rest[mark.len_utf8()..].split(mark).collect();
    let flags = parts.get(2)?;
    flags.contains('e').then(|| parts[1].to_owned())
}

/// Scripts for a shell in the arguments and the input of an editor or a client.
fn escaped(outer: &SimpleCommand, program: &str, input: &Input) -> Vec<String> {
    let marks = ESCAPES.iter().find(|(name, _)| *name == program);
    let marks = marks.map_or(&[] as &[&str], |(_, marks)| marks);
    let texts = outer.arguments().iter();
    let texts = texts.map(as_script);
    let behind = |text: String| {
        let mut found = marks.iter().filter_map(|mark| text.split_once(mark));
        found.next().map(|(_, rest)| rest.to_owned())
    };
    let mut found: Vec<String> = texts.filter_map(behind).collect();
    if let Input::Text(text) = input {
        for line in text.lines().map(str::trim_start) {
            let mut scripts = marks.iter().filter_map(|mark| line.strip_prefix(mark));
            found.extend(scripts.next().map(str::to_owned));
        }
    }
    found
}

/// Commands of the addresses of `socat` that run one: `EXEC:command,options`.
fn of_socat(word: &Word) -> Vec<String> {
    let text = as_script(word);
    let mut found = Vec::new();
    for address in text.split("!!") {
        let Some((kind, command)) = address.split_once(':') else {
            continue;
        };
        let kinds = ["exec", "shell", "system"];
        if kinds.contains(&kind.to_ascii_lowercase().as_str()) {
            // The options behind a comma are no part of the command, but a comma may be.
            found.extend(
                command
                    .split_once(',')
                    .map(|(command, _)| command.to_owned()),
            );
            found.push(command.to_owned());
        }
    }
    found
}

/// `expect -c` or its input: the commands that a script of Tcl runs.
fn add_expect(reader: &mut Reader, outer: &SimpleCommand, input: &Input, scope: &Scope) -> Added {
    let codes = option_values(outer, &["-c"]).into_iter();
    let codes: Vec<String> = codes.map(|(code, _)| as_script(&code)).collect();
    let code = match input {
        Input::Text(text) if codes.is_empty() => text.clone(),
        _ => codes.join("\n"),
    };
    for statement in code.split([';', '\n', '[', ']', '{', '}']) {
        let mut words = statement.split_whitespace();
        if words.any(|word| ["spawn", "exec", "system"].contains(&word)) {
            let command = words.skip_while(|word| word.starts_with('-'));
            let command: Vec<&str> = command.collect();
            let command = command.join(" ");
            let command = command.trim_matches('"');
            script(reader, command, scope.clone())?;
        }
    }
    Ok(())
}

/// `crontab -`: the commands in its input, behind five fields with times or a word such as `@daily`.
fn add_crontab(reader: &mut Reader, input: &Input, scope: &Scope) -> Added {
    let Input::Text(text) = input else {
        return Ok(());
    };
    for line in text.lines().map(str::trim_start) {
        let fields = match line.chars().next() {
            None | Some('#') => continue,
            Some('@') => 1,
            Some(_) => 5,
        };
        let words: Vec<&str> = line.split_whitespace().skip(fields).collect();
        script(reader, &words.join(" "), scope.clone())?;
    }
    Ok(())
}

/// Recipes in the input of `make -f -` and in `--eval`, and `$(shell …)` in the arguments.
fn add_recipes(reader: &mut Reader, outer: &SimpleCommand, input: &Input, scope: &Scope) -> Added {
    let arguments = outer.arguments().iter();
    let arguments = arguments.map(as_script);
    let mut texts: Vec<String> = arguments.collect();
    let eval = option_values(outer, &["--eval", "-E"]).into_iter();
    let mut recipes: Vec<String> = eval.map(|(text, _)| as_script(&text)).collect();
    for (name, value) in &outer.assignments {
        if name.ends_with("MAKEFLAGS") {
            texts.push(as_script(value));
        }
    }
    // The shell of all recipes, and its options.
    for text in &texts {
        match text.split_once('=') {
            Some(("SHELL", shell)) => script(reader, shell, scope.clone())?,
            Some((".SHELLFLAGS", flags)) => {
                let code = flags.split_once("c ").map_or(flags, |(_, code)| code);
                script(reader, code, scope.clone())?;
            }
            _ => {}
        }
    }
    if let Input::Text(text) = input {
        recipes.push(text.clone());
        texts.push(text.clone());
    }
    for line in recipes.iter().flat_map(|text| text.lines()) {
        let recipe = line
            .strip_prefix('\t')
            .or_else(|| Some(line.split_once(':')?.1.split_once(';')?.1));
        if let Some(recipe) = recipe {
            let command = recipe.trim_start_matches(['@', '-', '+', ' ']);
            script(reader, command, scope.clone())?;
        }
    }
    for text in texts {
        for (_, command) in text
            .match_indices("$(shell ")
            .map(|(at, mark)| text[at..].split_at(mark.len()))
        {
            let end = command.find(')').unwrap_or(command.len());
            script(reader, &command[..end], scope.clone())?;
        }
    }
    Ok(())
}
