"""A few attacks on sandboxes of several kinds, and work that must succeed in them. Nothing here depends on time."""

import os
import pathlib
import socket
import subprocess

from ..report import Table
from ..sandboxes import CONTENDERS

CALL = "python3 -c 'import ctypes, os, sys; sys.exit(ctypes.CDLL(None).syscall({}) < 0)'"
CONNECT = "python3 -c 'import socket; socket.socket({}).connect({})'"


class Place:
    """What is outside the sandbox of one contender, and what has become of it."""

    def __init__(self, home):
        self.home, self.work = home, home / "work"
        self.process = subprocess.Popen(["sleep", "1000"])
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.work / "s"))
        self.unix.listen()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.server.close()
        self.unix.close()

    def text(self, name):
        path = self.home / name
        return path.read_text() if path.exists() else ""


# Attack, commands with {next} between two, and a check from outside. Without a check, the exit code 0 means that it succeeded.
ATTACKS = [
    ("write beside the workspace", "echo x > {home}/outside/x", lambda at: at.text("outside/x")),
    ("change `~/.bashrc`", "echo x >> {home}/.bashrc", lambda at: at.text(".bashrc") != "# kept\n"),
    ("read a private key", "grep -q secret {home}/.ssh/id_ed25519", None),
    ("write a git hook", "echo x > .git/hooks/pre-commit", lambda at: at.text("work/.git/hooks/pre-commit")),
    ("replace `.git`", "mv .git old; mkdir -p .git/hooks; echo x > .git/hooks/post-merge; cp old/config .git/; true",
     lambda at: at.text("work/.git/hooks/post-merge")),
    ("signal a process outside", "kill -0 {process}", None),
    ("connect to a server of the machine", CONNECT.format("", '("127.0.0.1", {port})'), None),
    ("connect to a unix socket of another program", CONNECT.format("socket.AF_UNIX", '"s"'), None),
    ("make a vsock socket", "python3 -c 'import socket; socket.socket(40, socket.SOCK_STREAM)'", None),
    ("make an io_uring", CALL.format("425, 4, ctypes.create_string_buffer(120)"), None),
    ("make a user namespace", "unshare -U true", None),
    ("add a key to the kernel's keyring", CALL.format('248, b"user", b"abide-bench", b"x", 1, -2'), None),
    ("open `core_pattern` to write", "exec 3>> /proc/sys/kernel/core_pattern", None),
]
WORK = [
    ("commit", "echo y > new && git add new && git commit -qm 2", lambda at: "2" in log(at)),
    ("write a cache in the home folder, and read it in the next command", "mkdir -p ~/.cache/a && echo kept > ~/.cache/a/b {next} grep -q kept ~/.cache/a/b", None),
    ("use a unix socket of its own", "python3 -c 'import socket, tempfile; path = tempfile.mkdtemp(dir=\"/tmp\") + \"/s\"; "
     "s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(); socket.socket(socket.AF_UNIX).connect(path)'", None),
    ("no new files in the workspace", "true", lambda at: not status(at)),
]


def git(at, *words):
    return subprocess.run(["git", *words], cwd=at.work, capture_output=True, text=True, env={**os.environ, "HOME": str(at.home)}, check=False).stdout


def log(at):
    return git(at, "log", "--format=%s")


def status(at):
    return [line for line in git(at, "status", "--short").splitlines() if not line.endswith((" s", " new"))]


def outcome(connection, at, command, check):
    filled = command.replace("{home}", str(at.home)).replace("{process}", str(at.process.pid)).replace("{port}", str(at.port))
    codes = [connection.shell(part).exit_code for part in filled.split("{next}")]
    return bool(check(at)) if check else not any(codes)


def measure(bench):
    names = [name for name in CONTENDERS if name not in bench.without]
    table = Table("sandbox_attacks", "attacks on sandboxes, and work in them", ["", *[CONTENDERS[name].label for name in names]])
    cells = {}
    with bench.started(names, table) as entries:
        for name, (contender, connection) in entries.items():
            at = Place(pathlib.Path(contender.home))
            try:
                # Work first: some attacks destroy the repository where they succeed.
                for title, command, check in WORK:
                    cells[title, name] = "works" if outcome(connection, at, command, check) else "**fails**"
                for title, command, check in ATTACKS:
                    cells[title, name] = "**succeeds**" if outcome(connection, at, command, check) else "refused"
            finally:
                at.close()
    for title, *_ in [*ATTACKS, *WORK]:
        table.rows.append([title, *[cells.get((title, name), "–") for name in names]])
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    table.notes = [f"as {user}; network off; sandbox-runtime with one writable folder and no other settings; bubblewrap with the disk read-only, the workspace "
                   "writable and all namespaces"]
    table.data = {f"{title} / {name}": cell for (title, name), cell in cells.items()}
    return table
