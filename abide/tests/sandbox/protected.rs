//! Attacks 31 to 50: protected parts of the workspace.

use serde_json::json;

use crate::agents::{call, text};
use crate::harness::{User, as_each_user, count};

/// A repository with a commit, hooks and configuration for editors and agents.
fn repository(user: &User) {
    user.outside(
        "git init -q -b main . && git config user.name a && git config user.email a@b.c && echo 1 > file \
         && mkdir -p .vscode .github/workflows .claude && echo '{}' > .vscode/tasks.json \
         && echo '{}' > .claude/settings.json && echo 'on: push' > .github/workflows/ci.yml \
         && git add . && git commit -qm first",
    );
}

/// Everything outside the sandbox that would run a planted program.
fn state(user: &User) -> String {
    user.outside("cat .git/config; ls -1 .git/hooks; cat .vscode/* .claude/* .github/workflows/*; git status --short")
}

#[test]
fn hooks_and_configuration_cannot_be_changed() {
    as_each_user(|user| {
        repository(user);
        let before = state(user);
        user.refused(
            "31",
            &[
                "echo x > .git/hooks/pre-commit",
                "echo x >> .git/config",
                "echo x > .vscode/tasks.json",
                "echo x > .claude/new",
                "echo x > .github/workflows/new.yml",
            ],
            &["Read-only file system"],
        );
        user.refused(
            "32",
            &[
                "git config core.hooksPath /x",
                "git config core.fsmonitor x",
                "git config alias.x '!sh'",
            ],
            &["Device or resource busy", "Read-only"],
        );
        user.refused(
            "33, 36",
            &[
                "mv .git old && mkdir -p .git/hooks",
                "mv .git/hooks .git/old",
                "mv .github other",
                "mv .vscode other",
            ],
            &["Device or resource busy"],
        );
        user.refused(
            "34",
            &["rm -rf .vscode .claude .github"],
            &["Device or resource busy", "Read-only"],
        );
        user.refused(
            "35",
            &["mv $ROOT/work $ROOT/moved"],
            &["Device or resource busy", "Read-only", "Permission"],
        );
        assert_eq!(state(user), before);
        assert!(!user.exists("work/old") && !user.exists("moved"));
    });
}

#[test]
fn git_works_in_the_workspace() {
    as_each_user(|user| {
        repository(user);
        user.works(
            "46",
            "set -e; echo 2 > file; git add file; git commit -qm second; git checkout -q -b topic; echo 3 > other; git add other; \
             git commit -qm third; git rebase -q main; git stash list; echo 4 > file; git stash -q; git stash pop -q; \
             git commit -qam fourth; git worktree add -q inside; git gc -q; git tag v1; git checkout -q main; git merge -q topic",
        );
        assert_eq!(user.outside("git log --oneline | wc -l").trim(), "4");
        // No other file was created.
        assert_eq!(user.outside("git status --short").trim(), "?? inside/");
    });
}

#[test]
fn no_file_is_left_behind_in_the_workspace() {
    as_each_user(|user| {
        user.outside("git init -q . && git config user.name a && git config user.email a@b.c && touch file && git add . && git commit -qm 1");
        let before = user.outside("find . -not -path './.git/*' | sort");
        user.works("47", "git status");
        assert_eq!(user.outside("find . -not -path './.git/*' | sort"), before);
        assert_eq!(user.outside("git status --short"), "");
    });
}

