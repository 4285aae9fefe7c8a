//! Command lines whose words hide the program: patterns, changed values, code in quotes, tables of names.

use super::*;

#[test]
fn patterns_and_braces_hide_no_program_or_option() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "g?t push --force",
            "gi[t] push --force",
            "[g]it push --force",
            "?it push --force",
            "/usr/bin/g?t push --force",
            "/usr/bin/g* push --force",
            "git pu{sh,ll} --force",
            "{git,push,--force}",
            "git push --for{ce,}",
            "git push -{f,u}",
            "git push -{e..g}",
            "git push -?",
            "gi[[:lower:]] push --force",
            "/usr/bin/gi[!]x] push --force",
            "true -?; echo \"x[$(git push --force)]\"",
            "echo a[;git push --force;]",
            "[[ -v 'a[$(\"git\" push --force)]' ]]",
            "git$IFS'push'$IFS--force",
            "git${IFS%?}push$IFS$9--force",
        ],
    );
    all(
        &builtin(),
        Action::Deny,
        &[
            "rm -r? /",
            "rm -[r]f /",
            "rm -{r,f} /",
            "rm -Rf /",
            "rm -vRf /",
            "rm --recursive --force /",
            "rm -r$X /",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "mkdir -p src/{a,b}/{c,d}",
            "cp x{,.bak}",
            "mv file.{txt,md}",
            "target/debug/deps/app-* --nocapture",
            "./test-?.sh",
            "echo {1..3}",
            "ls [a-z]*.txt",
            "rm -f build-*",
            "git show stash@{0}",
            "IFS=, read -r a b <<< x; echo \"$IFS\"",
        ],
    );
}

#[test]
fn program_that_is_made_of_a_changed_value_asks() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "x=SUDO; ${x,,} ls",
            "x=sudo; ${x^^} ls",
            "x=SUDO; ${x[0],,} ls",
            "x=SUDO; ${a}${x,,} ls",
            "x=xsudo; ${x#x} ls",
            "x=sudox; \"${x%x}\" ls",
            "x=sxdo; ${x/x/u} ls",
            "x=asudo; ${x:1} ls",
            "y=x; ${!y} ls",
            "printf -v x %s sudo; $x ls",
            "sh -c '$0 ls' sudo",
            "sh -c '$1 ls' _ sudo",
            "sh -c '${3} ls' _ a b sudo",
            "hash -p /usr/bin/git ls; ls push --force",
            "builtin hash -p /usr/bin/git ls; ls push --force",
            "BASH_CMDS[ls]=/usr/bin/git; ls push --force",
            "declare -A BASH_CMDS; ls",
            "read BASH_CMDS[ls] <<< /x; ls",
            ": ${BASH_CMDS[ls]:=/usr/bin/git}; ls push --force",
            ": \"${BASH_CMDS[ls]=/usr/bin/git}\"; ls push --force",
            "declare -n r=BASH_CMDS; r[ls]=/usr/bin/git; ls push --force",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "${CC%% *} -c a.c",
            "\"${EDITOR##*/}\" notes",
            "f=a.c; gcc ${f%.c}.o",
            "hash -r; hash git",
            "printf '%s\\n' a; $CC -c a.c",
        ],
    );
}

#[test]
fn code_in_quoted_text_that_a_shell_evaluates_hides_no_command() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "cat <<-E\n\t$(git push --force)\n\tE",
            "cat <<-E\n\t\"`git push --force`\"\n\tE",
            "echo `echo \\`git push --force\\``",
            "PS4='$(git push --force)'; set -x; ls",
            "PS4='$(git push --force)' bash -x -c ls",
            "export PS1='`git push --force`'",
            "[[ -v 'a[$(git push --force)]' ]]",
            "test -v 'a[$(git push --force)]'",
            "[ -v 'a[0+`git push --force`]' ]",
            "[[ 'a[$(git push --force)]' -eq 0 ]]",
            "x='a[$(git push --force)]'; (( x ))",
            "let 'a[$(git push --force)]=1'",
            "declare 'a[$(git push --force)]=1'",
            "printf -v 'a[$(git push --force)]' x",
            "read 'a[$(git push --force)]'",
            "unset \"a[\\$(git push --force)]\"",
            "builtin printf -v 'a[$(git push --force)]' x",
            "command -p printf -v 'a[$(git push --force)]' x",
            "\\printf -v 'a[$(git push --force)]' x",
            "'printf' -v 'a[$(git push --force)]' x",
            "time test -v 'a[$(git push --force)]'",
            "test -v a['$(git push --force)']",
            "test -v a[\\$\\(git\\ push\\ --force\\)]",
            "read x <<< 'a[$(git push --force)]'; echo $((x))",
            "f() { echo $(($1)); }; f 'a[$(git push --force)]'",
            "set -- 'a[$(git push --force)]'; (( $1 ))",
            "for x in 'a[$(git push --force)]'; do (( x )); done",
            "x='$(git push --force)'; echo \"${x@P}\"",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "cat <<-'E'\n\t$(git push --force)\n\tE",
            "cat <<-E\n\ttext with $x\n\tE",
            "echo `echo \\`date\\``",
            "PS4='+ $LINENO: '; set -x; ls",
            "grep 'a[$(git push --force)]' notes",
            "git commit -m 'docs[x]: never $(git push --force)'",
            "[[ $x == 'a b' ]] && [ -n \"$y\" ]",
            "printf '%s\\n' 'a[1]' | test -v x",
            "(( x )) && awk '{ a[$1] = $(2) }' f && node -e 'a[i] = `x`'",
        ],
    );
}

