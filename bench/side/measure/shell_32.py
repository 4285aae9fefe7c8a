"""How many `shell` calls of `true` a second, with 32 in flight."""

import time

from ..report import Table, median, ratio

IN_FLIGHT = 32
LONGEST = 5.0  # seconds that one block may take


def measure(bench):
    blocks, calls = (3, 128) if bench.quick else (7, 640)
    table = Table("shell_32", f"calls of `true` a second with {IN_FLIGHT} in flight, {blocks} blocks of up to {calls} in turn",
                  ["tool", "calls/s", "to the floor", "to abide"])
    with bench.started(["floor", "abide", "codex", "codex-app", "desktop-commander"], table) as entries:
        rates = {name: [] for name in entries}
        for turn in range(-1, blocks):
            for name, (_, connection) in bench.rotated(entries, turn):
                rate = block(connection, calls)
                if turn >= 0:
                    rates[name].append(rate)
    middle = {name: median(values) for name, values in rates.items()}
    for name, (contender, _) in entries.items():
        table.rows.append([contender.label, f"{middle[name]:.0f}", ratio(middle[name], middle.get("floor")),
                           ratio(middle[name], middle.get("abide"))])
        table.data[name] = {"calls_per_s": middle[name], "blocks": rates[name]}
    return table


def block(connection, calls):
    start = time.perf_counter()
    for _ in range(IN_FLIGHT):
        connection.begin("true")
    begun, done, last = IN_FLIGHT, 0, start
    while done < begun:
        _, answer = connection.any()
        done, last = done + 1, answer.at
        if begun < calls and last - start < LONGEST:
            connection.begin("true")
            begun += 1
    return done / (last - start)
