"""Calls in a fleet: one that another machine answers, and commands while the database is away."""

import time

from ..report import Table, median, ms, percentile, ratio


def measure(bench):
    rounds = 30 if bench.quick else bench.rounds or 300
    table = Table("fleet_calls", f"calls in a fleet, {rounds} of each", ["call", "median", "p99"])
    with bench.started(["abide"], table) as entries:
        for fleet, _ in entries.values():
            fleet.grow(2)
            here, there = fleet.machines
            session = there.tool("terminal_session", action="start", command="cat")["session_id"]
            read = {"action": "read_output", "session_id": session, "max_lines": 10, "since": "0"}
            calls = [("read_output here", lambda: there.tool("terminal_session", **read)), ("read_output forwarded", lambda: here.tool("terminal_session", **read)),
                     ("shell true", lambda: here.tool("shell", command="true"))]
            took = {name: timed(call, rounds) for name, call in calls}
            fleet.server.stop()
            took["shell true, database stopped"] = timed(calls[-1][1], rounds)
            for name, values in took.items():
                table.rows.append([name, ms(median(values)), ms(percentile(values, 99))])
            table.notes = [f"without the database a command takes {ratio(median(took['shell true, database stopped']), median(took['shell true']))} of the time with it"]
            table.data = took
    return table


def timed(call, rounds):
    """Seconds of each call, without the first ten."""
    took = []
    for _ in range(rounds + 10):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return took[10:]
