"""Newline-delimited JSON-RPC to a child process over its stdin and stdout.

It knows lines and ids, not what a tool is. One thread, no queue: whoever waits reads, so that the client
costs every contender the same and as little as Python allows.
"""

import json
import os
import select
import subprocess
import time


class Gone(Exception):
    """The other side has ended or does not answer."""


class Wire:
    def __init__(self, argv, env, cwd, errors):
        self.child = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self.write_fd = self.child.stdin.fileno()
        self.read_fd = self.child.stdout.fileno()
        self.poll = select.poll()
        self.poll.register(self.read_fd, select.POLLIN)
        self.pieces = []
        self.last_id = 0

    def send(self, method, params, *, notify=False):
        """Sends a request (its id is returned) or a notification."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if not notify:
            self.last_id += 1
            message["id"] = self.last_id
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.write_fd, data):]
        except BrokenPipeError as error:
            raise Gone("the server has closed its input") from error
        return message.get("id")

    def lines(self, patience):
        """The lines that have come, as bytes; waits up to `patience` seconds for the first bytes."""
        if not self.poll.poll(max(0, int(patience * 1000 + 0.999))):
            return []
        data = os.read(self.read_fd, 1 << 20)
        if not data:
            raise Gone(f"the server has ended (exit code {self.child.poll()})")
        if b"\n" not in data:
            self.pieces.append(data)
            return []
        whole = b"".join(self.pieces) + data
        *lines, rest = whole.split(b"\n")
        self.pieces = [rest] if rest else []
        return lines

    def request(self, method, params, patience=30):
        """Asks and waits for the answer; everything else that comes meanwhile is dropped."""
        wanted = self.send(method, params)
        end = time.monotonic() + patience
        while (left := end - time.monotonic()) > 0:
            for line in self.lines(left):
                message = json.loads(line) if line.strip() else {}
                if message.get("id") == wanted and "method" not in message:
                    if "error" in message:
                        raise Gone(f"{method}: {message['error'].get('message')}")
                    return message["result"]
        raise Gone(f"{method}: no answer within {patience} s")

    def close(self):
        for stream in (self.child.stdin, self.child.stdout):
            try:
                stream.close()
            except OSError:
                pass
        try:
            self.child.wait(2)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
