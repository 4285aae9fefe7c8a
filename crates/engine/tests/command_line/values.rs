//! Command lines that are no words of a command: in options, variables, settings, recipes and code.

use super::*;

/// Says what the same command decides in all these places.
fn everywhere(expected: Action, command: &str, places: &[&str]) {
    let texts: Vec<String> = places
        .iter()
        .map(|place| place.replace("RUN", command))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    all(&builtin(), expected, &texts);
}

const OPTIONS: [&str; 31] = [
    "tar cf x --checkpoint=1 --checkpoint-action=exec='RUN' y",
    "tar --checkpoint-action exec='RUN' -cf x y",
    "tar -I 'RUN' -xf x",
    "tar --use-compress-program='RUN' -xf x",
    "tar xf x --to-command='RUN'",
    "rsync -e 'RUN' a b:",
    "rsync --rsync-path='RUN' a b:",
    "flock l -c 'RUN'",
    "env -S 'RUN'",
    "man -P 'RUN' ls",
    "sort --compress-program='RUN' x",
    "split --filter='RUN' x",
    "rg --pre 'RUN' x",
    "npm exec -c 'RUN'",
    "nc -e 'RUN' h 1",
    "git fetch --upload-pack='RUN' x",
    "git difftool --extcmd='RUN'",
    "parallel 'RUN' ::: a",
    "fd -x sh -c 'RUN'",
    "tar cf x --checkpoint-action=dot --checkpoint-action=exec='RUN' y",
    "tar cf x --checkpoint-act=exec='RUN' y",
    "tar xf x --to-com 'RUN'",
    "rsync --rs='RUN' a b:",
    "sort --compress-prog='RUN' x",
    "env --split='RUN'",
    "git grep -O'RUN' x",
    "git difftool -x 'RUN'",
    "git clone -u 'RUN' a:b",
    "git ls-remote --exec='RUN' x",
    "scp -S 'RUN' a b:",
    "readarray -C 'RUN' -c 1 x < f",
];

/// Values of commands that a rule asks about by themselves.
const ASKING: [&str; 4] = [
    "runuser -c 'RUN' x",
    "git filter-branch --tree-filter 'RUN'",
    "echo '@daily RUN' | crontab -",
    "crontab - <<E\n# m h\n*/5 * * * * RUN\nE",
];

const VARIABLES: [&str; 18] = [
    "GIT_SSH_COMMAND='RUN' git fetch",
    "export GIT_SSH_COMMAND='RUN'; git fetch",
    "GIT_SSH_COMMAND='RUN'; git fetch",
    "env GIT_SSH_COMMAND='RUN' git fetch",
    "GIT_PAGER='RUN' git log",
    "PAGER='RUN' man ls",
    "EDITOR='RUN' git commit",
    "GIT_EDITOR='RUN' git rebase -i main",
    "GIT_SEQUENCE_EDITOR='RUN' git rebase -i main",
    "VISUAL='RUN' crontab -e",
    "GIT_EXTERNAL_DIFF='RUN' git diff",
    "LESSOPEN='|RUN' less x",
    "RSYNC_RSH='RUN' rsync a b:",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0='!RUN' git p",
    "env GIT_CONFIG_KEY_0=core.pager GIT_CONFIG_VALUE_0='RUN' git log",
    "GIT_CONFIG_PARAMETERS=\"'core.pager=RUN'\" git log",
    "GIT_CONFIG_PARAMETERS=\"'alias.p'='!RUN'\" git p",
    "V='!RUN' git --config-env=alias.p=V p",
];

const SETTINGS: [&str; 13] = [
    "git -c core.sshCommand='RUN' fetch",
    "git -c core.pager='RUN' log",
    "git -c CORE.EDITOR='RUN' commit",
    "git -c pager.log='RUN' log",
    "git -c credential.helper='!RUN' fetch",
    "git -c alias.x='!RUN' x",
    "git clone --config core.fsmonitor='RUN' u",
    "git config alias.x '!RUN' && git x",
    "git config --global diff.external 'RUN'",
    "git -c diff.x.textconv='RUN' diff",
    "git -c sendemail.tocmd='RUN' send-email",
    "git -c submodule.x.update='!RUN' submodule update",
    "git -c protocol.ext.allow=always clone 'ext::RUN'",
];

