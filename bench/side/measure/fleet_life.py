"""What a fleet does by itself: completions, statements while idle, taking over the timers of a dead machine."""

import time

from ..report import Table, median

IDLE_MACHINES = 8


def measure(bench):
    count, losses, idle = (10_000, 2, 20) if bench.quick else (50_000, bench.rounds or 10, 60)
    table = Table("fleet_life", "a fleet by itself", ["what", "measured"])
    with bench.started(["abide"], table) as entries:
        for fleet, _ in entries.values():
            speeds = [fleet.completions(count) for _ in range(3)]
            table.rows.append([f"completions a second, {count} due at once on one machine", f"{median(speeds):,.0f}".replace(",", " ")])
            fleet.grow(3)
            taken = sorted(fleet.takeover(turn) for turn in range(losses))
            table.rows.append([f"takeover after the loss of one of 3 machines, {losses} times", f"median {median(taken):.1f} s, most {taken[-1]:.1f} s"])
            fleet.grow(IDLE_MACHINES)
            time.sleep(15)  # what follows a join or a loss is over
            fleet.server.statements()
            time.sleep(idle)
            each = fleet.server.statements() / IDLE_MACHINES / idle * 5
            table.rows.append([f"an idle machine in 5 s, one of {IDLE_MACHINES}", f"{each:.1f} statements"])
            table.data = {"completions_per_s": speeds, "takeover_s": taken, "idle_statements": each}
    return table
