//! Directory and variables of the shell: what they are when a command runs, and what the built-in rules say about it.

use super::*;

#[test]
fn deletes_of_the_workspace_by_a_path_that_the_shell_keeps_are_denied() {
    all(
        &builtin(),
        Action::Deny,
        &[
            "cd sub; rm -rf \"$OLDPWD\"",
            "cd build; rm -rf ~-",
            "eval 'cd ..'; rm -rf work",
            "echo 'cd ..' > x; . ./x; rm -rf work",
            "command cd ..; rm -rf work",
            "D=$(pwd); cd ..; rm -rf \"$D\"",
            "D=$(git rev-parse --show-toplevel); rm -rf \"$D\"",
            "git rev-parse --show-toplevel | xargs rm -rf",
            "pwd | xargs rm -rf",
            "f() { rm -rf \"$1\"; }; f /",
            "f() { rm -rf \"$@\"; }; f build ~",
            "f() { g \"$1\"; }; g() { rm -rf \"$1\"; }; f ~",
            "set -- build /; rm -rf \"$@\"",
            "set -- build /; shift; rm -rf \"$1\"",
            "dirs=(build ~); rm -rf \"${dirs[@]}\"",
            "dirs=\"build .\"; for d in $dirs; do rm -rf $d; done",
            "x=~/src; rm -rf $x/work",
            "X=''; rm -rf \"$X/\"",
            "rm -rf ~+/",
            "python3 -c 'import os, shutil; shutil.rmtree(os.getcwd())'",
        ],
    );
}

#[test]
fn deletes_of_everything_in_or_above_the_workspace_ask_in_each_state() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "eval 'cd ..'; rm -rf *",
            "cd build; eval 'cd ..'; rm -rf *",
            "B=..; cd \"$B\" && rm -rf *",
            "cd build; up() { cd ..; }; up; rm -rf *",
            "clean() { cd \"$1\" && rm -rf *; }; clean ..",
            "clean() { rm -rf *; }; trap clean EXIT",
            "pushd build; popd; rm -rf *",
            "rm -rf \"$PWD/..\"",
            "rm -rf \"$(dirname \"$(pwd)\")\"",
            "rm -rf \"$(cd .. && pwd)\"",
            "D=$PWD; rm -rf \"${D%/*}\"",
            "rm -rf $(ls -A)",
            "F=(*); rm -rf \"${F[@]}\"",
            "for f in $(ls -A); do rm -rf $f; done",
            "ls -A | while read f; do rm -rf \"$f\"; done",
            "find . -name .git -type d -exec rm -rf {} +",
            "find . -name .git | xargs rm -rf",
            "fd -t f -x rm",
            "if x; then cd build; else rm -rf *; fi",
            "case x in a) cd build;; b) cd ..;; esac; rm -rf *",
            "cd build; while true; do rm -rf *; cd ..; done",
            "for d in build ../..; do cd $d; rm -rf *; done",
            "(cd build); rm -rf *",
            "cd build & rm -rf *",
            "unset D; rm -rf \"$D\"/",
        ],
    );
}

#[test]
fn patterns_for_everything_ask() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "rm -rf ?*",
            "rm -rf **",
            "rm -rf ./**",
            "rm -rf **/*",
            "rm -rf [!.]*",
            "rm -rf .[!.]* ..?*",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &["rm -rf [0-9]*", "rm -rf build-?*", "rm -rf src/**/*.o"],
    );
}

#[test]
fn paths_above_the_workspace_are_not_moved_or_changed_without_a_question() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "mv . /tmp/x",
            "mv ../work /tmp/x",
            "cd ..; mv work /tmp/x",
            "mv ~ /tmp/x",
            "chmod -R 777 ..",
            "chown -R me \"$(dirname \"$PWD\")\"",
            "chgrp -R x ~/src",
            "truncate -s 0 /dev/sda",
            "D=/dev/sda; dd if=/dev/zero of=$D",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "mv x ~",
            "mv build/app .",
            "mv a ../b",
            "mv * build/",
            "chmod -R u+w .",
            "chown -R me ./*",
            "truncate -s 0 log.txt",
        ],
    );
}

#[test]
fn everyday_scripts_with_variables_and_functions_are_not_asked_about() {
    all(
        &builtin(),
        Action::Allow,
        &[
            "B=build; cd \"$B\" && rm -rf *",
            "T=/tmp/x; rm -rf $T/*",
            "D=build; rm -rf \"$D\"/*",
            "clean() { cd \"$1\" && rm -rf *; }; clean build",
            "f() { rm -rf \"$@\"; }; f build dist",
            "pushd build >/dev/null; rm -rf *; popd",
            "F=(build dist); rm -rf \"${F[@]}\"",
            "dirs=\"build dist\"; for d in $dirs; do rm -rf $d; done",
            "for d in a b; do cd $d; rm -rf *; cd ..; done",
            "for d in a b; do cd $d && rm -rf * && cd -; done",
            "if ! cd build; then exit 1; fi; rm -rf *",
            "cd build || exit 1; rm -rf *",
            "mkdir -p build && cd build\nrm -rf *",
            "(cd build; rm -rf *); ls",
            "D=$(git rev-parse --show-toplevel); rm -rf \"$D/build\"",
            "ROOT=$(cd \"$(dirname \"$0\")/..\" && pwd); rm -rf \"$ROOT/dist\"",
            "T=$(mktemp -d); trap 'rm -rf \"$T\"' EXIT; cd \"$T\"; rm -rf *",
            "V=1.2; A=\"app-$V.tgz\"; rm -rf \"$A\" && tar czf \"$A\" dist",
            "for v in 3.9 3.10; do rm -rf .venv-$v; python$v -m venv .venv-$v; done",
            "export D=build; rm -rf $D/*; bash -c 'rm -rf \"$D\"/*'",
            "bash -c 'cd \"$1\" && rm -rf *' _ build",
            "HOME=$(mktemp -d); rm -rf \"$HOME\"",
            "find . -name '*.pyc' | while read f; do rm -rf \"$f\"; done",
            "find . -type d -name dist -exec sh -c 'rm -rf \"$1\"/*' _ {} \\;",
        ],
    );
}

#[test]
fn commands_behind_further_programs_are_found() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "set -- push -f; git \"$@\"",
            "g() { git \"$@\"; }; g push -f",
            "git bisect run sh -c 'git push -f'",
            "mise x -- npm publish",
            "corepack yarn npm publish",
            "rustup run stable cargo publish",
            "cargo ws publish",
            "nix develop -c npm publish",
            "volta run npm publish",
        ],
    );
}

#[test]
fn functions_and_loops_that_repeat_each_other_end() {
    let doubling: String = (0..20)
        .map(|n| format!("f{}() {{ f{n}; f{n}; }}\n", n + 1))
        .collect();
    let nested = "for a in 1 2 3 4 5 6 7 8; do ".repeat(10);
    for text in [
        format!("f0() {{ git push -f; }}\n{doubling}f20"),
        "f() { git push -f; f; f; }; f".to_owned(),
        format!("{nested} git push -f{}", "; done".repeat(10)),
    ] {
        assert_eq!(decide(&builtin(), &text), Action::Ask, "{text}");
    }
}
