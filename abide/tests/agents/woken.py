"""An idle agent begins a mission over MCP and ends its turn; abide wakes it when the time has come. Every way is
tried with the real client: a session that was closed, one that is open, and a hook. And an agent runs a command that
goes quiet: a person is asked and answers outside of the client, and the agent hears how it really ended. And Codex asks
its user before it calls a tool that can run a command or end something, unless the user has allowed that tool."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from model import BEGIN, BUILD, CALL, CALLS, CREATED, HARMLESS, MISSION, RUNS, Model

ABIDE = str(pathlib.Path(sys.argv[1]).resolve())
PROGRAMS = str(pathlib.Path(sys.argv[2]).resolve())
TOOLS = "mcp__abide"


class Place:
    """A home, a project and an abide of its own."""

    def __init__(self, model, config):
        self.model = model
        self.folder = tempfile.TemporaryDirectory(prefix="abide-agents-")
        root = pathlib.Path(self.folder.name)
        self.home, self.project, self.abide = root / "home", root / "project", root / "abide"
        for path in (self.home, self.project, self.abide):
            path.mkdir(mode=0o700)
        (self.abide / "config.toml").write_text(config)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "ABIDE", "CODEX"))}
        self.env |= {"HOME": str(self.home), "ABIDE_DIR": str(self.abide), "PATH": PROGRAMS + ":" + os.environ["PATH"],
                     "ANTHROPIC_BASE_URL": model.address, "ANTHROPIC_API_KEY": "none",
                     "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A client that was woken still works, and writes into its home until it is ended.
        running = json.loads(self.run(ABIDE, "session", "list", "--json").stdout)["sessions"]
        for session in running:
            self.run(ABIDE, "session", "kill", session["session_id"])
        self.run(ABIDE, "stop")
        self.folder.cleanup()

    def run(self, *words):
        return subprocess.run(words, env=self.env, cwd=self.project, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, check=False)

    def claude(self, *words):
        server = {"command": ABIDE, "args": ["mcp"], "env": {"ABIDE_DIR": str(self.abide)}}
        servers = json.dumps({"mcpServers": {"abide": server}})
        return ["claude", "-p", *words, "--mcp-config", servers, "--strict-mcp-config", "--allowedTools", TOOLS,
                "--model", "claude-sonnet-4-5"]

    def open_claude(self, *words):
        """A session that stays open and idle after its turn."""
        stream = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        session = subprocess.Popen(self.claude(*stream, *words), env=self.env, cwd=self.project, stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        said = {"type": "user", "message": {"role": "user", "content": BEGIN}}
        session.stdin.write(json.dumps(said) + "\n")
        session.stdin.flush()
        return session

    def set_up_codex(self, asks=False, allowed=()):
        """With `asks`, approvals on request and a read-only sandbox, in which these tools are allowed; else Codex may do
        everything."""
        approval, sandbox, mode = (
            ("on-request", "read-only", "") if asks
            else ("never", "danger-full-access", 'default_tools_approval_mode = "approve"')
        )
        tools = "\n".join(f'[mcp_servers.abide.tools.{tool}]\napproval_mode = "approve"' for tool in allowed)
        (self.home / ".codex").mkdir()
        (self.home / ".codex/config.toml").write_text(f"""
            model = "gpt-5"
            model_provider = "played"
            approval_policy = "{approval}"
            sandbox_mode = "{sandbox}"
            [features]
            enable_request_compression = false
            [model_providers.played]
            name = "played"
            base_url = "{self.model.address}/v1"
            wire_api = "responses"
            [mcp_servers.abide]
            command = "{ABIDE}"
            args = ["mcp"]
            env = {{ ABIDE_DIR = "{self.abide}" }}
            {mode}
            {tools}
            [projects."{self.project}"]
            trust_level = "trusted"
        """)

    def open_codex(self, said):
        """A terminal with Codex in it, to which this is said."""
        started = self.run(ABIDE, "session", "start", "--json", "--inactivity", "never", "--", "codex")
        session = json.loads(started.stdout)["session_id"]
        ready = json.dumps({"session": session, "output": "Ask Codex"})
        self.run(ABIDE, "wait", "--until", ready, "--for", "60s")
        self.run(ABIDE, "session", "send", session, said)
        self.run(ABIDE, "session", "send", session, "--key", "enter")
        return session

    def follow_questions(self):
        """A person who can be asked, as long as this runs; each question is a line."""
        return subprocess.Popen([ABIDE, "answer", "--follow", "--json"], env=self.env, cwd=self.project,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def sessions(self):
        """The commands of all sessions, ended ones too."""
        listed = json.loads(self.run(ABIDE, "session", "list", "--all", "--json").stdout)["sessions"]
        return [session["command"] for session in listed]

    def messages(self):
        return json.loads(self.run(ABIDE, "messages", "--json").stdout)["messages"]


def check(holds, what):
    if not holds:
        raise SystemExit(f"FAILED: {what}")


def a_closed_session_of_claude_code(model):
    with Place(model, "[[wakers]]\nclaude_code = true\nafter = 0.2\n") as place:
        ended = place.run(*place.claude(BEGIN))
        check(ended.returncode == 0, ended.stdout + ended.stderr)
        check((model.woken() or "").count(MISSION) == 1, "the session was not taken up again with the text once")


def an_open_session_of_claude_code(model):
    with Place(model, "[[wakers]]\nclaude_code = true\nafter = 0.2\n") as place:
        session = place.open_claude()
        try:
            check(MISSION in (model.woken() or ""), "its inbox brought nothing")
        finally:
            session.kill()
            session.wait()


def a_hook_of_claude_code(model):
    with Place(model, "") as place:
        hook = {"type": "command", "asyncRewake": True, "timeout": 600, "command": f"{ABIDE} messages --hook claude-code"}
        session = place.open_claude("--settings", json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
        try:
            check(MISSION in (model.woken() or ""), "the hook did not wake it")
            check(place.messages()[0]["seen_at"], "the hook has told it")
        finally:
            session.kill()
            session.wait()


def a_closed_thread_of_codex(model):
    with Place(model, "[[wakers]]\ncodex = true\nafter = 0.2\n") as place:
        place.set_up_codex()
        ended = place.run("codex", "exec", "--skip-git-repo-check", BEGIN)
        check(ended.returncode == 0, ended.stdout + ended.stderr)
        check((model.woken() or "").count(MISSION) == 1, "the thread was not taken up again with the text once")


def an_open_thread_of_codex(model):
    with Place(model, "[[wakers]]\ncodex = true\nafter = 0.2\n") as place:
        place.set_up_codex()
        place.open_codex(BEGIN)
        check(MISSION in (model.woken() or ""), "the queue brought nothing")


def tools_that_codex_asks_for(model):
    """With approvals on request, Codex calls by itself only what neither runs nor ends anything."""
    published = json.loads(subprocess.run([ABIDE, "tools", "--format", "mcp"], capture_output=True, check=True).stdout)
    check({tool["name"] for tool in published["tools"]} == set(CALLS), "the model does not know each tool of abide")
    for tool in CALLS:
        with Place(model, "") as place:
            place.set_up_codex(asks=True)
            codex = place.open_codex(f"{CALL}{tool}!")
            if tool in HARMLESS:
                check(model.answer(), f"Codex did not call {tool} by itself")
            else:
                asks = json.dumps({"session": codex, "output": f'run tool "{tool}"'})
                waited = place.run(ABIDE, "wait", "--until", asks, "--for", "60s")
                check(waited.returncode == 0, f"Codex did not ask for {tool}, and these were run: {place.sessions()}")
                place.run(ABIDE, "session", "kill", codex)
            check(not (place.project / CREATED).exists(), f"{tool} ran a command that its user did not allow")
            check(place.sessions() == ["codex"], f"{tool} started {place.sessions()}")


def tools_that_the_user_of_codex_has_allowed(model):
    """The same calls do run the command where the user has allowed that tool, and only that one."""
    for tool in RUNS:
        with Place(model, "") as place:
            place.set_up_codex(asks=True, allowed=[tool])
            for called in RUNS:
                ended = place.run("codex", "exec", "--skip-git-repo-check", f"{CALL}{called}!")
                check(ended.returncode == 0, ended.stdout + ended.stderr)
                answer = model.answer() or ""
                check(("requires approval" in answer) == (called != tool), f"{tool} is allowed, {called} said {answer}")
            appears = json.dumps({"file": CREATED})
            waited = place.run(ABIDE, "wait", "--until", appears, "--for", "60s")
            check(waited.returncode == 0, f"{tool} is allowed and did not run: {waited.stderr}")


def a_question_about_a_command_of_claude_code(model):
    """Without a person at it Claude Code answers no question itself, so the one outside decides."""
    with Place(model, "") as place:
        for yes in (True, False):
            a_person_answers(model, place, yes)


def a_person_answers(model, place, yes):
    person = place.follow_questions()
    agent = subprocess.Popen(place.claude(BUILD), env=place.env, cwd=place.project, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        asked = json.loads(person.stdout.readline())
        answered = place.run(ABIDE, "answer", asked["question_id"], "yes" if yes else "no")
        check(answered.returncode == 0, answered.stderr)
        if yes:
            (place.project / "go").touch()
        told = model.told() or ""
        wanted = "exited with code 0" if yes else "command execution timeout: no output for 1s"
        check(wanted in told and ("went on" in told) == yes, f"the agent was told {told!r}")
        check(agent.wait(timeout=120) == 0, "the client has failed")
    finally:
        (place.project / "go").unlink(missing_ok=True)
        for child in (agent, person):
            child.kill()
            child.wait()


def main():
    model = Model()
    for attempt in (a_closed_session_of_claude_code, an_open_session_of_claude_code, a_hook_of_claude_code,
                    a_closed_thread_of_codex, an_open_thread_of_codex, tools_that_codex_asks_for,
                    tools_that_the_user_of_codex_has_allowed, a_question_about_a_command_of_claude_code):
        attempt(model)
        print("ok  ", attempt.__name__.replace("_", " "))


main()
