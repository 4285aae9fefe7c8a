"""What each accelerator saves: the call it is made for, with it and without it (ABIDE_OFF), in turns."""

import os
import time

from ..contender import Abide
from ..report import Table, median, ms, percentile, ratio

WARM_UP = 5
DELETED_FILES = 20_000
LOG_LINES = 300_000


def shell_true(connection, _contender):
    start = time.perf_counter()
    return connection.shell("true").at - start


def long_log(connection, contender):
    start = time.perf_counter()
    return connection.shell(f"cat {contender.home}/log").at - start


def write_log(contender):
    with open(contender.home / "log", "w", encoding="utf-8") as log:
        for number in range(LOG_LINES):
            log.write(f"2026-01-01T00:00:00Z INFO worker[3] request {number:06} handled GET /items 200 in 4 ms\n")


def delete_files(contender):
    """Leaves what a build or a test run leaves: very many inodes that were freed a moment ago."""
    folder = contender.home / "deleted"
    folder.mkdir()
    for number in range(DELETED_FILES):
        (folder / str(number)).touch()
    for number in range(DELETED_FILES):
        (folder / str(number)).unlink()
    folder.rmdir()


# Accelerator: the call that it is for, what is prepared before, and rounds (quick, full).
ROWS = {
    "keeper_pool": ("`shell true`", shell_true, None, (50, 300)),
    "ext4_placement": (f"`shell true` after {DELETED_FILES:,} files were deleted nearby", shell_true, delete_files, (50, 300)),
    "repeat_fast_path": (f"`shell cat` of {LOG_LINES:,} lines that repeat", long_log, write_log, (3, 15)),
}


class On(Abide):
    name, label = "on", "on"


def off(accelerator):
    class Off(Abide):
        name, label = accelerator, f"without {accelerator}"

        def env(self):
            return {**super().env(), "ABIDE_OFF": accelerator}

    return Off


CONTENDERS = {"on": On, **{accelerator: off(accelerator) for accelerator in ROWS}}


def measure(bench):
    table = Table("ablation", "each accelerator on and off, in turns",
                  ["accelerator", "call", "on: median", "off: median", "on to off", "on: p90", "off: p90"])
    for accelerator, (what, call, prepare, rounds) in ROWS.items():
        if accelerator in bench.without:
            continue
        rounds = bench.rounds or rounds[0 if bench.quick else 1]
        with bench.started(["on", accelerator], table) as entries:
            if len(entries) < 2:
                continue
            for contender, _ in entries.values():
                if prepare:
                    prepare(contender)
            took = {name: [] for name in entries}
            for turn in range(-WARM_UP, rounds):
                for name, (contender, connection) in bench.rotated(entries, turn):
                    seconds = call(connection, contender)
                    if turn >= 0:
                        took[name].append(seconds)
        middle = {name: median(times) for name, times in took.items()}
        table.rows.append([accelerator, what, ms(middle["on"]), ms(middle[accelerator]), ratio(middle["on"], middle[accelerator]),
                           ms(percentile(took["on"], 90)), ms(percentile(took[accelerator], 90))])
        table.data[accelerator] = {"on_s": middle["on"], "off_s": middle[accelerator], "rounds": rounds}
        os.sync()
    table.notes = ["on to off: below 0.90 the accelerator saves at least a tenth of the call"]
    return table
