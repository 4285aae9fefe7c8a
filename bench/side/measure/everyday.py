"""Fifteen everyday tasks, each done by a scripted agent with abide's tools, with Codex's own and with Claude Code's own:
how many calls, and how many tokens for the calls and what the model is shown of their results. Every call is a model
request that carries the whole conversation again.

A script does what a careful model would do that knows its tools. It fails if the model was not shown what it looked for."""

import json
import pathlib
import re
import tempfile
import time

from .. import agents, install, logs, tokenizer
from ..report import Table
from ..wire import Gone

AGENTS = (agents.AbideAgent, agents.CodexAgent, agents.ClaudeAgent)
SLOW_SERVER = "sleep 6; exec python3 -m http.server {port} --bind 127.0.0.1"
CRASHING_SERVER = "echo starting; sleep 2; echo 'fatal: config.yml not found'; exit 1"
CHATTY = "for i in $(seq 400); do echo \"[$i/400] compiling unit_$i.c\"; sleep 0.1; done; echo built"
PROMPT = "printf 'Overwrite? [y/N] '; read answer; echo \"answer: $answer\""


def measure(bench):
    table = Table("everyday", "15 everyday tasks by a scripted agent: calls, tokens of calls and results (o200k), seconds",
                  ["task", *[agent.label for agent in AGENTS]])
    with tempfile.TemporaryDirectory(prefix="abide-bench-everyday-") as folder:
        place = prepare(pathlib.Path(folder))
        results = {agent.name: run_all(bench, table, agent, place) for agent in AGENTS if agent.name not in bench.without}
    for task in TASKS:
        table.rows.append([task, *[results.get(agent.name, {}).get(task, "–") for agent in AGENTS]])
    table.data = table.data | {"tasks": {task: {name: of.get(task) for name, of in results.items()} for task in TASKS}}
    table.notes = ["calls / tokens / seconds; \"lost\": the model was not shown what it needed",
                   "Codex and Claude Code are the real programs against a stand-in for their model on loopback",
                   "abide's results are counted in the form that Claude Code shows"]
    return table


def prepare(folder):
    """Files that the tasks read."""
    for log in logs.planted():
        (folder / f"{log.name}.log").write_text(log.text)
    (folder / "install.py").write_text(pathlib.Path(install.__file__).read_text())
    return folder


def run_all(bench, table, kind, place):
    one, results, total = kind(bench), {}, [0, 0, 0.0]
    try:
        for number, (task, scripts) in enumerate(TASKS.items()):
            script = scripts[kind.name](Setting(place, 21_000 + number * 3 + AGENTS.index(kind)))
            recorded = Recorder(script)
            began = time.monotonic()
            player = one.play(recorded.script())
            seconds = time.monotonic() - began
            texts = [re.sub(r"\s*<system-reminder>.*?</system-reminder>", "", shown, flags=re.S) for shown in player.shown]
            tokens = sum(tokenizer.count(recorded.calls + texts))
            lost = " lost" if player.failure else ""
            results[task] = f"{len(texts)} / {tokens} / {seconds:.0f} s{lost}"
            total = [total[0] + len(texts), total[1] + tokens, total[2] + seconds]
            if player.failure and bench.options.verbose:
                print(kind.name, task, repr(player.failure), texts[-1:])
        table.data[kind.name] = {"calls": total[0], "tokens": total[1], "seconds": round(total[2], 1)}
    except (install.Missing, Gone) as why:
        table.missing(one.label, why)
    finally:
        one.close()
    return results


class Setting:
    """What a script is told: a folder with files and a port of its own."""

    def __init__(self, place, port):
        self.place, self.port = place, port


class Recorder:
    """Keeps the calls of a script as the model writes them."""

    def __init__(self, script):
        self.inner, self.calls = script, []

    def script(self):
        shown = None
        while True:
            try:
                call = self.inner.send(shown)
            except StopIteration:
                return
            self.calls.append(json.dumps({"name": call[0], "input": call[1]}, separators=(",", ":")))
            shown = yield call


def needs(shown, *facts):
    missing = [fact for fact in facts if fact not in shown]
    if missing:
        raise LookupError(f"not shown: {missing}")


def session_of(shown):
    """The id by which a tool names what it keeps running."""
    found = re.search(r"session_[0-9a-z]{8}|session ID (\d+)", shown)
    if not found:
        raise LookupError(f"no session in {shown[:200]!r}")
    return int(found.group(1)) if found.group(1) else found.group(0)


# The same step in the words of each tool.

def abide_run(command, **more):
    return "execute_command", {"command": command, **more}


def codex_run(command, **more):
    return "exec_command", {"cmd": command, **more}


