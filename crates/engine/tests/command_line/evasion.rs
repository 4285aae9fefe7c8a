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
    all(
        &builtin(),
        Action::Deny,
        &[
            "echo / | xargs rm -rf",
            "echo ~ | xargs rm -rf",
            "echo \"$PWD\" | xargs rm -rf",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "echo a b | xargs rm -rf",
            "echo ~/old.log | xargs rm -rf",
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
            "ssh host -- git push -f",
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

#[test]
fn find_that_deletes_everything_counts_as_rm_of_where_it_begins() {
    all(
        &builtin(),
        Action::Deny,
        &[
            "find / -delete",
            "find ~ -delete",
            "find \"$HOME\" -type f -delete",
            "find / -exec rm -rf {} +",
            "find / -xdev -exec rm {} \\;",
            "find -L / -mindepth 1 -delete",
            "find / | xargs rm -rf",
            "find . | xargs rm -rf",
            "find / -print0 | xargs -0 -I{} rm -rf {}",
        ],
    );
    all(
        &builtin(),
        Action::Ask,
        &[
            "find . -delete",
            "find -delete",
            "find . -type f -delete",
            "find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +",
            "find .. -delete",
            "find / -name '*.log' -delete",
            "find .. -name core -exec rm -rf {} \\;",
            "find . -exec sh -c 'rm -rf \"$1\"' _ {} \\;",
            "ls | xargs rm -rf",
            "ls -A | xargs -I{} rm -rf {}",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "find . -name '*.pyc' -delete",
            "find . -type d -name node_modules -exec rm -rf {} +",
            "find . -type d -empty -delete",
            "find . -type l -delete",
            "find build -delete",
            "find /tmp/x -delete",
            "find \"$DIR\" -name x -delete",
            "find / -name x",
            "find . -name '*.o' | xargs rm -rf",
            "find . -type f | xargs grep -l x",
            "ls build | xargs rm -rf",
            "ls | xargs wc -l",
        ],
    );
}

#[test]
fn command_of_a_container_is_judged_with_the_paths_that_are_mounted() {
    all(
        &builtin(),
        Action::Deny,
        &[
            "docker run --rm -v /:/host alpine rm -rf /host",
            "podman run -it -v /:/host alpine rm -rf /host/*",
            "docker run --mount type=bind,source=/home/u,target=/h alpine sh -c 'rm -rf /h'",
            "docker run -v $PWD:/work alpine rm -rf /work",
            "docker run -v .:/work --name x -w /work alpine rm -rf .",
            "docker container run --volume=\"$(pwd)\":/work:rw alpine rm -r /work/",
        ],
    );
    all(
        &builtin(),
        Action::Ask,
        &[
            "docker run -v /home:/host alpine rm -rf /host/u/src",
            "docker run --rm -e A=1 image git push --force",
            "docker run --entrypoint git image push --force",
            "docker compose run --rm web git push -f",
            "cd \"$X\" && docker exec web git push -f",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "docker run --rm -v $PWD:/work -w /work node:20 npm test",
            "docker run -v $PWD:/work alpine rm -rf /work/build",
            "docker run -d -p 80:80 --name rm nginx",
            "docker run -it --privileged alpine sh",
            "docker run -v cache:/root alpine rm -rf /root/x",
            "docker run -v /:/host:ro alpine ls /host",
        ],
    );
}

#[test]
fn code_for_an_interpreter_hides_no_command() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "python3 -c \"import os; os.system('git push -f')\"",
            "python3.12 -c 'import subprocess; subprocess.run([\"git\", \"push\", \"--force\"])'",
            "perl -e 'system(\"git push --force\")'",
            "node -e 'require(\"child_process\").spawnSync(\"git\", [\"push\", \"-f\"])'",
            "ruby -e '`sudo ls`'",
            "awk 'BEGIN { system(\"sudo ls\") }'",
            "awk '{ print | \"sudo tee x\" }' file",
            "php -r 'passthru(\"sudo ls\");'",
            "python3 - <<E\nimport os\nos.system('git push -f')\nE",
            "python3 <<< \"import os; os.system('sudo ls')\"",
            "python3 -c 'import os; os.system(\"\"\"sudo ls\"\"\")'",
            "python3 -c \"import subprocess as s; s.check_output('git push -f', shell=True)\"",
            "perl -e 'system \"sudo\", \"ls\"'",
            "python3 - <<E\nsubprocess.run(\n  [\"git\",\n   \"push\", \"-f\"])\nE",
        ],
    );
    all(
        &builtin(),
        Action::Deny,
        &[
            "python3 -c \"import os; os.system('rm -rf /')\"",
            "python3 -c \"import shutil; shutil.rmtree('/')\"",
            "python3 -c \"import shutil; shutil.rmtree(os.path.expanduser('~'))\"",
            "node -e 'fs.rmSync(\".\", {recursive: true})'",
            "ruby -rfileutils -e 'FileUtils.rm_rf(\"/home/u\")'",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "python3 -c \"print('git push -f')\"",
            "python3 -c \"import os; os.system('git status')\"",
            "python3 -c \"import subprocess; print('sudo ls'); subprocess.run(['ls'])\"",
            "python3 - <<E\nos.system('ls')\nnote = 'sudo apt install x'\nE",
            "node -e 'db.execute(\"sudo\")'",
            "python3 - <<E\nos.system('ls')\n'sudo ls'\nE",
            "python3 -c \"import shutil; shutil.rmtree('build')\"",
            "python3 -c \"import os; os.system('a (')\"",
            "python3 script.py sudo",
            "awk '{ print \"sudo\" }' file",
            "node -e 'console.log(1)'",
        ],
    );
}

