"""Calls in a fleet: one that another machine answers, and commands while the database is away."""

import time

from ..report import Table, median, ms, percentile, ratio

WITH, WITHOUT = "shell true", "shell true, database stopped"
# What else runs on the machine changes slowly, so the two are measured in turn.
TURNS = 6


def measure(bench):
    rounds = 30 if bench.quick else bench.rounds or 300
    table = Table("fleet_calls", f"calls in a fleet, {rounds} of each", ["call", "median", "p99"])
    with bench.started(["abide"], table) as entries:
        for fleet, _ in entries.values():
            fleet.grow(2)
            here, there = fleet.machines
            session = there.tool("terminal_session", action="start", command="cat")["session_id"]
            read = {"action": "read_output", "session_id": session, "max_lines": 10, "since": "0"}
            took = {"read_output here": timed(lambda: there.tool("terminal_session", **read), rounds),
                    "read_output forwarded": timed(lambda: here.tool("terminal_session", **read), rounds)}
            for name in [WITH, WITHOUT] * TURNS:
                if name == WITHOUT:
                    fleet.server.stop()
                took.setdefault(name, []).extend(timed(lambda: here.tool("shell", command="true"), rounds // TURNS))
                if name == WITHOUT:
                    fleet.server.begin()
                    here.wait(lambda: not here.request("GET", "/v1/status")["database"]["trouble"])
            for name, values in took.items():
                table.rows.append([name, ms(median(values)), ms(percentile(values, 99))])
            table.notes = [f"without the database a command takes {ratio(median(took[WITHOUT]), median(took[WITH]))} of the time with it, {TURNS} times in turn"]
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
