"""Ways to keep a terminal for an agent, each behind the same verbs: start, line, kill, and what a call is there.

`line` types one line and returns when its answer has been seen. How an agent would do that differs: some tools wait by
themselves, with others it must look again and again. Each looks as fast as it can, and every call is counted.
"""

import base64
import json
import os
import re
import subprocess
import sys
import time

from . import contender, install
from .contender import Answer, CommanderConnection, ExecServerConnection, McpConnection
from .wire import Gone

PATIENCE = 20
SHELL = "exec env PS1='$ ' sh -i"


class Counted:
    """Counts the calls an agent makes."""

    calls = 0

    def ask(self, tool, **arguments):
        self.calls += 1
        return self.wait(self.call(tool, arguments), PATIENCE * 2)

    def seen(self, answer, sign):
        if sign not in answer.text:
            raise Gone(f"the answer does not show {sign}: {answer.text[-200:]!r}")

    def settle(self):
        """Lets calls end that the clock does not wait for."""


class AbideTerminal(Counted, McpConnection):
    """`terminal_session`. `send_input` alone: it answers with what came back, once that has been quiet for 150 ms."""

    def start(self, command):
        answer = self.ask("terminal_session", action="start", command=command, inactivity_timeout=0)
        if not answer.session:
            raise Gone(f"no session: {answer.text[-200:]}")
        return answer.session

    def listen(self, session, sign, **more):
        """Begins a read that waits for a line with this sign and returns at once then; returns its key."""
        return self.call("terminal_session", {"action": "read_output", "session_id": session, "until": sign, "timeout_seconds": PATIENCE, **more})

    def line(self, session, text, sign):
        self.seen(self.ask("terminal_session", action="send_input", session_id=session, input=text + "\n"), sign)

    def kill(self, session):
        self.ask("terminal_session", action="kill", session_id=session)

    def list(self):
        return self.ask("terminal_session", action="list")


class AbideBeside(AbideTerminal):
    """A read that waits `until` the answer is there, begun together with `send_input`, as a client does with two calls at once."""

    def __init__(self, wire):
        super().__init__(wire)
        self.open = None

    def line(self, session, text, sign):
        self.calls += 2
        read = self.call("terminal_session", {"action": "read_output", "session_id": session, "until": sign, "timeout_seconds": PATIENCE})
        self.open = self.call("terminal_session", {"action": "send_input", "session_id": session, "input": text + "\n"})
        self.seen(self.wait(read, PATIENCE * 2), sign)

    def settle(self):
        if self.open is not None:
            self.wait(self.open, PATIENCE * 2)
            self.open = None


class FloorTerminal(AbideTerminal):
    """The same calls; `send_input` answers at once and `read_output` waits for the sign."""

    def line(self, session, text, sign):
        self.ask("terminal_session", action="send_input", session_id=session, input=text + "\n")
        self.seen(self.ask("terminal_session", action="read_output", session_id=session, until=sign), sign)


class CodexTerminal(Counted, ExecServerConnection):
    """`process/start` with a tty and `process/write`; output is pushed to the client, which waits for it."""

    def __init__(self, wire, env):
        super().__init__(wire, env)
        self.shown, self.number = {}, 0

    def request(self, method, params):
        self.calls += 1
        return self.wait(self.wire.send(method, params), PATIENCE)

    def take(self, line):
        at = time.perf_counter()
        message = json.loads(line)
        about = message.get("params", {})
        if message.get("method") == "process/output":
            self.shown[about["processId"]] = self.shown.get(about["processId"], b"") + base64.b64decode(about["chunk"])
        elif "id" in message:
            if "error" in message:
                raise Gone(message["error"].get("message"))
            self.answers[message["id"]] = Answer(at)

    def start(self, command):
        self.number += 1
        name = f"terminal-{self.number}"
        self.request("process/start", {"processId": name, "argv": ["/bin/sh", "-c", command], "cwd": "file:///", "env": self.env,
                                       "tty": True, "pipeStdin": False, "arg0": None})
        return name

    def line(self, session, text, sign):
        self.shown[session], self.number = b"", self.number + 1
        chunk = base64.b64encode(text.encode() + b"\n").decode()
        self.request("process/write", {"processId": session, "chunk": chunk, "writeId": f"write-{self.number}"})
        end = time.monotonic() + PATIENCE
        while sign.encode() not in self.shown[session]:
            if time.monotonic() > end:
                raise Gone(f"{sign} was not seen within {PATIENCE} s")
            self.pump(PATIENCE)

    def kill(self, session):
        self.request("process/terminate", {"processId": session})


class CommanderTerminal(Counted, CommanderConnection):
    """`start_process`, and `interact_with_process`, which waits for a prompt. It has pipes and no terminal."""

    def start(self, command):
        answer = self.ask("start_process", command=command, timeout_ms=1000, shell="/bin/sh")
        if answer.session is None:
            raise Gone(f"no process: {answer.text[-200:]}")
        return answer.session

    def line(self, session, text, sign):
        answer = self.ask("interact_with_process", pid=session, input=text, timeout_ms=PATIENCE * 1000)
        end = time.monotonic() + PATIENCE
        while sign not in answer.text and time.monotonic() < end:
            answer = self.ask("read_process_output", pid=session, timeout_ms=1000)
        self.seen(answer, sign)

    def kill(self, session):
        self.ask("force_terminate", pid=session)


