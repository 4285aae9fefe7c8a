"""What output costs that is not text: its speed through `shell`, for bytes that are dear to decode."""

import random
import subprocess
import time

from .. import install
from ..report import Table, median, ratio

SIZE = 20_000_000
PATIENCE = 120  # seconds that one call may take


def measure(bench):
    rounds = 1 if bench.quick else 5
    table = Table("flood_bytes", f"{SIZE // 1_000_000} MB that are not UTF-8, {rounds} rounds in turn", ["bytes", "tool", "MB/s", "to the floor"])
    speeds = {}
    with bench.started(["floor", "abide"], table) as entries:
        for turn in range(rounds):
            for kind, data in kinds().items():
                for name, (contender, connection) in bench.rotated(entries, turn):
                    file = contender.home / "flood.bytes"
                    file.write_bytes(data)
                    start = time.perf_counter()
                    if name == "floor":
                        subprocess.run([install.FLOOR / "pipe_to_file", contender.home / "flood.log", "/bin/cat", file], check=True)
                        end = time.perf_counter()
                    else:
                        end = connection.shell(f"cat {file}", patience=PATIENCE).at
                    speeds.setdefault((kind, name), []).append(SIZE / 1e6 / (end - start))
    for (kind, name), values in speeds.items():
        label = "floor (C: pipe to file, 64 KiB)" if name == "floor" else entries[name][0].label
        base = median(speeds[kind, "floor"]) if (kind, "floor") in speeds else None
        table.rows.append([kind, label, f"{median(values):.0f}", ratio(median(values), base)])
        table.data[f"{name}: {kind}"] = {"mb_per_s": median(values)}
    return table


def kinds():
    """The same bytes in every run."""
    return {
        "`FF` again and again": b"\xff" * SIZE,
        "`E2 82` again and again": b"\xe2\x82" * (SIZE // 2),
        "random": random.Random(1).randbytes(SIZE),
    }