#[test]
fn worktree_writes_only_its_own_part_of_the_git_directory() {
    as_each_user(|user| {
        user.outside(
            "git init -q -b main ../main && cd ../main && git config user.name a && git config user.email a@b.c \
             && touch file && git add . && git commit -qm 1 && git worktree add -q ../other && rmdir ../work && git worktree add -q ../work",
        );
        user.works(
            "37",
            "echo 2 > file && git add file && git commit -qm second",
        );
        assert_eq!(user.outside("git log --oneline | wc -l").trim(), "2");
        user.refused(
            "37",
            &[
                "echo gitdir: /x > .git",
                "echo x > $ROOT/main/.git/hooks/pre-commit",
                "echo x >> $ROOT/main/.git/config",
                "echo x > $ROOT/main/.git/worktrees/other/index",
                "echo x > $ROOT/main/.git/worktrees/work/commondir",
                "echo x > $ROOT/main/file",
                "mv $ROOT/main/.git/hooks $ROOT/main/.git/old",
                "echo x > $ROOT/main/.git/HEAD",
                "echo x > $ROOT/main/.git/index",
                "mv file $ROOT/main/.git/HEAD",
                "echo x > $ROOT/main/.git/MERGE_HEAD",
                "mkdir $ROOT/main/.git/rebase-merge",
                "echo x > $ROOT/main/.git/info/grafts",
                "echo x > $ROOT/main/.git/objects/info/alternates",
                "touch new && mv new $ROOT/main/.git/shallow",
            ],
            &["Read-only file system", "busy"],
        );
        let told = user.run(
            "cd $ROOT/main/.git; echo x >> config; echo x > HEAD; echo x > worktrees/other/index; mv hooks old; echo x > shallow",
        );
        for name in [
            "config",
            "HEAD",
            "worktrees/other/index",
            "hooks",
            "shallow",
        ] {
            let line = format!("{}  ", user.path("main/.git").join(name).display());
            assert!(told.text.contains(&line), "142: {name}: {told:?}");
        }
        let work = "git branch topic && git tag v1 && git pack-refs --all && git branch -d topic && git repack -qad && git stash list && \
                    echo 3 > file && git commit -qam third && git rebase -q --exec true HEAD~1";
        user.works("37", work);
        assert_eq!(user.outside("git log --oneline | wc -l").trim(), "3");
    });
}

#[test]
fn forged_worktree_does_not_open_another_folder() {
    as_each_user(|user| {
        user.write("outside/git/commondir", ".\n");
        user.write("outside/git/gitdir", "/elsewhere/.git\n");
        user.write(
            "work/.git",
            &format!("gitdir: {}\n", user.path("outside/git").display()),
        );
        user.refused(
            "37",
            &["echo x > $ROOT/outside/git/new"],
            &["Read-only file system"],
        );
        assert!(!user.exists("outside/git/new"));
        user.works("37", "echo x > new");
    });
}

#[test]
fn submodules_and_nested_repositories_are_protected() {
    as_each_user(|user| {
        repository(user);
        user.write("work/.git/modules/sub/config", "[core]\n");
        user.write("work/.git/modules/sub/hooks/sample", "");
        user.outside("mkdir -p nested && git init -q nested/repo && mkdir nested/repo/.vscode && ln -s x nested/repo/.claude");
        user.refused(
            "39",
            &[
                "echo x > .git/modules/sub/config",
                "echo x > .git/modules/sub/hooks/pre-commit",
                "mv .git/modules .git/old",
                "echo x > nested/repo/.git/hooks/pre-commit",
                "mv nested/repo/.git nested/repo/old",
                "mv nested other",
                "echo x > nested/repo/.vscode/settings.json",
                "mkdir nested/repo/.cursor",
                "rm nested/repo/.claude",
                "mkdir new && mv new nested/repo/.idea || { rmdir new; false; }",
            ],
            &["Read-only file system", "busy"],
        );
        user.works(
            "39",
            "echo x > .git/modules/sub/FETCH_HEAD && echo x > nested/repo/file && mkdir nested/.vscode",
        );
    });
}

#[test]
fn symbolic_link_in_a_protected_place_stops_the_start() {
    as_each_user(|user| {
        user.outside("mkdir real && ln -s real .claude");
        let ran = user.run("rm .claude; mkdir .claude; echo x > .claude/settings.json");
        assert!(ran.code != 0, "44: {ran:?}");
        assert!(
            ran.text.contains(".claude") && ran.text.contains("symbolic link"),
            "{ran:?}"
        );
        assert_eq!(user.outside("readlink .claude").trim(), "real");
        user.outside("rm .claude && mkdir .claude");
        user.works("44", "echo x > real/file");
    });
}

#[test]
fn protection_holds_while_another_session_ends() {
    as_each_user(|user| {
        repository(user);
        user.outside("mkfifo ready go");
        let script = "echo ready > ready; read < go; echo x > .git/hooks/pre-commit";
        let mut first = user.spawn(script);
        user.outside("read < ready");
        user.works("49", "true");
        user.outside("echo go > go");
        let status = first.wait().expect("an ending");
        assert!(!status.success());
        assert!(!user.exists("work/.git/hooks/pre-commit"));
    });
}