def claude_run(command, **more):
    return "Bash", {"command": command, **more}


def simple(command, *facts, **limits):
    """One command, one answer."""

    def with_tool(run, name):
        def script(setting):
            shown = yield run(command.format(place=setting.place, port=setting.port), **limits.get(name, {}))
            needs(shown, *facts)
        return script

    return {"abide": with_tool(abide_run, "abide"), "codex": with_tool(codex_run, "codex"), "claude-code": with_tool(claude_run, "claude")}


def noisy(log_name):
    """A long log with errors in it: where the answer lost one, the model searches the file."""

    def with_tool(run):
        def script(setting):
            file = setting.place / f"{log_name}.log"
            signs = next(log.signs for log in logs.planted() if log.name == log_name)
            shown = yield run(f"cat {file}; exit 1")
            if any(sign not in shown for sign in signs):
                more = yield run(f"grep -nEi 'error|fail|panic|fatal|denied|exception|^E:' {file}")
                needs(shown + more, *signs)
        return script

    return {"abide": with_tool(abide_run), "codex": with_tool(codex_run), "claude-code": with_tool(claude_run)}


def server(command, *facts, waits=30):
    """Starts a server and waits for its port."""
    until = "until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.5; done; echo open"

    def abide(setting):
        started = yield "terminal_session", {"action": "start", "command": command.format(port=setting.port), "inactivity_timeout": 0}
        session = session_of(started)
        shown = yield "timer", {"reason": "server", "total_duration": waits, "until": {"port": setting.port}}
        needs(shown, *facts)
        if "fatal" not in "".join(facts):
            yield "terminal_session", {"action": "kill", "session_id": session}

    def codex(setting):
        started = yield codex_run(command.format(port=setting.port), yield_time_ms=500)
        session = session_of(started)
        shown = yield codex_run(f"timeout {waits} bash -c '{until.format(port=setting.port)}'", yield_time_ms=30_000)
        log = ""
        if "open" not in shown:
            log = yield "write_stdin", {"session_id": session, "yield_time_ms": 5_000}
        else:
            yield "write_stdin", {"session_id": session, "chars": "\x03"}
        needs(log + shown.replace("open", "is open"), *facts)

    def claude(setting):
        started = yield claude_run(command.format(port=setting.port), run_in_background=True)
        file = re.search(r"written to: (\S+?)\.? ", started).group(1)
        shown = yield claude_run(f"timeout {waits} bash -c '{until.format(port=setting.port)}'", timeout=120_000)
        log = ""
        if "open" not in shown:
            log = yield "Read", {"file_path": file}
        else:
            yield claude_run(f"pkill -f 'http.server {setting.port}'")
        needs(log + shown.replace("open", "is open"), *facts)

    return {"abide": abide, "codex": codex, "claude-code": claude}


def repl():
    lines = ["import math, statistics", "data = [math.sqrt(n) for n in range(1000)]", "print(round(statistics.mean(data), 3))"]

    def abide(_):
        session = session_of((yield "terminal_session", {"action": "start", "command": "python3 -q"}))
        shown = ""
        for line in lines:
            shown = yield "terminal_session", {"action": "send_input", "session_id": session, "input": line + "\n"}
        needs(shown, "21.066")

    def codex(_):
        session = session_of((yield codex_run("python3 -q", tty=True, yield_time_ms=500)))
        shown = ""
        for line in lines:
            shown = yield "write_stdin", {"session_id": session, "chars": line + "\n"}
        needs(shown, "21.066")

    def claude(_):
        # No terminal: every step repeats what came before.
        shown = ""
        for count in range(1, len(lines) + 1):
            text = "\n".join(lines[:count])
            shown = yield claude_run(f"python3 - <<'EOF'\n{text}\nEOF")
        needs(shown, "21.066")

    return {"abide": abide, "codex": codex, "claude-code": claude}


def prompt():
    def abide(_):
        session = session_of((yield "terminal_session", {"action": "start", "command": PROMPT}))
        needs((yield "terminal_session", {"action": "send_input", "session_id": session, "input": "y\n"}), "answer: y")

    def codex(_):
        session = session_of((yield codex_run(PROMPT, tty=True, yield_time_ms=500)))
        needs((yield "write_stdin", {"session_id": session, "chars": "y\n"}), "answer: y")

    def claude(_):
        shown = yield claude_run(PROMPT, timeout=3_000)
        if "answer: y" not in shown:
            needs((yield claude_run(f"echo y | sh -c '{PROMPT.replace(chr(39), chr(34))}'")), "answer")

    return {"abide": abide, "codex": codex, "claude-code": claude}


