"""Start of `true` and opening of files in sandboxes of several kinds, in turns."""

import time

from ..report import Table, median, ms, ratio
from ..sandboxes import CONTENDERS

WARM_UP = 2
# Prints the microseconds of one open: of a file to read, and of one to write, both in the workspace.
OPENS = """python3 - <<'X'
import os, time
def each(flags):
    start = time.perf_counter()
    for _ in range(2000): os.close(os.open("opened", flags))
    return (time.perf_counter() - start) / 2000 * 1e6
os.close(os.open("opened", os.O_CREAT | os.O_WRONLY))
print("opens", each(os.O_RDONLY), each(os.O_WRONLY))
X"""


def opens(connection):
    line = next(line for line in connection.shell(OPENS).text.splitlines() if line.startswith("opens "))
    return [float(number) for number in line.split()[1:]]


def measure(bench):
    table = Table("sandboxes", "`true`, and opening a file 2,000 times, in sandboxes of several kinds",
                  ["sandbox", "`true`", "to no sandbox", "open to read", "open to write"])
    rounds = bench.rounds or (5 if bench.quick else 30)
    with bench.started(list(CONTENDERS), table) as entries:
        took, opened = {name: [] for name in entries}, {name: [] for name in entries}
        for turn in range(-WARM_UP, rounds):
            for name, (_, connection) in bench.rotated(entries, turn):
                start = time.perf_counter()
                seconds = connection.shell("true").at - start
                if turn >= 0:
                    took[name].append(seconds)
                    opened[name].append(opens(connection))
        for name, (contender, _) in entries.items():
            middle = median(took[name])
            read, write = (median(each) for each in zip(*opened[name]))
            table.rows.append([contender.label, ms(middle), ratio(middle, median(took["nothing"])) if "nothing" in took else "–",
                               f"{read:.1f} µs", f"{write:.1f} µs"])
            table.data[name] = {"true_s": middle, "open_read_us": read, "open_write_us": write, "rounds": rounds}
    table.notes = ["abide starts commands from a daemon; the others are programs that are started for each command"]
    return table