#[test]
fn options_of_ssh_and_rsync_hide_no_command() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "ssh -o ProxyCommand='git push -f' host",
            "ssh -oProxyCommand='sudo nc h 22' host",
            "ssh -o 'proxycommand sudo nc h 22' host ls",
            "ssh -o PermitLocalCommand=yes -o LocalCommand='git push -f' host",
            "scp -o ProxyCommand='sudo x' a b:",
            "rsync -e \"ssh -o 'ProxyCommand=sudo x'\" a b:",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "ssh -o StrictHostKeyChecking=no host ls",
            "ssh -o ProxyCommand='nc %h %p' host",
            "rsync -av -e 'ssh -p 22' a b:",
        ],
    );
}

#[test]
fn writes_to_clouds_and_clusters_ask() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "aws --profile p ec2 terminate-instances --instance-ids i-1",
            "aws --debug ec2 terminate-instances",
            "aws ec2 run-instances",
            "aws s3 cp x s3://bucket",
            "aws s3 sync . s3://bucket --delete",
            "gcloud compute instances create x",
            "az vm create -n x",
            "kubectl create namespace x",
            "kubectl -n x edit deployment y",
            "kubectl set image deployment/x a=b",
            "kubectl rollout restart deployment/x",
            "kubectl cordon node",
            "helm delete x",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "aws --profile p ec2 describe-instances",
            "aws s3 cp s3://bucket/x .",
            "aws s3 ls",
            "gcloud compute instances list",
            "kubectl rollout status deployment/x",
            "kubectl get pods --show-labels",
            "helm list",
        ],
    );
}

#[test]
fn path_to_delete_that_is_not_known_asks_if_the_text_names_the_root() {
    all(
        &builtin(),
        Action::Deny,
        &[
            "x=/; rm -rf $x",
            "d=~; rm -rf \"$d\"",
            "x=${HOME}; rm -r -- \"${x}\"",
            "for d in /; do rm -rf $d; done",
            "bash -c 'rm -rf \"$1\"' _ /",
        ],
    );
    all(
        &builtin(),
        Action::Ask,
        &[
            "x=\"$(echo /)\"; rm -rf $x",
            "x=/; x=$1; rm -rf $x",
            "find / -name x | while read f; do rm -rf \"$f\"; done",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "make -C / help; rm -rf \"$OUT\"",
            "./configure --prefix=/ && rm -rf \"${OUT}\"",
            "t=$(mktemp -d); rm -rf \"$t\"",
            "for d in build out; do rm -rf $d; done",
            "ls / && rm -rf build",
            "cd ~/src/work && rm -rf \"$BUILD\"",
        ],
    );
}

#[test]
fn hidden_files_and_braces_with_the_root_ask() {
    all(
        &builtin(),
        Action::Ask,
        &["rm -rf .*", "rm -rf ./.*", "rm -rf /{bin,usr}"],
    );
    all(&builtin(), Action::Deny, &["rm -rf {/,x}", "rm -rf /{,}"]);
    all(
        &builtin(),
        Action::Allow,
        &[
            "rm -rf build/.*",
            "rm -rf build/{a,b}",
            "rm -rf ~/{a,b}",
            "rm -rf {a,b}",
        ],
    );
}

#[test]
fn publishing_by_other_programs_asks() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "python3 -m twine upload dist/*",
            "mvn -B clean deploy",
            "./gradlew clean publish",
            "docker buildx build --push .",
            "docker compose push",
            "yarn workspace a publish",
            "bun publish",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "python3 -m pytest -k upload",
            "python3 -m http.server",
            "docker buildx build .",
            "mvn package",
            "./gradlew publishToMavenLocal",
        ],
    );
}

#[test]
fn home_directory_by_a_changed_expansion_is_the_home_directory() {
    all(
        &builtin(),
        Action::Deny,
        &["rm -rf \"${HOME%/}\"", "rm -rf ${HOME@E}"],
    );
    all(&builtin(), Action::Ask, &["rm -rf ${HOME%/*}"]);
    all(
        &builtin(),
        Action::Allow,
        &["rm -rf \"${HOME%/}/.cache/x\"", "ls ${HOME%/*}"],
    );
}

