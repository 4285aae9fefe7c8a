"""How long one `shell` call of `true` takes."""

import time

from ..report import Table, median, ms, percentile, ratio

WARM_UP = 5


def measure(bench):
    rounds = bench.rounds or (50 if bench.quick else 300)
    table = Table("shell_true", f"one call that runs `true`, {rounds} rounds in turn", ["tool", "median", "p90", "to the floor", "to abide"])
    with bench.started(["floor", "abide", "codex", "codex-app", "desktop-commander"], table) as entries:
        took = {name: [] for name in entries}
        for turn in range(-WARM_UP, rounds):
            for name, (_, connection) in bench.rotated(entries, turn):
                start = time.perf_counter()
                answer = connection.shell("true")
                if turn >= 0:
                    took[name].append(answer.at - start)
    middle = {name: median(times) for name, times in took.items()}
    for name, (contender, _) in entries.items():
        table.rows.append([contender.label, ms(middle[name]), ms(percentile(took[name], 90)),
                           ratio(middle[name], middle.get("floor")), ratio(middle[name], middle.get("abide"))])
        table.data[name] = {"median_s": middle[name], "p90_s": percentile(took[name], 90), "p99_s": percentile(took[name], 99),
                            "rounds": len(took[name])}
    return table
