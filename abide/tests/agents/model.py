"""A model on loopback that does as it is told: asked to begin a mission it starts a timer and ends its turn; told that
the timer has completed it says so. Asked to build, it runs a command and says how it ended. Asked to call a tool of
abide, it calls that. It speaks as much of two APIs as Claude Code and Codex need."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BEGIN = "BEGIN-THE-MISSION"
MISSION = "look whether the build is done"
NEWS = "[System] Timer"
SECONDS = 3
BUILD = "BUILD-THE-PROJECT"
# Followed by the name of a tool and "!": the model calls that tool once.
CALL = "CALL-THE-TOOL-"
CREATED = "created-by-a-command"
TOUCH = f"touch {CREATED}"
# The tools that can run a command, with arguments that create a file.
RUNS = {
    "shell": {"command": TOUCH},
    "execute_command": {"command": TOUCH},
    "terminal_session": {"action": "start", "command": TOUCH},
    "timer": {"total_duration": 20, "reason": "a file", "until": {"command": TOUCH}},
}
# The tools that act on a timer whose command was approved before, with the name of none.
ACTS = {name: {"timer_id": "timer_none"} for name in ("stop_timer", "pause_timer", "resume_timer")}
# The tools that neither run nor end anything.
HARMLESS = {"read_timer": {}, "read_messages": {}, "cancel_timer": {"timer_id": "timer_none"}}
CALLS = RUNS | ACTS | HARMLESS
BEGUN = "building now"
# Quiet until a file is there, so that a person is asked.
COMMAND = f"echo {BEGUN}; until test -e go; do sleep 0.1; done; echo went on"


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that is killed breaks its connection, which is no trouble."""


class Model:
    """What was said to it, newest last, and a server that listens."""

    def __init__(self):
        self.heard = threading.Condition()
        self.news = []
        self.built = []
        self.answered = []
        model = self

        class Door(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer("application/json", b'{"data": [], "models": []}')

            do_HEAD = do_GET

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
                if "count_tokens" in self.path:
                    return self.answer("application/json", b'{"input_tokens": 1}')
                events = claude(model, asked) if "/messages" in self.path else codex(model, asked)
                lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
                return self.answer("text/event-stream", "".join(lines).encode())

            def answer(self, kind, body):
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        self.server = Server(("127.0.0.1", 0), Door)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def hear(self, text):
        """Something new was said at the beginning of a turn."""
        if NEWS in text and MISSION in text:
            with self.heard:
                self.news.append(text)
                self.heard.notify_all()

    def hear_result(self, result):
        """What a tool has answered; of the command, all that it wrote and how it ended."""
        text = json.dumps(result, ensure_ascii=False)
        if BEGUN in text:
            with self.heard:
                self.built.append(text)
                self.heard.notify_all()

    def hear_answer(self, result):
        """The result of a tool that the model was asked to call."""
        with self.heard:
            self.answered.append(json.dumps(result, ensure_ascii=False))
            self.heard.notify_all()

    def answer(self, patience=60):
        """Waits for the result of that call, and forgets it."""
        return self.next_of(self.answered, patience)

    def woken(self, patience=60):
        """Waits until it has been woken, and forgets it."""
        return self.next_of(self.news, patience)

    def told(self, patience=60):
        """Waits until it has been told how its command ended, and forgets it."""
        return self.next_of(self.built, patience)

    def next_of(self, texts, patience):
        with self.heard:
            if not self.heard.wait_for(lambda: texts, patience):
                return None
            text = texts[-1]
            texts.clear()
            return text


def mission():
    return {"total_duration": SECONDS, "mission": MISSION}


def build():
    return {"command": COMMAND, "timeout": 1}


def claude(model, asked):
    """Anthropic's Messages, as a stream."""
    said = asked.get("messages") or [{"content": ""}]
    last = said[-1]["content"]
    parts = [{"type": "text", "text": last}] if isinstance(last, str) else last
    results = [part for part in parts if part.get("type") == "tool_result"]
    texts = " ".join(part["text"] for part in parts if part.get("type") == "text")
    started = any(NEWS not in json.dumps(part) and "timer_id" in json.dumps(part) for part in results)
    model.hear(texts)
    for result in results:
        model.hear_result(result)
    use = None
    if BEGIN in json.dumps(said) and not started and NEWS not in json.dumps(said):
        use = tool_of_claude(asked, "timer", mission())
    elif BUILD in json.dumps(said) and BEGUN not in json.dumps(results):
        use = tool_of_claude(asked, "execute_command", build())
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model"), "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    yield {"type": "message_start", "message": message}
    if use:
        block = {"type": "tool_use", "id": f"toolu_{len(said)}", "name": use[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(use[1])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": "My turn ends."}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "tool_use" if use else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def tool_of_claude(asked, name, fields):
    """A call of abide's tool, or of that which brings it to hand."""
    tool = next((t["name"] for t in asked.get("tools", []) if t["name"].endswith(f"__{name}")), None)
    return (tool, fields) if tool else ("ToolSearch", {"query": f"select:mcp__abide__{name}", "max_results": 3})


def codex(model, asked):
    """OpenAI's Responses, as a stream."""
    items = asked.get("input") or [{}]
    last, tools = items[-1], asked.get("tools") or []
    text = json.dumps(last, ensure_ascii=False) if last.get("type") == "message" else ""
    model.hear(text)
    names = {tool.get("name"): [one.get("name") for one in tool.get("tools") or []] for tool in tools}
    space = next((name for name, inside in names.items() if "timer" in inside), None)
    if last.get("type") == "function_call_output":
        model.hear_result(last)
        if CALL in json.dumps(items):
            model.hear_answer(last)
    answer = {"type": "message", "role": "assistant", "id": "m1",
              "content": [{"type": "output_text", "text": "My turn ends."}]}
    tool = ("timer", mission()) if BEGIN in text else ("execute_command", build()) if BUILD in text else None
    if CALL in text:
        name = text.split(CALL, 1)[1].split("!", 1)[0]
        tool = (name, CALLS[name])
    if tool and space:
        answer = {"type": "function_call", "call_id": f"call_{len(items)}", "namespace": space, "name": tool[0],
                  "arguments": json.dumps(tool[1])}
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
             "total_tokens": 2}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "item": answer}
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}