#[test]
fn protected_paths_that_are_replaced_outside_stay_protected() {
    as_each_user(|user| {
        repository(user);
        user.write("work/.mcp.json", "{}");
        user.outside("mkfifo ready go");
        let attempts = [
            "echo x >> .git/config",
            "git config core.pager x",
            "echo x > .mcp.json",
            "echo x > .vscode/tasks.json",
            "echo x > .vscode/new",
            "rm .mcp.json",
            "mv .mcp.json other",
            "ln .mcp.json other",
            "ln -s .mcp.json link && echo x > link",
            "exec 9< .mcp.json && echo x > /dev/fd/9",
            "truncate -s 0 .mcp.json",
            "python3 -c 'import os; os.truncate(\".mcp.json\", 0)'",
            "mv .vscode other",
        ];
        let attempts = attempts.map(|act| format!("( {act} ) && echo \"done: {act:?}\"; "));
        let script = format!("echo ready > ready; read < go; {}", attempts.concat());
        let running = user.spawn(&script);
        user.outside(
            "read < ready; git config user.nick z; echo '[]' > new && mv new .mcp.json; \
             mv .vscode old && cp -r old .vscode; echo go > go",
        );
        let ran = running.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(!said.contains("done: "), "50: {said}");
        let refused = format!("write  {}", user.path("work/.git/config").display());
        assert!(said.contains(&refused), "50: {said}");
        assert_eq!(user.outside("git config user.nick"), "z\n", "50: {said}");
        assert_eq!(user.read("work/.mcp.json"), "[]\n", "50: {said}");
        assert_eq!(
            user.outside("ls -A .vscode; cat .vscode/*"),
            "tasks.json\n{}\n"
        );
        user.works(
            "50",
            "cat .git/config .mcp.json && echo 2 > file && git commit -qam 2",
        );
    });
}

#[test]
fn commits_reach_git_directories_outside_that_name_the_workspace() {
    as_each_user(|user| {
        let set_up = "export GIT_CONFIG_GLOBAL=$ROOT/state/gitconfig; git config --global user.name a; \
                      git config --global user.email a@b.c; git config --global protocol.file.allow always";
        let commit = "echo 2 > file && git add file && git -c user.name=a -c user.email=a@b.c commit -qm second";
        for made in [
            // A submodule.
            "git init -q ../lib && git -C ../lib commit -q --allow-empty -m 1 && git init -q $HOME/top && \
             git -C $HOME/top submodule --quiet add $ROOT/lib sub && ln -s $HOME/top/sub .",
            // A git directory elsewhere.
            "git init -q --separate-git-dir $HOME/apart.git $HOME/apart && cd $HOME/apart && \
             git config core.worktree $PWD && git commit -q --allow-empty -m 1 && ln -s $PWD $ROOT/work/sub",
            // A worktree with relative paths.
            "git init -q $HOME/main && cd $HOME/main && git commit -q --allow-empty -m 1 && git worktree add -q ../tree && \
             echo ../../../../tree/.git > .git/worktrees/tree/gitdir && echo gitdir: ../main/.git/worktrees/tree > ../tree/.git && \
             ln -s $HOME/tree $ROOT/work/sub",
        ] {
            user.outside(&format!("{set_up}; {made}"));
            let ran = user.run_below("sub", commit);
            assert_eq!(ran.code, 0, "37: {made}: {ran:?}");
            let log = user.outside("git -C sub log --format=%s");
            assert_eq!(log, "second\n1\n", "37: {made}: {ran:?}");
            for attack in [
                "git config core.pager x",
                "echo x > \"$(git rev-parse --git-common-dir)/hooks/pre-commit\"",
                "echo x > .git",
            ] {
                let ran = user.run_below("sub", attack);
                let is_refused = ["Read-only file system", "busy"]
                    .iter()
                    .any(|word| ran.text.contains(word));
                assert!(ran.code != 0 && is_refused, "37: {made}: {attack}: {ran:?}");
            }
            user.outside("rm sub");
        }
    });
}

