"""What an idle session costs: the private memory of its keeper, and how often it wakes."""

import time

from .. import process
from ..report import Table, median

KEEPER = "abide-keeper"
SESSIONS = 8
IDLE = 10  # seconds


def measure(bench):
    table = Table("keeper_memory", f"the keepers of {SESSIONS} idle sessions (`sleep 1000`), over {IDLE} s",
                  ["process", "private memory", "most", "resident", "wake-ups in all"])
    with bench.started(["abide"], table) as entries:
        for contender, connection in entries.values():
            for _ in range(SESSIONS):
                connection.begin("sleep 1000", limit=3600)
            keepers = settled(contender)
            if not keepers:
                table.missing("abide keeper", f"no process named {KEEPER}")
                continue
            time.sleep(2)
            daemon = contender.server_pid(connection)
            for label, pids in (("abide keeper", keepers), ("abide daemon", [daemon])):
                table.data[label] = watch(pids)
            for label, seen in table.data.items():
                table.rows.append([label, f"{median(seen['private_kb']):.0f} kB", f"{max(seen['private_kb'])} kB",
                                   f"{median(seen['resident_kb']):.0f} kB", sum(seen["wake_ups"])])
    table.notes = ["private: Private_Clean + Private_Dirty of smaps_rollup; wake-ups: voluntary context switches, 0 expected of a keeper"]
    return table


def settled(contender):
    """The keepers, once there is one for every session (or after some seconds those that there are)."""
    found = []
    for _ in range(50):
        ours = {*process.carrying(contender.mark), *process.carrying(str(contender.home), in_command=True)}
        found = sorted(pid for pid in ours if process.name(pid) == KEEPER)
        if len(found) >= SESSIONS:
            break
        time.sleep(0.1)
    return found


def watch(pids):
    before = [process.status_number(pid, "voluntary_ctxt_switches") or 0 for pid in pids]
    time.sleep(IDLE)
    after = [process.status_number(pid, "voluntary_ctxt_switches") or 0 for pid in pids]
    return {"private_kb": [process.private_kb(pid) for pid in pids], "resident_kb": [process.resident_kb(pid) for pid in pids],
            "wake_ups": [b - a for a, b in zip(before, after)]}
