//! Ordinary work in the sandbox: building, testing, editing and debugging.

use crate::harness::as_each_user;

/// Returns whether a program is installed for every user.
fn has(program: &str) -> bool {
    ["/usr/bin", "/usr/local/bin", "/bin"]
        .iter()
        .any(|folder| std::path::Path::new(folder).join(program).exists())
}

#[test]
fn compiler_and_make_work() {
    if !has("cc") || !has("make") {
        eprintln!("skipped: no compiler");
        return;
    }
    as_each_user(|user| {
        user.write("work/main.c", "int main(void) { return 0; }\n");
        user.write("work/Makefile", "main: main.c\n\tcc -o main main.c\n");
        user.works("cc", "make && ./main");
    });
}

#[test]
fn python_test_with_a_database_socket_works() {
    as_each_user(|user| {
        user.write(
            "work/test_it.py",
            "import multiprocessing, sqlite3, tempfile, unittest\n\
             class T(unittest.TestCase):\n\
             \x20   def test_it(self):\n\
             \x20       with tempfile.NamedTemporaryFile() as f:\n\
             \x20           sqlite3.connect(f.name).execute('create table t (a)')\n\
             \x20       with multiprocessing.Manager() as m:\n\
             \x20           self.assertEqual(list(m.list([1])), [1])\n",
        );
        user.works("python", "/usr/bin/python3 -m unittest -q test_it");
    });
}

#[test]
fn npm_script_writes_its_cache() {
    if !has("npm") || !has("node") {
        eprintln!("skipped: no npm");
        return;
    }
    as_each_user(|user| {
        user.write("work/package.json", "{\"name\":\"a\",\"version\":\"1.0.0\",\"scripts\":{\"t\":\"node -e 'console.log(6*7)'\"}}");
        let text = user.works("npm", "npm run -s t");
        assert!(text.contains("42"), "{text}");
        assert!(!user.exists("home/.npm"));
    });
}

#[test]
fn editor_and_debugger_work() {
    as_each_user(|user| {
        if has("vim") {
            user.works(
                "vim",
                "vim -es -N -u NONE -c 'normal ihello' -c 'wq' note </dev/null; cat note",
            );
            assert_eq!(user.read("work/note"), "hello\n");
        }
        if has("gdb") {
            let text = user.works(
                "gdb",
                "gdb -q -batch -ex run -ex 'info program' /bin/true 2>&1; true",
            );
            assert!(text.contains("exited normally"), "{text}");
        }
    });
}

#[test]
fn ordinary_work_goes_on_with_an_allowlist() {
    as_each_user(|user| {
        user.write(
            "state/config.toml",
            "[sandbox]\nallow = [\"registry.npmjs.org\"]\n",
        );
        user.outside("git init -q . && git config user.name a && git config user.email a@b.c");
        let options = ["--sandbox", "workspace-write", "--network", "allowlist"];
        let works = |script: &str| {
            let ran = user.run_in(&options, script);
            assert_eq!(ran.code, 0, "{script}: {ran:?}");
            ran.text
        };
        works(
            "echo x > file && git add file && git commit -qm one && git worktree add -q other && ls other/file",
        );
        works(
            "/usr/bin/python3 -m venv --without-pip env && env/bin/python -c 'import ssl, sqlite3'",
        );
        // A database on a unix socket, and a server on the loopback that a test starts itself.
        let text = works(
            "/usr/bin/python3 - <<'X'\nimport multiprocessing, http.server, threading, urllib.request\n\
             with multiprocessing.Manager() as m: assert list(m.list([1])) == [1]\n\
             s = http.server.ThreadingHTTPServer(('localhost', 0), http.server.SimpleHTTPRequestHandler)\n\
             threading.Thread(target=s.serve_forever, daemon=True).start()\n\
             print(urllib.request.urlopen(f'http://localhost:{s.server_port}/file').read().decode())\nX",
        );
        assert!(text.starts_with("x\n"), "{text}");
        if has("gdb") {
            let text = works("gdb -q -batch -ex run /bin/true 2>&1");
            assert!(text.contains("exited normally"), "{text}");
        }
    });
}

#[test]
fn terminal_works() {
    as_each_user(|user| {
        let options = ["--sandbox", "workspace-write", "--pty"];
        let ran = user.run_in(&options, "test -t 0 && test -t 1 && stty size && echo x > /dev/tty && echo x > /dev/console && script -qc 'echo inner' /dev/null");
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.text.contains("inner"), "{ran:?}");
    });
}

const ALLOWLIST: [&str; 4] = ["--sandbox", "workspace-write", "--network", "allowlist"];

#[test]
fn test_with_a_postgresql_server_on_a_unix_socket_works() {
    let Some(programs) = postgresql() else {
        eprintln!("skipped: no PostgreSQL; `make programs` installs it");
        return;
    };
    as_each_user(|user| {
        if user.is_root() {
            eprintln!("skipped: PostgreSQL does not run as root");
            return;
        }
        let test = format!(
            "import os, subprocess, unittest\n\
             class T(unittest.TestCase):\n\
             \x20   def test_it(self):\n\
             \x20       run = lambda *words: subprocess.run(words, check=True, capture_output=True, text=True).stdout\n\
             \x20       run('{programs}/initdb', '-D', 'data', '-A', 'trust', '-U', 'me')\n\
             \x20       server = subprocess.Popen(['{programs}/postgres', '-D', 'data', '-c', 'listen_addresses=', '-k', os.getcwd()], \
             stderr=subprocess.PIPE, text=True)\n\
             \x20       next(line for line in server.stderr if 'ready to accept' in line)\n\
             \x20       said = run('{programs}/psql', '-h', os.getcwd(), '-U', 'me', '-tAc', 'select 6 * 7', 'postgres')\n\
             \x20       self.assertEqual(said, '42\\n')\n\
             \x20       server.terminate()\n\
             \x20       server.communicate()\n"
        );
        user.write("work/test_database.py", &test);
        let ran = user.run_in(&ALLOWLIST, "/usr/bin/python3 -m unittest -q test_database");
        assert_eq!(ran.code, 0, "{ran:?}");
    });
}

/// Folder of the programs of the newest PostgreSQL.
fn postgresql() -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = versions.flatten().map(|entry| entry.path()).max()?;
    Some(newest.join("bin").display().to_string())
}

#[test]
fn go_builds_and_tests() {
    if !has("go") {
        eprintln!("skipped: no Go");
        return;
    }
    as_each_user(|user| {
        user.write("work/go.mod", "module example.org/a\n");
        user.write(
            "work/main.go",
            "package main\nfunc main() { println(6 * 7) }\n",
        );
        user.write(
            "work/main_test.go",
            "package main\nimport \"testing\"\nfunc TestIt(t *testing.T) { t.TempDir() }\n",
        );
        let ran = user.run_in(&ALLOWLIST, "go build -o a . && ./a && go test ./...");
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(
            !user.exists("home/.cache") && !user.exists("home/go"),
            "{ran:?}"
        );
    });
}
