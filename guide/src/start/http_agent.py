import json, pathlib, urllib.request

state = pathlib.Path.home() / ".local/state/abide"
token = (state / "token").read_text().strip()
address = (state / "run/http.address").read_text().strip()

def call(tool, **fields):
    request = urllib.request.Request(
        f"http://{address}/v1/tools/{tool}",
        data=json.dumps(fields).encode(),
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "abide-agent": "my-agent",
        },
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)

server = call("terminal_session", action="start", command="python3 -m http.server 8000")
up = call("timer", total_duration=60, reason="the server", until={"port": 8000})
print(up["completed_by"], "-", up["seen"])
print(call("shell", command="curl -sI http://localhost:8000 | head -1")["text"])
call("terminal_session", action="kill", session_id=server["session_id"])