class PtyMcpTerminal(Counted, McpConnection):
    """`pty_prompt`: writes and waits for a text."""

    OWNER = "bench"

    def start(self, command):
        answer = self.ask("pty_spawn", command=command, owner=self.OWNER)
        if not re.fullmatch(r"[\w-]+", answer.text):
            raise Gone(f"no session: {answer.text[-200:]}")
        return answer.text

    def line(self, session, text, sign):
        self.seen(self.ask("pty_prompt", session_id=session, owner=self.OWNER, data=text + "\n", patterns=[sign], timeout_ms=PATIENCE * 1000), sign)

    def kill(self, session):
        self.ask("pty_close", session_id=session, owner=self.OWNER)


class TerminalMcpTerminal(Counted, McpConnection):
    """`session_interact`: sends and waits for a pattern."""

    def start(self, command):
        answer = self.ask("session_create", command=f"/bin/sh -c \"{command}\"")
        found = re.search(r'"session_id":\s*"([^"]+)"', answer.text)
        if not found:
            raise Gone(f"no session: {answer.text[-200:]}")
        return found[1]

    def line(self, session, text, sign):
        self.seen(self.ask("session_interact", session_id=session, input=text, wait_for=sign, timeout=PATIENCE), sign)

    def kill(self, session):
        self.ask("session_close", session_id=session)


class TmuxConnection(Counted):
    """tmux from the command line, as an agent uses it that has only a shell: `send-keys`, then `capture-pane` until it is there."""

    def __init__(self, program, home, env):
        self.base, self.env, self.number = [str(program), "-f", "/dev/null", "-S", str(home / "tmux")], env, 0

    def tmux(self, *words):
        self.calls += 1
        done = subprocess.run([*self.base, *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        if done.returncode:
            raise Gone(f"tmux {words[0]}: {done.stderr.strip()}")
        return done.stdout

    @property
    def pid(self):
        return int(self.tmux("display-message", "-p", "#{pid}"))

    def start(self, command):
        self.number += 1
        name = f"s{self.number}"
        self.tmux("new-session", "-d", "-s", name, "-x", "120", "-y", "40", command)
        return name

    def line(self, session, text, sign):
        self.tmux("send-keys", "-t", session, "-l", text)
        self.tmux("send-keys", "-t", session, "Enter")
        end = time.monotonic() + PATIENCE
        while sign not in self.tmux("capture-pane", "-p", "-t", session):
            if time.monotonic() > end:
                raise Gone(f"{sign} was not seen within {PATIENCE} s")

    def kill(self, session):
        self.tmux("kill-session", "-t", session)

    def close(self):
        subprocess.run([*self.base, "kill-server"], env=self.env, capture_output=True, check=False)


class TmuxWaiting(TmuxConnection):
    """The same, but the line itself says when it is done (`wait-for -S`). Works in a shell only, not in other programs."""

    def line(self, session, text, sign):
        told = " ".join(self.base)
        self.tmux("send-keys", "-t", session, "-l", f"{text}; {told} wait-for -S {session}")
        self.tmux("send-keys", "-t", session, "Enter")
        self.tmux("wait-for", session)
        self.seen(Answer(0, text=self.tmux("capture-pane", "-p", "-t", session)), sign)


class Floor(contender.Floor):
    label = "floor (C: forkpty, epoll)"

    def connect(self):
        return FloorTerminal(self.wire([install.FLOOR / "mcp_terminal"]))


class Abide(contender.Abide):
    label = "abide: send_input"
    kind = AbideTerminal

    def prepare(self):
        super().prepare()
        install.compile_floor()

    def connect(self):
        return self.kind(self.wire([self.bench.abide, "mcp"]))


class AbideRead(Abide):
    name, label, kind = "abide-read", "abide: send_input beside read_output until", AbideBeside


class Codex(contender.Codex):
    def connect(self):
        return CodexTerminal(self.wire([self.program, "exec-server", "--listen", "stdio", "--concurrent-requests", "32"]), self.env())


class DesktopCommander(contender.DesktopCommander):
    label = "Desktop Commander (no terminal)"

    def connect(self):
        return CommanderTerminal(self.wire(["node", self.program]))


class Tmux(contender.Contender):
    name, label, kind = "tmux", "tmux: capture-pane again and again", TmuxConnection

    def prepare(self):
        self.program = install.debian("tmux", ["tmux"])

    def env(self):
        return {**super().env(), **install.debian_env(), "LANG": "C.UTF-8"}

    def connect(self):
        connection = self.kind(self.program, self.home, self.env())
        connection.start("exec sleep 1000000")  # the server lives as long as one session does
        return connection


class TmuxWait(Tmux):
    name, label, kind = "tmux-wait", "tmux: wait-for", TmuxWaiting


class PythonServer(contender.Contender):
    """A server from PyPI."""

    module, kind = "", None

    def prepare(self):
        self.folder = install.python_package(self.name)

    def env(self):
        return {**super().env(), "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "PTY_MCP_MAX_SESSIONS": "1000",
                "TERMINAL_MCP_MAX_SESSIONS": "1000"}

    def connect(self):
        return self.kind(self.wire([os.path.realpath(sys.executable), "-c", f"from {self.module} import main; main()"]))


class PtyMcp(PythonServer):
    name, label, module, kind = "pty-mcp", "pty-mcp (PyPI)", "pty_mcp.server", PtyMcpTerminal


class TerminalMcp(PythonServer):
    name, label, module, kind = "terminal-mcp", "terminal-mcp (PyPI)", "terminal_mcp.server", TerminalMcpTerminal


ALL = {kind.name: kind for kind in (Floor, Abide, AbideRead, Tmux, TmuxWait, Codex, DesktopCommander, PtyMcp, TerminalMcp)}
