"""What Codex shows its model: the real binary is run against a stand-in for the model on loopback.

The stand-in asks for one `exec_command` and records the tool output that Codex sends back, as it is.
"""

import http.server
import json
import subprocess
import threading

from .contender import Codex
from .wire import Gone

MODEL = "gpt-5.5"  # one of Codex's own catalogue that calls exec_command directly
USAGE = {"input_tokens": 0, "input_tokens_details": None, "output_tokens": 0, "output_tokens_details": None, "total_tokens": 0}


class StandIn(http.server.ThreadingHTTPServer):
    """Answers the first request of a turn with a tool call, and the one that brings its output with `done`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.command, self.output = "", None
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Nothing is logged."""

    def do_GET(self):
        self.reply("application/json", b'{"models":[],"data":[]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
        if outputs:
            self.server.output = outputs[-1]
            item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "done"}]}
        else:
            words = json.dumps({"cmd": self.server.command, "yield_time_ms": 30000})
            item = {"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": words}
        events = [{"type": "response.created", "response": {"id": "r1"}}, {"type": "response.output_item.done", "item": item},
                  {"type": "response.completed", "response": {"id": "r1", "usage": USAGE}}]
        stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.reply("text/event-stream", stream.encode())

    def reply(self, kind, data):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class CodexModel(Codex):
    """`codex exec`, used for what its model is given. It has no connection; `show` runs one command in one turn."""

    name, label = "codex", "Codex exec (as its model sees it)"

    def connect(self):
        self.server = StandIn()
        (self.home / ".codex" / "config.toml").write_text(f"""model = "{MODEL}"
model_provider = "stand_in"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stand_in]
name = "stand-in"
base_url = "http://127.0.0.1:{self.server.server_port}/v1"
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false
""")
        return self

    def show(self, command):
        self.server.command, self.server.output = command, None
        done = subprocess.run([self.program, "exec", "--skip-git-repo-check", "--ephemeral", "--dangerously-bypass-approvals-and-sandbox",
                               "-C", self.home, "go"], env=self.env(), cwd=self.home, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        if not isinstance(self.server.output, str):
            raise Gone(f"codex exec gave its model no output (exit code {done.returncode})")
        return self.server.output

    def close(self):
        for connection in self.connections:
            connection.server.shutdown()
            connection.server.server_close()
        self.connections = []
        super().close()
