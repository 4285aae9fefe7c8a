"""What small answers cost a model in each client: tokens that the client shows, against the tokens of the text alone.

Claude Code and Codex show `structuredContent` where a result has it, else the text. Gemini CLI shows the text."""

from .. import contender, tokenizer
from ..report import Table

#: Name that a client gives at the handshake, and whether it shows a model `structuredContent` instead of the text.
CLIENTS = {"claude-code": True, "codex-mcp-client": True, "gemini-cli-mcp-client": False}


def measure(bench):
    table = Table("small_results", "small answers: tokens that a model is shown, and how many times the text alone that is (o200k)",
                  ["client", "tools and instructions", *CALLS])
    for client, shows_fields in CLIENTS.items():
        one = contender.Abide(bench)
        one.handshake = {**contender.HANDSHAKE, "clientInfo": {"name": client, "version": "1"}}
        try:
            connection = one.open()
            listed = connection.wire.request("tools/list", {})["tools"]
            shown = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]} for tool in listed]
            answers = [step(connection) for step in CALLS.values()]
        finally:
            one.close()
        shown = [contender.compact(tool) for tool in shown] + [connection.instructions]
        pairs = [(answer.shown if shows_fields else answer.text, answer.text) for answer in answers]
        counts = tokenizer.count(shown + [text for pair in pairs for text in pair])
        tools, counts = sum(counts[:len(shown)]), counts[len(shown):]
        pairs = list(zip(counts[::2], counts[1::2]))
        table.rows.append([client, tools, *[f"{cost} ({cost / text:.2f}×)" for cost, text in pairs]])
        table.data[client] = {"tools": tools, "calls": {name: {"shown": cost, "text": text} for name, (cost, text) in zip(CALLS, pairs)}}
    return table


def call(connection, tool, **arguments):
    return connection.wait(connection.call(tool, arguments))


def in_session(action, **arguments):
    """A step that acts on a new shell session with a little output."""

    def step(connection):
        started = call(connection, "terminal_session", action="start", command="sh")
        session = started.text.split("'")[1]
        call(connection, "terminal_session", action="send_input", session_id=session, input="seq 20\n")
        answer = call(connection, "terminal_session", action=action, session_id=session, **arguments)
        call(connection, "terminal_session", action="kill", session_id=session)
        return answer

    return step


def timers(connection):
    for number in range(20):
        call(connection, "timer", mission=f"look at build {number}", total_duration=1000)
    return call(connection, "read_timer")


CALLS = {
    "shell `echo hi`": lambda connection: call(connection, "shell", command="echo hi"),
    "execute_command `echo hi`": lambda connection: call(connection, "execute_command", command="echo hi"),
    "read_output, nothing new": in_session("read_output"),
    "screen": in_session("screen"),
    "search": in_session("search", pattern="1"),
    "list": in_session("list", include_ended=True),
    "read_timer, 20 timers": timers,
}
