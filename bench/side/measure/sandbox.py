"""What a sandbox adds to one call of `true`: each mode beside no sandbox, in turns."""

import time

from ..contender import Abide, AbideConnection
from ..report import Table, median, ms, percentile
from ..wire import Wire

WARM_UP = 5
MODES = ["off", "read-only", "workspace-write"]
MOST_ADDED_S = 0.003


def in_mode(mode):
    class Sandboxed(Abide):
        name, label = mode, mode

        def prepare(self):
            super().prepare()
            (self.home / "work").mkdir()
            with open(self.home / "abide" / "config.toml", "a", encoding="utf-8") as config:
                config.write(f'[sandbox]\nmode = "{mode}"\n')

        def connect(self):
            # The folder in which the client starts abide is the workspace.
            with open(self.home / "stderr.log", "ab") as errors:
                wire = Wire([str(self.bench.abide), "mcp"], self.env(), self.home / "work", errors)
            return AbideConnection(wire, self.handshake)

    return Sandboxed


CONTENDERS = {mode: in_mode(mode) for mode in MODES}


def measure(bench):
    table = Table("sandbox", "one call of `true` in a sandbox", ["mode", "median", "p90", "added to `off`"])
    rounds = bench.rounds or (50 if bench.quick else 300)
    with bench.started(MODES, table) as entries:
        took = {mode: [] for mode in entries}
        for turn in range(-WARM_UP, rounds):
            for mode, (_, connection) in bench.rotated(entries, turn):
                start = time.perf_counter()
                seconds = connection.shell("true").at - start
                if turn >= 0:
                    took[mode].append(seconds)
    middle = {mode: median(times) for mode, times in took.items()}
    for mode, times in took.items():
        added = middle[mode] - middle.get("off", middle[mode])
        table.rows.append([mode, ms(middle[mode]), ms(percentile(times, 90)), ms(added)])
        table.data[mode] = {"median_s": middle[mode], "added_s": added, "rounds": rounds}
    table.notes = [f"`workspace-write` should add at most {MOST_ADDED_S * 1000:.0f} ms"]
    return table