#[test]
fn pattern_is_as_much_as_each_path_that_it_stands_for() {
    const WORKSPACE: &str = "/tmp/glob/proj";
    let place = Place {
        workspace: WORKSPACE,
        ..place()
    };
    let mut wrong = String::new();
    let mut expect = |expected, texts: &[&str]| {
        for text in texts {
            let found = builtin().decide(&parse(text, WORKSPACE), &place);
            if found.action != expected {
                wrong += &format!("{text:?} is not {expected:?}: {found:?}\n");
            }
        }
    };
    expect(
        Action::Ask,
        &[
            "rm -rf /tmp/glob/pro?",
            "rm -rf /tmp/glob/p*",
            "rm -rf /tmp/glob/[op]roj/",
            "rm -rf /tmp/glob/p*/*",
            "rm -rf /tmp/*/proj",
            "rm -rf /*/*/*",
            "rm -rf ../pro*",
            "rm -rf ../**",
            "rm -rf \"$PWD\"/../p*j",
            "rm -rf sub/../../pro*",
            "rm -rf .g*",
            "rm -rf /tmp/glo*",
            "rm -rf /tm?",
            "rm -rf /t*/glob",
            "rm -rf /hom*",
            "rm -rf /home/?",
            "rm -rf /ho*/other",
            "rm -rf /et[c]",
            "rm -rf /e*",
            "rm -rf /e*/nginx",
            "rm -rf /var/lo*",
            "rm -rf ~/Doc*",
            "rm -rf ~/.s*",
            "rm -rf /home/*/.ssh",
            "rm -rf ~/.local/sh*",
            "find /tmp/glob/pro? -delete",
            "for d in ../pro*; do rm -rf \"$d\"; done",
            "sh -c 'rm -rf /tmp/glob/p*'",
            "cd .. && rm -rf p*",
        ],
    );
    expect(
        Action::Deny,
        &[
            "rm -rf /tmp/glob/proj",
            "rm -rf ~/*",
            "rm -rf /*",
            "rm -rf /tmp/glob/p* /",
        ],
    );
    expect(
        Action::Allow,
        &[
            "rm -rf build/*",
            "rm -rf ./dist/*",
            "rm -rf *.o",
            "rm -rf p*",
            "rm -rf */proj",
            "rm -rf */*/node_modules",
            "rm -rf **/__pycache__",
            "rm -rf /tmp/x*",
            "rm -rf /tmp/glob/x*",
            "rm -rf /tmp/glob/proj/p*",
            "rm -rf /tmp/glob/*/build",
            "rm -rf ../other*",
            "rm -rf '../pro?'",
            "rm -rf *git",
            "rm -rf ~/.cache/pip*",
            "rm -rf ~/*.log",
            "rm -rf ~/src/p*",
            "rm -rf /var/tmp/x*",
            "rm -rf /var/lib/apt/lists/*",
            "rm -rf \"$OUT\"/t*",
            "rm -rf \"$OUT\"/*.o",
        ],
    );
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn folder_that_is_not_known_may_be_the_workspace_or_above_it() {
    all(
        &builtin(),
        Action::Deny,
        &[
            "cd sub && cd - && rm -rf .",
            "pushd sub; popd; rm -rf ../work",
            "cd ..; cd /x; cd -; rm -rf work",
            "cd ../..; cd /x; cd -; rm -rf src/work",
        ],
    );
    all(
        &builtin(),
        Action::Ask,
        &[
            "cd sub && cd - && rm -rf *",
            "cd sub; cd \"$OLDPWD\"; rm -rf *",
            "cd sub; cd ~-; rm -rf ./*",
            "pushd sub; popd; rm -rf *",
            "pushd sub; popd; rm -rf ../wor?",
            "pushd sub; popd; rm -rf ..",
            "pushd sub; pushd; rm -rf *",
            "pushd sub; pushd +1; rm -rf *",
            "pushd sub; popd; find . -delete",
            "cd \"$DIR\" && rm -rf *",
            "cd sub; cd -; rm -rf .git",
            "if x; then cd sub; fi; rm -rf *",
            "cd sub; command cd ..; rm -rf *",
            "cd sub; builtin cd -; rm -rf *",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "cd sub && rm -rf build",
            "cd sub && rm -rf *",
            "cd sub && make && cd - && rm -rf build",
            "pushd sub; make; popd; rm -rf build/* *.o ./dist/* node_modules",
            "cd \"$DIR\" && rm -rf build target \"$x\"",
            "cd \"$(dirname \"$0\")/..\" && rm -rf tmp/*",
            "pushd sub; popd; rm -rf /tmp/x",
            "pushd sub; popd; cd /tmp/x && rm -rf *",
            "(cd sub && make); rm -rf build",
            "ssh host 'rm -rf work'",
            "ssh host 'cd app && rm -rf *'",
            "docker run --rm image sh -c 'rm -rf work'",
        ],
    );
}
