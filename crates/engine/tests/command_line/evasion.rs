//! Command lines that hide a command from a rule, as an agent may write them by accident or on purpose.

use super::*;

#[test]
fn options_of_shells_hide_no_script() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "bash -c -- 'git push -f'",
            "bash -c +x 'git push -f'",
            "bash -co errexit 'git push -f'",
            "bash -eo pipefail -c 'git push -f'",
            "bash -s x <<< 'git push -f'",
            "bash /dev/stdin <<< 'git push -f'",
            ". /dev/stdin <<< 'git push -f'",
            "bash <(echo git push -f)",
            "source <(echo git push -f)",
            "bash $OPTIONS -c 'git push -f'",
            "sh -c '$0 push -f' git",
            "sh -c 'git \"$@\"' _ push --force",
            "trap -- 'git push -f' EXIT",
            "eval -- 'git push -f'",
            "script -qc 'git push -f' /dev/null",
            "su -lc 'git push -f' me",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "bash -s x <<< 'git status'",
            "bash build.sh -c 'git push -f'",
            "bash -c -- 'git status'",
            "trap - EXIT",
        ],
    );
}

#[test]
fn input_of_shells_and_xargs_hides_no_command() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "echo -e '\\x67it push -f' | sh",
            "printf '%s push -f' git | sh",
            "printf 'git push %s' -f | sh",
            "bash <<E\ngit push -f\necho $(date)\nE",
            "cat <<E | sh\ngit push -f $(date)\nE",
            "echo push -f | xargs git",
            "echo 'push -f' | xargs -n 2 git",
            "echo 'git push -f' | xargs -I{} sh -c '{}'",
            "xargs git <<< 'push -f'",
            "echo git push -f | tee /dev/stderr | bash",
            "echo git push -f | cat | bash",
            "at now <<< 'git push -f'",
            "g\\\nit push -f",
            "# comment \\\ngit push -f",
            "echo a\\\\\ngit push -f",
        ],
    );
    all(&builtin(), Action::Deny, &["echo / | xargs rm -rf"]);
    all(
        &builtin(),
        Action::Allow,
        &[
            "echo a b | xargs rm -rf",
            "ls | xargs git add",
            "printf '%s\\n' a | sh",
        ],
    );
}

#[test]
fn programs_that_run_others_hide_no_command() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "git-push -f",
            "/usr/lib/git-core/git-push --force origin main",
            "git -c alias.a=status -c alias.p=push p -f",
            "git submodule foreach 'git push -f'",
            "git submodule foreach --recursive git push -f",
            "git rebase -x 'git push -f' main",
            "git bisect run git push -f",
            "alias p='git push -f'; p",
            "taskset -c 0 git push -f",
            "valgrind --tool=none git push -f",
            "systemd-run --user git push -f",
            "uv run git push -f",
            "uv run --with x git push -f",
            "poetry run git push -f",
            "direnv exec . git push -f",
            "op run -- git push -f",
            "kubectl exec pod -- terraform apply",
            "hyperfine 'git push -f'",
            "docker compose exec web git push -f",
            "tmux new -d 'git push -f'",
            "run0 true",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "uv run pytest -f",
            "taskset 1 make",
            "tmux new -d 'make test'",
            "git-lfs pull",
        ],
    );
}

#[test]
fn words_that_are_not_known_ask_if_they_could_make_a_rule_match() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "$A$B push --force",
            "$KUBECTL delete ns x",
            "$RM -rf /",
            "x=push; git $x -f",
            "f() { git \"$@\"; }; f push --force",
            "for a in push; do git $a --force; done",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "git push origin \"$BRANCH\"",
            "rm -f x && git push origin \"$(git branch --show-current)\"",
            "git commit -m \"$MESSAGE\"",
            "kubectl get \"$KIND\"; echo delete",
            "$PYTHON -m pytest",
            "git add * && git push",
        ],
    );
}

#[test]
fn begin_of_a_long_option_is_the_option() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "git push --mirr",
            "git push --delet origin x",
            "rm --recurs -f .git",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &["git push --dry-run", "git push --force-with-lease"],
    );
}

#[test]
fn working_directory_by_its_variable_is_the_working_directory() {
    all(
        &builtin(),
        Action::Deny,
        &[
            "rm -rf $PWD",
            "rm -rf \"${PWD}\"",
            "rm -rf \"$(pwd)\"",
            "cd ~ && rm -rf \"$PWD/\"",
            "cd && rm -rf *",
            "cd ~/src/.. && rm -rf ./*",
            "cd / && rm -rf $PWD/*",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &["rm -rf $PWD/build", "rm -rf \"$(pwd)/target\""],
    );
}

#[test]
fn quotes_in_text_that_cannot_be_parsed_hide_no_program() {
    let many = ":;".repeat(1_001);
    all(&builtin(), Action::Ask, &[&format!("{many} gi''t push -f")]);
}