const SCRIPTS: [&str; 40] = [
    "sed '1e RUN' x",
    "sed -n '/x/e RUN' x",
    "sed 's%.*%RUN%e' x",
    "vim -c '!RUN' x",
    "vim -c ':silent !RUN' x",
    "vim +'!RUN' x",
    "less '+!RUN' x",
    "gdb -batch -ex 'shell RUN'",
    "psql -c '\\! RUN'",
    "make -f - <<E\nall:\n\t@RUN\nE",
    "make -f - <<< 'all: ; RUN'",
    "sh <<E\nRUN\nE",
    "cmd='RUN'; $cmd",
    "cmd='RUN'; eval \"$cmd\"",
    "cmd='RUN'; bash -c \"$cmd\"",
    "cmd='RUN'\n${cmd}",
    "bash -c 'x=\"RUN\"; $x'",
    "python3 -c \"cmd='RUN'; import os; os.system(cmd)\"",
    "node -e \"const c = 'RUN'; require('child_process').execSync(c)\"",
    "awk 'BEGIN { \"RUN\" | getline x }'",
    "awk -v x=1 'BEGIN { system(\"RUN\") }'",
    "awk -F : 'BEGIN { system(\"RUN\") }'",
    "gawk --source='BEGIN { system(\"RUN\") }'",
    "nawk 'BEGIN { system(\"RUN\") }'",
    "perl -e '1;' -e 'system(\"RUN\")'",
    "ruby -e '1' -e 'system(\"RUN\")'",
    "pypy3 -c 'import os; os.system(\"RUN\")'",
    "php -B 'system(\"RUN\");'",
    "luajit -e 'os.execute(\"RUN\")'",
    "Rscript -e 'system(\"RUN\")'",
    "julia -e 'run(`RUN`)'",
    "guile -c '(system \"RUN\")'",
    "make SHELL='RUN'",
    "make .SHELLFLAGS='-c RUN;' x",
    "MAKEFLAGS='--eval=$(shell RUN)' make",
    "sed -n '1{e RUN\n}' x",
    "ed -s x <<< '!RUN'",
    "sqlite3 x <<< '.shell RUN'",
    "psql <<< '\\! RUN'",
    "ssh -o RemoteCommand='RUN' h",
];

#[test]
fn command_in_a_value_is_decided_like_the_plain_command() {
    for (expected, command) in [
        (Action::Deny, "rm -rf /"),
        (Action::Ask, "git push -f"),
        (Action::Ask, "sudo ls"),
        (Action::Allow, "git status"),
    ] {
        for places in [&OPTIONS[..], &VARIABLES, &SETTINGS, &SCRIPTS] {
            everywhere(expected, command, places);
        }
    }
    everywhere(Action::Deny, "rm -rf /", &ASKING);
}

#[test]
fn programs_that_run_packages_and_arguments_hide_no_command() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "npx lerna publish",
            "npx -y cdk deploy",
            "npm exec -- lerna publish",
            "pnpm dlx wrangler deploy",
            "parallel git push ::: -f",
            "fd . -X git push -f",
            "ls | entr -r git push -f",
            "c=git; a=push; $c $a -f",
            "python -c \"import subprocess; c=['git','push','-f']; subprocess.run(c)\"",
            "awk 'BEGIN { c = \"sudo ls\"; system(c) }'",
            "env -S 'git push' --force",
            "compgen -W '$(git push --force)'",
            "make SHELL=sudo",
        ],
    );
}

#[test]
fn ordinary_values_are_not_asked_about() {
    all(
        &builtin(),
        Action::Allow,
        &[
            "PAGER=cat git log",
            "GIT_EDITOR=true git rebase --continue",
            "GIT_SSH_COMMAND='ssh -i ~/.ssh/key' git push",
            "git -c core.pager=cat -c user.name='sudo x' log",
            "git config user.name 'sudo ls'",
            "tar -I zstd -xf x",
            "tar cf x --checkpoint-action=dot y",
            "rsync -av -e 'ssh -p 22' a b:",
            "vim -c wq! x",
            "psql -c 'select 1 where a != 2'",
            "sed -e 's/e /x/' -e '1d' x",
            "make -f - <<E\nall:\n\tcc -o x $<\nE",
            "npx -y prettier --write .",
            "fd -e rs -x wc -l",
            "ls *.c | entr make",
            "ls | parallel gzip",
            "OUT=build; rm -rf \"$OUT\" && mkdir \"$OUT\"",
            "dir=~/src/work/build; rm -rf $dir",
            "python3 -c \"note='sudo ls'; import os; print(note); os.system('ls')\"",
            "awk '{ print \"sudo\" }' file | getline",
            "awk -F: -v name=sudo '$1 == name' /etc/passwd",
            "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' git log",
            "make SHELL=/bin/bash test",
            "tar cf x --checkpoint=100 y",
            "env -S 'python3 -u' x.py",
            "git clone -b main u; git grep -O; git clean -nx src",
        ],
    );
}