#[test]
fn commits_to_git_directories_that_do_not_name_the_workspace_fail() {
    as_each_user(|user| {
        user.outside(
            "git init -q $HOME/top && cd $HOME/top && git config user.name a && git config user.email a@b.c && \
             mkdir -p below && touch below/file && git add . && git commit -qm 1 && ln -s $PWD/below $ROOT/work/above && \
             git init -q --separate-git-dir $HOME/apart.git $HOME/apart && ln -s $HOME/apart $ROOT/work/apart",
        );
        let commit =
            "echo 2 > file; git add file; git -c user.name=a -c user.email=a@b.c commit -qm second";
        for workspace in ["above", "apart"] {
            let ran = user.run_below(workspace, commit);
            assert!(ran.code != 0, "37: {workspace}: {ran:?}");
            assert!(
                ran.text.contains("Read-only file system"),
                "37: {workspace}: {ran:?}"
            );
            assert!(
                ran.text.contains("index.lock  it is protected"),
                "37: {workspace}: {ran:?}"
            );
        }
        let ran = user.run_below("above", "git log --format=%s && git diff --stat");
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(
            ran.text.starts_with("1\n") && ran.text.contains("file"),
            "{ran:?}"
        );
    });
}

#[test]
fn read_only_mode_writes_nothing_of_the_workspace() {
    as_each_user(|user| {
        repository(user);
        let options = ["--sandbox", "read-only", "--network", "off"];
        let ran = user.run_in(
            &options,
            "echo x > new; echo x >> file; git commit -qam x; rm -rf .git",
        );
        assert!(count(&ran.text, "Read-only file system") >= 3, "{ran:?}");
        assert_eq!(user.outside("git status --short"), "");
        let ran = user.run_in(
            &options,
            "git log --oneline && cat file && echo x > ~/note && cat ~/note",
        );
        assert_eq!(ran.code, 0, "{ran:?}");
    });
}

#[test]
fn new_repositories_are_allowed_and_reported() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nmode = \"workspace-write\"\n",
        );
        let command = "git init -q sub && echo x > sub/.git/hooks/pre-commit && git init -q --bare bare && ls bare";
        let said = text(&call(user, "shell", &json!({"command": command})));
        assert!(said.contains("STATUS: SUCCESS"), "43: {said}");
        for path in ["sub/.git/hooks", "bare/hooks", "bare/config"] {
            assert!(said.contains(path), "43: {path}: {said}");
        }
        // The next command can no longer change them.
        user.refused(
            "43",
            &[
                "echo x > sub/.git/hooks/pre-commit",
                "echo x > bare/hooks/pre-commit",
                "echo x >> bare/config",
            ],
            &["Read-only file system"],
        );
        user.works(
            "43",
            "git -C bare log 2>&1 | grep -q commits; : > bare/objects/x",
        );
    });
}

#[test]
fn protected_paths_of_other_users_and_on_other_mounts_are_protected() {
    as_each_user(|user| {
        repository(user);
        user.outside("mkdir -p other/hooks .vscode");
        // Belongs to root, and anyone may write it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::os::unix::fs::chown(user.path("work/.vscode"), Some(0), Some(0)).ok();
        std::fs::set_permissions(user.path("work/.vscode"), open).ok();
        user.refused(
            "45",
            &["echo x > .vscode/tasks.json"],
            &["Read-only file system"],
        );
        let script = format!(
            "mount --bind other/hooks .git/hooks && {} run --sandbox workspace-write -- \
             bash -c 'echo x > .git/hooks/pre-commit; umount .git/hooks; echo y > file && cat file'",
            user.path("abide-program").display()
        );
        let ran = user.in_user_namespace(&script);
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(
            said.contains("pre-commit: Read-only file system"),
            "45: {said}"
        );
        assert!(said.starts_with("y\n"), "45: {said}");
        assert!(!user.exists("work/other/hooks/pre-commit"), "45");
    });
}