def hanging():
    """Partial output of a command that hangs, and its end."""
    command = "echo partial result; sleep 1000"

    def abide(_):
        needs((yield "shell", {"command": command, "timeout": 3}), "partial result", "TIMEOUT_ERROR")

    def codex(_):
        started = yield codex_run(command, yield_time_ms=3_000)
        needs(started, "partial result")
        yield "write_stdin", {"session_id": session_of(started), "chars": "\x03"}

    def claude(_):
        needs((yield claude_run(command, timeout=3_000)), "partial result")

    return {"abide": abide, "codex": codex, "claude-code": claude}


def search():
    """A fact about a long output that nobody looked for while it ran."""
    command = "seq 80000 | sed 's/^/line /; 51234s/$/ undefined reference to frobnicate/'"

    def abide(_):
        shown = yield "shell", {"command": command}
        if "51234 undefined" not in shown:
            needs((yield "terminal_session", {"action": "search", "session_id": session_of(shown), "pattern": "undefined"}), "51234")

    def other(run):
        def script(_):
            shown = yield run(command)
            if "51234 undefined" not in shown:
                needs((yield run(f"{command} | grep undefined")), "51234")
        return script

    return {"abide": abide, "codex": other(codex_run), "claude-code": other(claude_run)}


def two_jobs():
    jobs = ["sleep 4; echo first done", "sleep 6; echo second done"]

    def abide(_):
        sessions = []
        for job in jobs:
            sessions.append(session_of((yield "terminal_session", {"action": "start", "command": job})))
        for session, fact in zip(sessions, ("first done", "second done")):
            needs((yield "execute_command", {"session_id": session}), fact)

    def codex(_):
        sessions = []
        for job in jobs:
            sessions.append(session_of((yield codex_run(job, yield_time_ms=250))))
        for session, fact in zip(sessions, ("first done", "second done")):
            needs((yield "write_stdin", {"session_id": session, "yield_time_ms": 10_000}), fact)

    def claude(_):
        files = []
        for job in jobs:
            shown = yield claude_run(job, run_in_background=True)
            files.append(re.search(r"written to: (\S+?)\.? ", shown).group(1))
        yield claude_run("sleep 7")
        for file, fact in zip(files, ("first done", "second done")):
            needs((yield "Read", {"file_path": file}), fact)

    return {"abide": abide, "codex": codex, "claude-code": claude}


def chatty():
    """A job of 40 seconds that writes a line every tenth of a second."""

    def codex(_):
        shown = yield codex_run(CHATTY, yield_time_ms=30_000)
        while "session ID" in shown:
            shown = yield "write_stdin", {"session_id": session_of(shown), "yield_time_ms": 30_000}
        needs(shown, "built")

    of_others = simple(CHATTY, "built")
    return {"abide": of_others["abide"], "codex": codex, "claude-code": of_others["claude-code"]}


def file_appears():
    make = "(sleep 4; touch {place}/made-{port}) & "
    wait = "until test -e {place}/made-{port}; do sleep 0.5; done; echo there"

    def abide(setting):
        place = {"place": setting.place, "port": setting.port}
        yield "shell", {"command": make.format(**place)}
        shown = yield "timer", {"reason": "file", "total_duration": 30, "until": {"file": "{place}/made-{port}".format(**place)}}
        needs(shown, "completed")

    def other(run):
        def script(setting):
            place = {"place": setting.place, "port": setting.port}
            yield run(f"setsid sh -c '{make.format(**place)}' > /dev/null 2>&1 < /dev/null")
            needs((yield run(wait.format(**place))), "there")
        return script

    return {"abide": abide, "codex": other(codex_run), "claude-code": other(claude_run)}


def logs_named(number):
    return sorted(log.name for log in logs.planted())[number]


TASKS = {
    "a short command": simple("uname -s; ls /", "Linux"),
    "a failing command": simple("ls /nowhere", "No such file"),
    "a noisy log with errors (1)": noisy(logs_named(0)),
    "a noisy log with errors (2)": noisy(logs_named(1)),
    "a source file": simple("cat {place}/install.py", "def package(", "def python_package(", "def codex_program("),
    "a quiet command of 8 s": simple("sleep 8; echo finished", "finished"),
    "a chatty job of 40 s": chatty(),
    "a server: start, wait for its port, end it": server(SLOW_SERVER, "is open"),
    "a server that crashes at its start": server(CRASHING_SERVER, "fatal: config.yml not found", waits=20),
    "a REPL, three lines": repl(),
    "a program that asks y/N": prompt(),
    "a command that hangs, ended after 3 s": hanging(),
    "a fact in 80,000 lines": search(),
    "two jobs at a time": two_jobs(),
    "a file that appears": file_appears(),
}
