//! Package managers in the sandbox, with registries outside that the allowlist names.

use std::path::Path;

use super::{configure, run};
use crate::harness::User;
use crate::outside::with_outside;

/// Returns whether a program is installed for every user.
fn has(program: &str) -> bool {
    let is_there = Path::new("/usr/bin").join(program).exists();
    if !is_there {
        eprintln!("skipped: no {program}");
    }
    is_there
}

/// Runs a script twice, the second time with what the first has left in the caches of the agent. The home folder of the user
/// stays as it is.
fn works_twice(user: &User, script: &str) {
    for attempt in ["first", "second"] {
        let ran = run(user, script);
        assert_eq!(ran.code, 0, "{attempt}: {script}: {ran:?}");
        assert!(ran.text.contains("answer 42"), "{ran:?}");
    }
    assert_eq!(user.outside("ls -A ~"), "");
}

#[test]
fn pip_installs_into_a_virtual_environment() {
    with_outside(|user, outside| {
        outside.make_registries();
        configure(user, &["allowed.test"], "");
        works_twice(
            user,
            "set -e; [ -d env ] || /usr/bin/python3 -m venv env; env/bin/pip install -q --disable-pip-version-check \
             --force-reinstall --index-url http://allowed.test/files/simple/ --trusted-host allowed.test answer; \
             env/bin/python -c 'import answer; print(\"answer\", answer.value)'",
        );
    });
}

#[test]
fn npm_installs_and_runs_scripts_of_packages() {
    if !has("npm") || !has("node") {
        return;
    }
    with_outside(|user, outside| {
        outside.make_registries();
        configure(user, &["allowed.test"], "");
        works_twice(
            user,
            "set -e; rm -rf node_modules package*.json; echo '{}' > package.json; npm install --no-audit --no-fund \
             --registry http://allowed.test/files/npm/ answer; node -e 'console.log(\"answer\", require(\"answer\"))'",
        );
    });
}

#[test]
fn go_downloads_a_module_and_builds() {
    if !has("go") {
        return;
    }
    with_outside(|user, outside| {
        outside.make_registries();
        configure(user, &["allowed.test"], "");
        user.write(
            "work/main.go",
            "package main\nimport \"example.org/answer\"\nfunc main() { println(\"answer\", answer.Value) }\n",
        );
        works_twice(
            user,
            "set -e; export GOPROXY=http://allowed.test/files/go GONOSUMDB=* GONOSUMCHECK=1 GOFLAGS=-modcacherw GONOSUMDB=* \
             GOSUMDB=off; rm -f go.mod go.sum; go mod init example.org/main; go get example.org/answer; go build -o main .; ./main",
        );
    });
}

#[test]
fn cargo_adds_a_dependency_and_builds() {
    // Not below a home folder that only its user can read.
    let cargo = Path::new(env!("CARGO"));
    with_outside(|user, outside| {
        let script = format!("{} --version", cargo.display());
        let is_there = user.command("/bin/sh").args(["-c", &script]).output();
        if !is_there.is_ok_and(|ran| ran.status.success()) {
            eprintln!("skipped: this user cannot run {}", cargo.display());
            return;
        }
        outside.make_registries();
        configure(user, &["allowed.test"], "");
        user.write(
            "work/.cargo/config.toml",
            "[source.crates-io]\nreplace-with = \"local\"\n[source.local]\nregistry = \"sparse+http://allowed.test/files/index/\"\n",
        );
        let folder = cargo.parent().expect("a folder").display();
        let script = format!(
            "set -e; export PATH={folder}:$PATH; rm -rf app; mkdir -p app/src; cd app; \
             printf '[package]\nname = \"app\"\nedition = \"2021\"\n[workspace]\n' > Cargo.toml; \
             echo 'fn main() {{ println!(\"answer {{}}\", answer::VALUE) }}' > src/main.rs; cargo add -q answer; cargo run -q"
        );
        works_twice(user, &script);
    });
}