#[test]
fn git_directories_of_deep_submodules_and_other_worktrees_are_protected() {
    as_each_user(|user| {
        repository(user);
        user.outside(
            "git init -q --bare .git/modules/vendor/deep/lib && git worktree add -q ../other && \
             git config extensions.worktreeConfig true && git init -q --bare .git/modules/a/modules/b/c",
        );
        user.refused(
            "39",
            &[
                "echo x >> .git/modules/vendor/deep/lib/config",
                "echo x > .git/modules/vendor/deep/lib/hooks/pre-commit",
                "mv .git/modules/vendor .git/modules/old",
                "echo x >> .git/modules/a/modules/b/c/config",
                "echo /tmp > .git/worktrees/other/commondir",
                "echo /tmp > .git/worktrees/other/gitdir",
                "mv .git/worktrees/other .git/worktrees/old",
                "echo x > .git/worktrees/other/config.worktree",
            ],
            &["Read-only file system", "busy"],
        );
        user.works("39", "git worktree add -q inside && git worktree list");
        assert_eq!(user.outside("git -C ../other status --short"), "");
    });
}

#[test]
fn git_configuration_that_does_not_exist_cannot_be_made() {
    as_each_user(|user| {
        user.outside(
            "git init -q --template= . && git config user.name a && git config user.email a@b.c && \
             git config extensions.worktreeConfig true && touch file && git add . && git commit -qm 1",
        );
        assert!(!user.exists("work/.git/hooks") && !user.exists("work/.git/config.worktree"));
        user.refused(
            "41",
            &[
                "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
                "echo x > .git/config.worktree",
                "git config --worktree core.fsmonitor x",
            ],
            &["Read-only file system", "busy"],
        );
        user.works("41", "echo 2 > file && git commit -qam 2");
        assert_eq!(user.outside("git status --short"), "");
    });
}

#[test]
fn protected_names_that_do_not_exist_cannot_be_made() {
    as_each_user(|user| {
        user.outside("git init -q -b main . && git config user.name a && git config user.email a@b.c && touch file && git add . && git commit -qm 1");
        user.outside("git checkout -qb other && mkdir .claude && touch .claude/x && git add . && git commit -qm 2 && git checkout -q main");
        let before = user.outside("ls -A; ls -A .git/info");
        user.refused(
            "41, 42",
            &[
                "mkdir .vscode",
                "mkdir -p .vscode/deep",
                "echo x > .mcp.json",
                "cd .git/.. && echo x > .mcp.json",
                "ln -s . link; mkdir link/.cursor; s=$?; rm link; exit $s",
                "mkdir new && touch new/x && mv new .idea || { rm -r new; false; }",
                "mkdir -p new/workflows && mv new .github || { rm -r new; false; }",
                "mkdir .github; mkdir .github/workflows || { rmdir .github; false; }",
                "touch new; ln new .envrc || { rm new; false; }",
                "ln -s /tmp .husky",
                "mkdir -p .git/info; echo x > .git/info/attributes",
                "git checkout -q other; s=$?; git checkout -qf main; exit $s",
                "mkdir a && echo x > a/.mcp.json && tar cf a.tar -C a .mcp.json; tar xf a.tar; s=$?; rm -r a a.tar; exit $s",
                "python3 -c 'import os; os.mkdir(\".zed\")'",
                "ln -s .mcp.json link; echo x > link; s=$?; rm link; exit $s",
                "ln -s $PWD /tmp/link; mkdir /tmp/link/.vscode; s=$?; rm /tmp/link; exit $s",
                "ln -s /proc/self/cwd link; mkdir link/.vscode; s=$?; rm link; exit $s",
                "exec 9< .; mkdir /dev/fd/9/.vscode",
                "ln -s . link; mkdir -p new/workflows; mv -T new link/.github; s=$?; rm -r new link; exit $s",
                "ln -s new .github",
                "ln -s new link; ln -P link .github; s=$?; rm link; exit $s",
                "ln -s new link; mv -T link .github; s=$?; rm link; exit $s",
                "mkdir -p .github new/workflows; python3 -c 'import ctypes, os; c = ctypes.CDLL(None, use_errno=True); r = c.renameat2(-100, b\".github\", -100, b\"new\", 2); exit(os.strerror(ctypes.get_errno()) if r else 0)'; s=$?; rm -r new .github; exit $s",
            ],
            &["Read-only file system"],
        );
        assert_eq!(user.outside("ls -A; ls -A .git/info"), before);
        user.works(
            "41",
            "mkdir -p sub/.vscode .github && touch sub/.mcp.json && git init -q nested && rm -rf nested .mcp.json && git add . && git commit -qm 2",
        );
        assert_eq!(user.outside("git status --short"), "");
    });
}