#[test]
fn variable_has_the_last_value_that_it_certainly_has() {
    // Its command asks, because the text names a rule; it is not denied.
    all(
        &builtin(),
        Action::Ask,
        &[
            "x=/; read x; rm -rf $x",
            "if y; then x=/; else x=build; fi; rm -rf $x",
            "x=/; ((x = 1)); rm -rf $x",
        ],
    );
    all(&builtin(), Action::Deny, &["x=build; x=/; rm -rf $x"]);
    all(
        &builtin(),
        Action::Allow,
        &[
            "echo $x; x='rm -rf /'",
            "x='rm -rf /'; echo '$x'",
            "x=/; x=build; rm -rf $x",
        ],
    );
}

#[test]
fn variable_with_a_known_value_is_read_as_the_value() {
    let found = commands("x=build; make; rm -rf $x");
    let shown: Vec<String> = found.iter().map(SimpleCommand::shown).collect();
    assert_eq!(shown, ["make", "rm -rf build"]);
    // A rule that allows does not cover it all the same.
    assert_eq!(decide(&closed(), "x=ls; $x"), Action::Ask);
}

#[test]
fn commands_of_socat_expect_and_make_are_read() {
    let places = [
        "socat - EXEC:'RUN'",
        "socat - exec:'RUN',pty,stderr",
        "socat TCP-LISTEN:80,fork SYSTEM:'RUN'",
        "expect -c 'spawn RUN'",
        "expect -c 'set timeout 5; spawn -noecho RUN; expect eof'",
        "expect -c 'puts [exec RUN]'",
        "expect <<E\nspawn RUN\nexpect eof\nE",
        "tclsh <<< 'exec RUN'",
        "lua -e 'os.execute(\"RUN\")'",
        "make --eval='x:;RUN'",
        "make --eval 'x: ; @RUN' x",
        "make --eval='$(shell RUN)'",
        "make 'X=$(shell RUN)'",
        "nodemon --exec 'RUN'",
        "concurrently 'RUN' 'true x'",
        "conda run RUN",
        "ip netns exec a RUN",
        "watchexec -- RUN",
    ];
    everywhere(Action::Deny, "rm -rf /", &places);
    everywhere(Action::Ask, "git push --force", &places);
    everywhere(Action::Allow, "git push", &places);
    all(
        &builtin(),
        Action::Allow,
        &["socat - TCP:host:80", "expect x.exp", "make X=1 all"],
    );
}

fn decide_with(policy: &Policy, text: &str, surroundings: Surroundings<'_>) -> Action {
    let surroundings = Surroundings {
        folder: WORK,
        home: HOME,
        ..surroundings
    };
    let line = crate::command_line::parse(text, surroundings);
    policy.decide(&line, &place()).action
}

#[test]
fn p136_variables_of_a_call_are_read_as_those_of_a_command() {
    let decide = |policy: &Policy, name: &str, value: &str, text: &str| {
        let env = &[(name.to_owned(), value.to_owned())];
        let surroundings = Surroundings {
            env,
            ..Surroundings::default()
        };
        decide_with(policy, text, surroundings)
    };
    let (deny, ask, allow) = (Action::Deny, Action::Ask, Action::Allow);
    for (name, value, expected) in [
        ("GIT_SSH_COMMAND", "rm -rf /", deny),
        ("PAGER", "git push --force", ask),
        ("LESSOPEN", "|rm -rf ~ %s", deny),
        ("GIT_SSH_COMMAND", "ssh -i key", allow),
        ("PAGER", "cat", allow),
        ("TITLE", "rm -rf /", allow),
    ] {
        let found = decide(&builtin(), name, value, "git fetch");
        assert_eq!(found, expected, "{name}={value}");
    }
    let strict = Policy {
        otherwise: ask,
        ..open()
    };
    for (name, expected) in [
        ("BASH_ENV", ask),
        ("LD_PRELOAD", ask),
        ("PATH", ask),
        ("PYTHONPATH", ask),
        ("PYTHONUNBUFFERED", allow),
        ("LANG", allow),
    ] {
        assert_eq!(decide(&strict, name, "x", "ls"), expected, "{name}");
    }
}

#[test]
fn standard_input_of_a_call_is_read_as_the_script_of_a_shell() {
    let decide = |text: &str, stdin: &str| {
        let surroundings = Surroundings {
            stdin: Some(stdin),
            ..Surroundings::default()
        };
        decide_with(&builtin(), text, surroundings)
    };
    for text in [
        "sh",
        "bash -s",
        "cd x && sh",
        "env bash",
        "sh -c sh",
        "xargs -I{} sh -c {}",
    ] {
        assert_eq!(decide(text, "rm -rf /"), Action::Deny, "{text}");
    }
    for text in [
        "cat",
        "wc -l",
        "grep rm",
        "tee file",
        "python3 x.py",
        "echo | sh",
    ] {
        assert_eq!(decide(text, "rm -rf /"), Action::Allow, "{text}");
    }
    assert_eq!(decide("psql", "DROP TABLE a;"), Action::Ask);
}
