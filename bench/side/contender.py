"""The tools that are measured, each behind the same few verbs: open, begin, ready, wait, close.

Each runs with a fresh HOME of its own and carries a mark in its environment, by which everything it leaves
behind is found and ended. Every tool is asked to run the same `/bin/sh -c COMMAND`.
"""

import base64
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import uuid

from . import install, process
from .install import Missing
from .wire import Gone, Wire

HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "abide-bench", "version": "1"}}


@dataclasses.dataclass
class Answer:
    """What came back from one command. `shown` is what a client hands to its model."""

    at: float
    text: str = ""
    shown: str = ""
    exit_code: int | None = None
    session: object = None
    ended: bool = True


class Connection:
    """One client of one server. Calls can overlap; `wait` and `ready` are by the key that `begin` returned."""

    def __init__(self, wire):
        self.wire = wire
        self.answers = {}

    @property
    def pid(self):
        return self.wire.child.pid

    def begin(self, command, limit=100):
        raise NotImplementedError

    def take(self, line):
        raise NotImplementedError

    def pump(self, patience):
        for line in self.wire.lines(patience):
            if line:
                self.take(line)

    def ready(self, key):
        self.pump(0)
        return self.answers.pop(key, None)

    def wait(self, key, patience=120):
        end = time.monotonic() + patience
        while key not in self.answers:
            left = end - time.monotonic()
            if left <= 0:
                raise Gone(f"no answer within {patience} s")
            self.pump(left)
        return self.answers.pop(key)

    def any(self, patience=120):
        """The next call that is done, whichever it is."""
        end = time.monotonic() + patience
        while not self.answers:
            left = end - time.monotonic()
            if left <= 0:
                raise Gone(f"no answer within {patience} s")
            self.pump(left)
        return self.answers.popitem()

    def shell(self, command, limit=100, patience=120):
        return self.wait(self.begin(command, limit), patience)

    def close(self):
        self.wire.close()


class McpConnection(Connection):
    """A tool over MCP. Clients that get `structuredContent` give only that to the model, so that is what is shown."""

    def __init__(self, wire, handshake=HANDSHAKE):
        super().__init__(wire)
        self.instructions = wire.request("initialize", handshake).get("instructions", "")
        wire.send("notifications/initialized", {}, notify=True)

    def arguments(self, command, limit):
        return "shell", {"command": command}

    def begin(self, command, limit=100):
        tool, arguments = self.arguments(command, limit)
        return self.call(tool, arguments)

    def call(self, tool, arguments):
        return self.wire.send("tools/call", {"name": tool, "arguments": arguments})

    def take(self, line):
        at = time.perf_counter()
        message = json.loads(line)
        if "id" not in message or "method" in message:
            return
        if "error" in message:
            self.answers[message["id"]] = Answer(at, text=str(message["error"].get("message")), shown=line.decode())
            return
        self.answers[message["id"]] = self.understand(at, message["result"])

    def understand(self, at, result):
        facts = result.get("structuredContent")
        text = "\n".join(part.get("text", "") for part in result.get("content", []) if part.get("type") == "text")
        if facts is None:
            return Answer(at, text=text, shown=text)
        return Answer(at, text=str(facts.get("text", text)), shown=compact(facts),
                      exit_code=facts.get("exit_code"), session=facts.get("session_id"))