#[test]
fn variable_that_an_expansion_or_printf_sets_hides_no_command() {
    all(
        &builtin(),
        Action::Ask,
        &[
            ": ${PROMPT_COMMAND:=git push --force}",
            ": ${PS4:='$(git push --force)'}; set -x; ls",
            ": \"${GIT_SSH_COMMAND:=git push --force}\"; git fetch",
            "printf -v PS4 '$(git push --force)'; set -x; ls",
            "printf -v GIT_PAGER '%s' 'git push --force'; export GIT_PAGER; git log",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            ": ${EDITOR:=vi}; $EDITOR x",
            ": \"${PATH:=/usr/bin}\"; ls",
            "printf -v PAGER cat; git log",
        ],
    );
    for text in [": ${PATH:=/x}; ls", "ls ${BASH_ENV=x}; ls"] {
        let mut found = commands(text).into_iter();
        assert!(found.any(|found| found.names_changed), "{text}");
    }
}

#[test]
fn shells_under_other_names_hide_no_command() {
    let places = [
        "rbash -c 'RUN'",
        "mksh -c 'RUN'",
        "csh -c 'RUN'",
        "/proc/self/exe -c 'RUN'",
        "/proc/$$/exe -c 'RUN'",
        "$BASH -c 'RUN'",
        "\"$SHELL\" -c 'RUN'",
        "${SHELL} -lc 'RUN'",
        "$0 -c 'RUN'",
        "sg users -c 'RUN'",
        "gdb -batch -ex run --args RUN",
        "sshpass -p x RUN",
        "toybox RUN",
        "cpulimit -l 50 -- RUN",
    ];
    for (expected, command) in [
        (Action::Ask, "git push --force"),
        (Action::Allow, "git push"),
    ] {
        let texts = places.map(|place| place.replace("RUN", command));
        all(&builtin(), expected, &texts.each_ref().map(String::as_str));
    }
    all(
        &builtin(),
        Action::Ask,
        &[
            "bash < <(echo 'git push --force')",
            "xargs git < <(echo push --force)",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "curl -fsSL https://x.example/install | sh",
            "bash < <(curl -s https://x.example)",
            "cat files | xargs git add",
            "sed s/a/b/ x | xargs -n 1 rm -f",
            "awk '{print $0}' x; echo $0 $BASH_VERSION",
        ],
    );
}

#[test]
fn wrappers_of_the_machine_hide_no_command() {
    let wrappers = [
        "linux64",
        "linux32",
        "i386",
        "x86_64",
        "setarch x86_64",
        "setarch -R",
        "prlimit --nofile=10",
        "prlimit -n 10",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1 --library-path /x",
        "/lib/ld-musl-x86_64.so.1",
    ];
    for wrapper in wrappers {
        all(
            &builtin(),
            Action::Ask,
            &[&format!("{wrapper} git push -f")],
        );
        all(
            &builtin(),
            Action::Allow,
            &[&format!("{wrapper} git status")],
        );
    }
}

#[test]
fn file_that_is_opened_for_reading_and_writing_is_written() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "echo x 1<>/dev/sda",
            "exec 3<>/dev/sda; echo x >&3",
            "echo 'git push --force' > x; sh <> x",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &["exec 3<>/dev/tcp/127.0.0.1/80"],
    );
    all(
        &closed(),
        Action::Ask,
        &["ls 1<>x", "ls < /dev/tcp/h/80", "ls </dev/udp/h/53"],
    );
}

#[test]
fn every_way_to_set_a_variable_that_changes_names_counts() {
    let set = [
        "for PATH in /x; do ls; done",
        "select PATH in /x; do ls; done",
        "((PATH=1)); ls",
        "((a=1, LD_PRELOAD=2)); ls",
        "ls $((PATH=1)); ls",
        "for ((PATH=1; PATH<2; PATH++)); do ls; done",
        "let PATH=1; ls",
        "read -r PATH <<< /x; ls",
        "builtin read -r PATH <<< /x; ls",
        "command export PATH=/x; ls",
        "printf -v PATH /x; ls",
        "printf -vPATH /x; ls",
        "mapfile -t PATH; ls",
        "getopts a PATH; ls",
        "XDG_CONFIG_HOME=/x ls",
    ];
    for text in set {
        let last = commands(text).pop();
        assert!(last.is_some_and(|last| last.names_changed), "{text}");
    }
    for text in [
        "for x in PATH; do ls; done",
        "((a=1)); ls",
        "printf PATH; ls",
    ] {
        let last = commands(text).pop();
        assert!(last.is_some_and(|last| !last.names_changed), "{text}");
    }
}
