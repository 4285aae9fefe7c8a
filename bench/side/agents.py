"""Agents that follow a script: one that calls abide, and the real Codex and Claude Code with their own tools.

A script is a generator: it yields calls `(tool, arguments)` and is sent what the model is shown of the result. Codex and
Claude Code are run against a stand-in for their model on loopback, which plays the script."""

import http.server
import json
import subprocess
import threading

from . import contender, install
from .wire import Gone

PATIENCE = 120
USAGE = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None, "total_tokens": 2}


class Player:
    """Plays a script and records what was shown."""

    def __init__(self, script):
        self.script, self.shown, self.done = script, [], False
        self.failure = None
        self.over = threading.Event()
        self.next = self.advance(None)

    def advance(self, shown):
        try:
            return self.script.send(shown)
        except StopIteration:
            pass
        except Exception as error:  # the script did not find what it looked for
            self.failure = error
        self.done = True
        self.over.set()
        return None

    def take(self, shown):
        self.shown.append(shown)
        self.next = self.advance(shown)


class AbideAgent(contender.Abide):
    """abide's tools, as Claude Code shows their results."""

    label = "abide"
    shell = None
    handshake = {**contender.HANDSHAKE, "clientInfo": {"name": "claude-code", "version": "1"}}

    def play(self, script):
        connection, player = self.open(), Player(script)
        while not player.done:
            tool, arguments = player.next
            player.take(connection.wait(connection.call(tool, arguments)).shown)
        return player


class Model(http.server.ThreadingHTTPServer):
    """Stand-in for the model of Codex (Responses) and Claude Code (Messages)."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.player, self.tools = None, []
        self.seen = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """A client that ends breaks its connection, which is no failure."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Nothing is logged."""

    def do_GET(self):
        self.reply("application/json", b'{"models":[],"data":[]}')

    do_HEAD = do_GET

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if "count_tokens" in self.path:
            return self.reply("application/json", b'{"input_tokens": 1}')
        events = claude(self.server, body) if "/messages" in self.path else codex(self.server, body)
        stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return self.reply("text/event-stream", stream.encode())

    def reply(self, kind, data):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def step(model, results):
    """Gives new results to the player and returns its next call."""
    for key, text in results:
        if key not in model.seen:
            model.seen.add(key)
            model.player.take(text)
    return model.player.next


def codex(model, body):
    results = [(item["call_id"], item["output"]) for item in body["input"] if item.get("type") == "function_call_output"]
    model.tools = body.get("tools") or model.tools
    call = step(model, results)
    item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "done"}]}
    if call:
        item = {"type": "function_call", "call_id": f"c{len(model.seen)}", "name": call[0], "arguments": json.dumps(call[1])}
    yield {"type": "response.created", "response": {"id": "r1"}}
    yield {"type": "response.output_item.done", "item": item}
    yield {"type": "response.completed", "response": {"id": "r1", "usage": USAGE}}


def claude(model, body):
    parts = [part for message in body.get("messages", []) if isinstance(message["content"], list) for part in message["content"]]
    results = [(part["tool_use_id"], text_of(part.get("content"))) for part in parts if part.get("type") == "tool_result"]
    asks_for_tools = any(tool.get("name") == "Bash" for tool in body.get("tools", []))
    model.tools = body.get("tools") or model.tools
    call = step(model, results) if asks_for_tools else None
    yield {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model"),
                                                "content": [], "stop_reason": None, "stop_sequence": None,
                                                "usage": {"input_tokens": 1, "output_tokens": 1}}}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{len(model.seen)}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None},
           "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def text_of(content):
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [] if part.get("type") == "text")


class NoConnection:
    """The programs are run anew for each script."""

    def close(self):
        """Nothing is open."""


class RealAgent(contender.Contender):
    """One of the two programs. Each script is one run of it."""

    def play(self, script):
        if self.home is None:
            self.open()
        model = Model()
        model.player = Player(script)
        program = subprocess.Popen(self.words(model), env=self.env() | self.variables(model), cwd=self.home, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            model.player.over.wait(PATIENCE)
        finally:
            # Claude Code waits for what still runs in the background.
            program.kill()
            program.wait()
            model.shutdown()
            model.server_close()
        if not model.player.done:
            raise Gone(f"{self.label} did not finish a task within {PATIENCE} s")
        self.tools = model.tools
        return model.player

    def connect(self):
        return NoConnection()

    def variables(self, _):
        return {}


class CodexAgent(RealAgent, contender.Codex):
    name, label = "codex", "Codex"
    MODEL = "gpt-5.5"  # one of Codex's own catalogue that calls exec_command directly

    def words(self, model):
        (self.home / ".codex" / "config.toml").write_text(f"""model = "{self.MODEL}"
model_provider = "stand_in"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stand_in]
name = "stand-in"
base_url = "http://127.0.0.1:{model.server_port}/v1"
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false
""")
        return [self.program, "exec", "--skip-git-repo-check", "--ephemeral", "--dangerously-bypass-approvals-and-sandbox",
                "-C", self.home, "go"]


class ClaudeAgent(RealAgent):
    name, label = "claude-code", "Claude Code"

    def prepare(self):
        found = sorted((install.package("claude-code") / "node_modules" / "@anthropic-ai").glob("claude-code-linux-*/claude"))
        if not found:
            raise install.Missing("the package has no program for this platform")
        self.program = found[0]

    def variables(self, model):
        return {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_port}", "ANTHROPIC_API_KEY": "none", "IS_SANDBOX": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}

    def words(self, _):
        return [self.program, "-p", "go", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash,BashOutput,KillShell,TaskOutput,TaskStop,Monitor,Read,Grep"]