def compact(value):
    """JSON as clients write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class AbideConnection(McpConnection):
    def arguments(self, command, limit):
        return "shell", {"command": command, "timeout": limit}


class CommanderConnection(McpConnection):
    """`start_process` answers when the command ends, seems to wait for input, or its time is up; the time ends nothing."""

    def arguments(self, command, limit):
        return "start_process", {"command": command, "timeout_ms": limit * 1000, "shell": "/bin/sh"}

    def understand(self, at, result):
        answer = super().understand(at, result)
        started = re.match(r"Process started with PID (\d+)", answer.text)
        answer.session = int(started[1]) if started else None
        answer.ended = "Process is running" not in answer.text[-400:]
        return answer


class ExecServerConnection(Connection):
    """Codex's exec-server: `process/start`, then notifications up to `process/closed`."""

    def __init__(self, wire, env):
        super().__init__(wire)
        self.env = env
        self.codes = {}
        self.output = []
        wire.request("initialize", {"clientName": "abide-bench"})
        wire.send("initialized", {}, notify=True)

    def begin(self, command, limit=100):
        key = uuid.uuid4().hex
        self.wire.send("process/start", {"processId": key, "argv": ["/bin/sh", "-c", command], "cwd": "file:///", "env": self.env,
                                         "tty": False, "pipeStdin": False, "arg0": None})
        return key

    def take(self, line):
        # Output is kept as it came and looked at after the clock has stopped.
        if line.startswith(b'{"method":"process/output"'):
            self.output.append(line)
            return
        at = time.perf_counter()
        message = json.loads(line)
        if "error" in message:
            raise Gone(message["error"].get("message"))
        about = message.get("params", {})
        if message.get("method") == "process/exited":
            self.codes[about["processId"]] = about["exitCode"]
        elif message.get("method") == "process/closed":
            key = about["processId"]
            self.answers[key] = Answer(at, exit_code=self.codes.pop(key, None), session=key)

    def stream_of(self, key):
        """All output bytes that came for a process; forgets what was kept for any."""
        kept, self.output = self.output, []
        chunks = (json.loads(line)["params"] for line in kept)
        return b"".join(base64.b64decode(chunk["chunk"]) for chunk in chunks if chunk["processId"] == key)


class AppServerConnection(Connection):
    """Codex's app-server: `command/exec`, one request and one answer, with a time limit of its own."""

    def __init__(self, wire):
        super().__init__(wire)
        wire.request("initialize", {"clientInfo": {"name": "abide-bench", "title": "abide-bench", "version": "1"}})
        wire.send("initialized", {}, notify=True)

    def begin(self, command, limit=100):
        return self.wire.send("command/exec", {"command": ["/bin/sh", "-c", command], "timeoutMs": limit * 1000, "cwd": "/",
                                               "sandboxPolicy": {"type": "dangerFullAccess"}})

    def take(self, line):
        at = time.perf_counter()
        message = json.loads(line)
        if "id" not in message or "method" in message:
            return
        result = message.get("result")
        if result is None:
            text = message["error"].get("message", "")
            self.answers[message["id"]] = Answer(at, text=text, shown=text)
        else:
            text = result["stdout"] + result["stderr"]
            self.answers[message["id"]] = Answer(at, text=text, shown=text, exit_code=result["exitCode"])


class Contender:
    """A tool with its own HOME. `open` starts a server or connects again to the one there is."""

    name = ""
    label = ""
    shared = False  # a second connection reaches the same server

    def __init__(self, bench):
        self.bench = bench
        self.mark = f"ABIDE_BENCH_OWNER={uuid.uuid4().hex}"
        self.home = None
        self.connections = []

    def env(self):
        keep = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL") if key in os.environ}
        key, value = self.mark.split("=")
        return {**keep, "HOME": str(self.home), "TMPDIR": str(self.home / "tmp"), "SHELL": "/bin/sh", key: value}

    def prepare(self):
        """Finds the program and makes the HOME. Raises Missing."""

    def open(self):
        if self.home is None:
            self.home = pathlib.Path(tempfile.mkdtemp(prefix="abide-bench-"))
            (self.home / "tmp").mkdir()
            self.prepare()
        try:
            connection = self.connect()
        except (Gone, OSError, json.JSONDecodeError) as error:
            raise Missing(f"does not answer: {error}") from error
        self.connections.append(connection)
        return connection

    def second(self, first):
        """A connection for other calls while the first is busy: a new one to the same server, or the same one."""
        return self.open() if self.shared else first

    def connect(self):
        raise NotImplementedError

    def wire(self, argv):
        errors = open(self.home / "stderr.log", "ab")
        try:
            return Wire([str(word) for word in argv], self.env(), self.home, errors)
        finally:
            errors.close()

    def server_pid(self, connection):
        return connection.pid

    def close(self):
        for connection in self.connections:
            connection.close()
        self.connections = []
        process.end_carrying(self.mark)
        if self.home:
            process.end_carrying(str(self.home), in_command=True)
            shutil.rmtree(self.home, ignore_errors=True)
            self.home = None