#[test]
fn command_that_moves_the_git_directory_elsewhere_is_ended() {
    as_each_user(|user| {
        repository(user);
        for script in [
            "mkdir evil; echo $PWD/evil > .git/commondir; exec sleep 1000",
            "echo evil > x; mv x .git/commondir; exec sleep 1000",
            "ln -s /tmp .git/commondir; exec sleep 1000",
            "mkdir .git/x; echo evil > .git/x/y; mv .git/x/y .git/commondir; chmod 555 .git; exec sleep 1000",
        ] {
            let result = user.result(&["--sandbox", "workspace-write"], script);
            let refused = result["refused"].as_str().unwrap_or_default();
            let told = ".git/commondir removed: it changes where git looks";
            assert!(refused.contains(told), "38: {script}: {result}");
            assert!(!user.exists("work/.git/commondir"), "38: {script}");
            assert_eq!(result["end"], "sandbox", "38: {script}: {result}");
        }
        // The last script may be ended before or after its `chmod`.
        user.outside("chmod 755 .git");
        user.works(
            "38",
            "git worktree add -q inside && cat .git/worktrees/inside/commondir",
        );
        // The empty folder of the first script is no file. The second script may be ended before `mv` removes its source.
        let status = user.outside("rm -f x; git status --short");
        assert_eq!(status.trim(), "?? inside/");
    });
}

#[test]
fn protection_holds_where_only_settings_make_the_workspace_writable() {
    as_each_user(|user| {
        repository(user);
        let text = format!("[sandbox]\nwrite = [{:?}]\n", user.path("work"));
        user.write("state/config.toml", &text);
        let options = ["--sandbox", "read-only", "--network", "off"];
        let ran = user.run_in(&options, "echo x > new && echo x > .git/hooks/pre-commit");
        assert!(
            ran.text.contains("pre-commit: Read-only file system"),
            "{ran:?}"
        );
        assert!(ran.text.contains("1 thing was refused"), "{ran:?}");
        assert!(user.exists("work/new"), "{ran:?}");
    });
}

#[test]
fn files_that_git_is_configured_to_obey_are_protected() {
    as_each_user(|user| {
        repository(user);
        user.outside(
            "mkdir .githooks scripts && touch .githooks/pre-commit shared.config scripts/watch.sh scripts/other && \
             git config core.hooksPath .githooks && git config include.path ../shared.config && \
             git config core.fsmonitor '' && git config filter.x.clean 'sh scripts/watch.sh %f'",
        );
        user.write("home/.gitconfig", "[core]\n\tpager = ./scripts/pager.sh\n");
        user.write("work/scripts/pager.sh", "");
        user.refused(
            "40",
            &[
                "echo x > .githooks/pre-commit",
                "echo x > .githooks/post-commit",
                "echo x > shared.config",
                "echo x > scripts/watch.sh",
                "echo x > scripts/pager.sh",
                "mv scripts other",
            ],
            &["Read-only file system", "busy"],
        );
        user.works("40", "echo x > scripts/other");
    });
}

#[test]
fn files_that_git_is_configured_to_obey_cannot_be_made() {
    as_each_user(|user| {
        repository(user);
        user.outside(
            "git config core.hooksPath .githooks && git config include.path ../inc/shared.config && \
             git config alias.x '!tools/x.sh' && git config core.sshCommand './ssh -v' && \
             git config diff.external ./differ && git config core.attributesFile attrs && mkdir tools",
        );
        user.refused(
            "40",
            &[
                "mkdir .githooks",
                "mkdir -p new && touch new/pre-commit && mv new .githooks || { rm -r new; false; }",
                "ln -s /tmp .githooks",
                "mkdir inc; echo x > inc/shared.config || { rmdir inc; false; }",
                "echo x > tools/x.sh",
                "touch new; mv new ssh || { rm new; false; }",
                "echo x > differ",
                "echo x > attrs",
            ],
            &["Read-only file system"],
        );
        user.works("40", "touch tools/y.sh && git commit -q --allow-empty -m 2");
        assert_eq!(user.outside("git status --short"), "?? tools/\n");
    });
}
