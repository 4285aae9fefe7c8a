"""What an agent does with a terminal: start a shell, type a line and get its answer, end it; and what idle ones weigh."""

import time
import uuid

from .. import process
from ..report import Table, kb, median, ms, percentile, ratio
from ..terminal import SHELL
from ..wire import Gone
from .terminal_idle import COMMAND, weigh

WARM_UP = 3
DETACHING = 0.5  # seconds for the child to leave its group before the end
AFTER = 1.5  # seconds that survivors of a kill have to go away by themselves


def measure(bench):
    rounds, idle = bench.rounds or (10 if bench.quick else 100), 10 if bench.quick else 100
    table = Table("terminal_use", f"a shell, a line and its answer {rounds} times in turn, an end, and {idle} idle sessions",
                  ["tool", "start", "line and answer", "p90", "to abide", "calls for it", "left after kill", "idle, each"])
    with bench.started(list(bench.contenders), table) as entries:
        failed = {}
        lines, calls = typed(bench, entries, rounds, failed)
        rows = {}
        for name, (contender, connection) in entries.items():
            if name in failed:
                continue
            try:
                rows[name] = (*ended(connection), *idling(contender, connection, idle))
            except Gone as error:
                failed[name] = str(error)
    base = median(lines["abide"]) if lines.get("abide") else None
    for name, (contender, _) in entries.items():
        if name in failed:
            table.rows.append([contender.label, f"failed: {failed[name]}"])
            continue
        start, left, each = rows[name]
        middle = median(lines[name])
        table.rows.append([contender.label, ms(start), ms(middle), ms(percentile(lines[name], 90)), ratio(middle, base), f"{median(calls[name]):g}",
                           left, kb(each)])
        table.data[name] = {"start_s": start, "line_s": lines[name], "calls": calls[name], "left": left, "kb_each": each}
    table.notes = ["start: the median of ten calls that start a shell",
                   "calls for it: what an agent must call for one line, the median; with Codex's exec-server the client is sent the output and waits by itself",
                   f"left after kill: of a shell that had started `setsid sleep`, {AFTER} s after the end was asked for; the bench ends it afterwards",
                   "idle, each: growth of PSS of the tool's processes, without what the sessions run",
                   "ht (headless terminal) is not measured: no registry has it built"]
    return table


def typed(bench, entries, rounds, failed):
    """One shell in each; a line in each in turn."""
    took, calls = {name: [] for name in entries}, {name: [] for name in entries}
    shells = {}
    for turn in range(-WARM_UP, rounds):
        for name, (_, connection) in bench.rotated(entries, turn):
            if name in failed:
                continue
            try:
                if name not in shells:
                    shells[name] = connection.start(SHELL)
                connection.calls = 0
                # The sum is not in the line as it is typed, so an echo is no answer.
                begun = time.perf_counter()
                connection.line(shells[name], f"echo a$((1000+{turn + WARM_UP}))z", f"a{1000 + turn + WARM_UP}z")
                seconds = time.perf_counter() - begun
                connection.settle()
            except Gone as error:
                failed[name] = str(error)
                continue
            if turn >= 0:
                took[name].append(seconds)
                calls[name].append(connection.calls)
    for name, shell in shells.items():
        if name not in failed:
            entries[name][1].kill(shell)
    return took, calls


def ended(connection):
    """How long starting a shell takes, and how many processes are left of one that was ended."""
    starts = []
    for _ in range(10):
        begun = time.perf_counter()
        shell = connection.start(SHELL)
        starts.append(time.perf_counter() - begun)
        connection.kill(shell)
    mark = f"ABIDE_BENCH_TERMINAL={uuid.uuid4().hex}"
    shell = connection.start(SHELL.replace("env ", f"env {mark} "))
    try:
        connection.line(shell, "setsid sleep 600 & echo b$((1000+1))z", "b1001z")
        connection.settle()
        time.sleep(DETACHING)
        connection.kill(shell)
        end = time.monotonic() + AFTER
        while (left := len(process.carrying(mark))) and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        process.end_carrying(mark)
    return median(starts), left


def idling(contender, connection, count):
    before = weigh(contender)
    for _ in range(count):
        connection.start(COMMAND)
    time.sleep(1)
    # A runtime that tidied up meanwhile would show less than nothing.
    return (max(0, weigh(contender) - before) / count,)
