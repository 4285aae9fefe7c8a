//! A library for `LD_PRELOAD` between a daemon and libc, for system states that are otherwise rare.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::home::Home;

/// Builds the library; `None`: it cannot be built on this machine.
pub fn built(abide: &Home, name: &str, source: &str) -> Option<PathBuf> {
    let (written, shim) = (
        abide.path(&format!("{name}.c")),
        abide.path(&format!("{name}.so")),
    );
    fs::write(&written, source).expect("a source");
    #[expect(
        clippy::disallowed_methods,
        reason = "the compiler that builds SQLite too"
    )]
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]);
    let done = compiler.args([&shim, &written]).status();
    done.expect("a compiler").success().then_some(shim)
}

/// Starts a daemon with this library; the variable has the path of the file that controls it.
pub fn start_on(abide: &Home, source: &str, variable: &str) -> PathBuf {
    let shim = built(abide, "shim", source).expect("it can be built");
    let mark = abide.path("mark");
    let started = abide
        .command(["status"])
        .env("LD_PRELOAD", shim)
        .env(variable, &mark)
        .output()
        .expect("abide runs");
    assert!(started.status.success(), "{started:?}");
    mark
}