class Floor(Contender):
    name, label = "floor", "floor (C: posix_spawn, pipes, wait)"

    def prepare(self):
        install.compile_floor()

    def connect(self):
        return McpConnection(self.wire([install.FLOOR / "mcp_true"]))


class Abide(Contender):
    name, label, shared = "abide", "abide", True
    handshake = HANDSHAKE
    shell = ["/bin/sh", "-c"]  # as for all others; by default abide takes bash where it is installed

    def env(self):
        return {**super().env(), "ABIDE_DIR": str(self.home / "abide")}

    def prepare(self):
        if not os.access(self.bench.abide, os.X_OK):
            raise Missing("no abide binary (build it, or give --abide PATH)")
        if self.shell:
            (self.home / "abide").mkdir(mode=0o700)
            (self.home / "abide" / "config.toml").write_text(f"shell = {json.dumps(self.shell)}\n")

    def connect(self):
        return AbideConnection(self.wire([self.bench.abide, "mcp"]), self.handshake)

    def run(self, *words):
        try:
            done = subprocess.run([self.bench.abide, *words], env=self.env(), cwd=self.home, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=120, check=False)
        except subprocess.TimeoutExpired as error:
            raise Gone(f"abide {words[0]} took longer than 120 s") from error
        if done.returncode:
            raise Gone(f"abide {words[0]}: exit code {done.returncode}: {done.stderr.decode('utf-8', 'replace')[-200:]}")
        return done.stdout

    def server_pid(self, connection):
        try:
            return json.loads(self.run("status", "--json"))["daemon"]["pid"]
        except (ValueError, KeyError, TypeError) as error:
            raise Gone(f"abide status --json does not name the daemon's pid: {error!r}") from error

    def recover(self, session_id):
        """All bytes of a session's log, as its owner gets them."""
        if not session_id:
            raise Gone("the answer named no session")
        return self.run("logs", session_id, "--raw")


class Codex(Contender):
    name, label = "codex", "Codex exec-server"

    def env(self):
        return {**super().env(), "CODEX_HOME": str(self.home / ".codex")}

    def prepare(self):
        self.program = install.codex_program()
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(
            "check_for_update_on_startup = false\n[analytics]\nenabled = false\n")

    def connect(self):
        wire = self.wire([self.program, "exec-server", "--listen", "stdio", "--concurrent-requests", "32"])
        return ExecServerConnection(wire, self.env())


class CodexApp(Codex):
    name, label = "codex-app", "Codex app-server command/exec"

    def connect(self):
        return AppServerConnection(self.wire([self.program, "app-server"]))


class DesktopCommander(Contender):
    name, label = "desktop-commander", "Desktop Commander"

    def env(self):
        offline = install.BENCH / "contenders" / "offline.cjs"
        return {**super().env(), "DESKTOP_COMMANDER_DISABLE_TELEMETRY": "1", "DC_FLAG_URL": "http://127.0.0.1:9/",
                "NODE_OPTIONS": f"--require={offline}"}

    def prepare(self):
        self.program = install.desktop_commander_program()
        folder = self.home / ".claude-server-commander"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"telemetryEnabled": False, "defaultShell": "/bin/sh", "allowedDirectories": [],
                                                        "blockedCommands": []}))

    def connect(self):
        return CommanderConnection(self.wire(["node", self.program]))


ALL = {kind.name: kind for kind in (Floor, Abide, Codex, CodexApp, DesktopCommander)}
