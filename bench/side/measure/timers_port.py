"""Waiting for a port: how long after it opened whoever waits has the answer, with one call."""

import socket
import subprocess
import threading
import time

from .. import process
from ..report import Table, ms, percentile
from ..wire import Gone

LOOP = "until (exec 3<>/dev/tcp/127.0.0.1/$0) 2>/dev/null; do sleep 1; done"


def measure(bench):
    rounds = bench.rounds or (5 if bench.quick else 60)
    table = Table("timers_port", f"a port opens while somebody waits for it, {rounds} rounds: answered after", ["tool", "median", "p99", "most", "processor"])
    with bench.started(["abide"], table) as entries:
        for store, _ in entries.values():
            add(table, "abide", f"{store.label}: one timer with `until`", rounds, lambda port, store=store: asked(store, port), store.daemon.pid)
    add(table, "loop", "bash: a look a second", max(3, rounds // 3), looped, None)
    table.notes = ["abide: the tool `timer` over HTTP, until the client has the whole answer; the loop: until it has ended",
                   "waits of 50 to 500 ms, at no fixed distance from a look; processor: of one, while waiting"]
    return table


def add(table, name, label, rounds, wait, pid):
    """One row: how late, and what waiting costs the server."""
    try:
        before, start, late = process.wakes(pid)[1] if pid else 0, time.perf_counter(), []
        for turn in range(rounds):
            late.append(opened(wait, 0.05 + turn * 7_919 % 450 / 1000))
        share = (process.wakes(pid)[1] - before) / 1e9 / (time.perf_counter() - start) if pid else None
    except Gone as error:
        table.rows.append([label, f"failed: {error}"])
        return
    table.rows.append([label, *(ms(percentile(late, part)) for part in (50, 99, 100)), "–" if share is None else f"{share * 100:.1f} %"])
    table.data[name] = {"seconds": late, "processor": share}


def opened(wait, after):
    """Opens a port while `wait` waits for it; how long after that it was done."""
    done, failed = [], []

    def work(port):
        try:
            wait(port)
            done.append(time.perf_counter())
        except (Gone, OSError) as error:
            failed.append(str(error))

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))  # taken, but nobody listens
        waiting = threading.Thread(target=work, args=(place.getsockname()[1],))
        waiting.start()
        time.sleep(after)
        start = time.perf_counter()
        place.listen(16)
        waiting.join()
    if failed:
        raise Gone(failed[0])
    if done[0] < start:
        raise Gone("it was answered before the port was open")
    return done[0] - start


def asked(store, port):
    answer = store.request("POST", "/v1/tools/timer", f'{{"total_duration": 60, "reason": "it opens", "until": {{"port": {port}}}}}')
    if answer.get("completed_by") != "condition":
        raise Gone(f"it was not told that the port is open: {answer}")


def looped(port):
    subprocess.run(["bash", "-c", LOOP, str(port)], check=True, timeout=60)
