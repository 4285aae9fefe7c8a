"""What many idle sessions cost: how fast they start, their memory, how often anything wakes, and how soon they are listed."""

import os
import time

from .. import process
from ..report import Table, kb, median, ms, rate, ratio

IN_FLIGHT = 16
SETTLE = 3  # seconds after the last start before anything is counted
COMMAND = "exec cat"  # waits for input: a silent program that does not is waited for by `start`
COMMANDS = ("cat", "sh")  # what the sessions themselves run, which is nobody's cost but theirs


def measure(bench):
    sizes, idle = ([1, 20, 100], 3) if bench.quick else ([1, 100, 1000], 10)
    table = Table("terminal_idle", f"idle terminal sessions (`cat`), watched for {idle} s",
                  ["tool", "sessions", "started", "to the floor", "memory each", "wake-ups a second", "CPU", "listed in"])
    with bench.started(["floor", "abide"], table) as entries:
        bases = {name: weigh(contender) for name, (contender, _) in entries.items()}
        have = 0
        for size in sizes:
            speeds = {name: more(connection, size - have) for name, (_, connection) in entries.items()}
            have = size
            time.sleep(SETTLE)
            for name, (contender, connection) in entries.items():
                grown = (weigh(contender) - bases[name]) / size
                wakes, busy, count = watch(contender, idle)
                took = [listed(connection, size) for _ in range(9)]
                label = "abide" if name == "abide" else contender.label
                table.rows.append([label, size, rate(speeds[name]), ratio(speeds[name], speeds.get("floor")), kb(grown), f"{wakes:.2f}",
                                   f"{busy:.3%}", ms(median(took))])
                table.data[f"{name}/{size}"] = {"starts_per_s": speeds[name], "kb_each": grown, "wakes_per_s": wakes, "cpu": busy,
                                                "processes": count, "list_s": took}
    table.notes = [f"started: {IN_FLIGHT} calls in flight; memory: growth of PSS of all the tool's processes (abide: front, daemon, fork server, keepers), "
                   "without what the sessions run",
                   "wake-ups: voluntary context switches of all threads of these processes",
                   "wanted of 1 000: 300 starts a second, 300 kB each, no wake-up, listed in 50 ms"]
    return table


def more(connection, count):
    """Starts so many sessions, some at once; how many a second."""
    start, waiting, begun = time.perf_counter(), set(), 0
    last = start
    while begun < count or waiting:
        while begun < count and len(waiting) < IN_FLIGHT:
            waiting.add(connection.call("terminal_session", {"action": "start", "command": COMMAND, "inactivity_timeout": 0}))
            begun += 1
        key, answer = connection.any()
        waiting.discard(key)
        last = answer.at
        if not answer.session:
            raise RuntimeError(f"a session did not start: {answer.text[-200:]}")
    return count / (last - start)


def ours(contender):
    """The tool's own processes."""
    found = {*process.carrying(contender.mark), *process.carrying(str(contender.home), in_command=True)}
    return [pid for pid in found if process.name(pid) not in COMMANDS]


def weigh(contender):
    return sum(process.shared_kb(pid) for pid in ours(contender))


def watch(contender, seconds):
    found = ours(contender)
    before = {pid: process.wakes(pid) for pid in found}
    start = time.monotonic()
    time.sleep(seconds)
    after = {pid: process.wakes(pid) for pid in found}
    took = time.monotonic() - start
    woke = sum(after[pid][0] - before[pid][0] for pid in found)
    ran = sum(after[pid][1] - before[pid][1] for pid in found)
    return woke / took, ran / 1e9 / took / os.cpu_count(), len(found)


def listed(connection, size):
    start = time.perf_counter()
    answer = connection.list()
    if answer.text.count("running") < size:
        raise RuntimeError(f"not all of {size} sessions were listed: {answer.text.count('running')}")
    return answer.at - start
