"""Timers made on PostgreSQL: one caller, many machines with one caller each, and in bulk."""

from ..fleet import MACHINES
from ..report import Table, median, rate, ratio
from ..wire import Gone


def measure(bench):
    rounds, one, many, bulk = (2, 100, 10, 10_000) if bench.quick else (bench.rounds or 7, 500, 100, 50_000)
    table = Table("fleet_timers", f"durable timers made on PostgreSQL, {rounds} rounds in turn",
                  ["store", "one caller", "to bare", f"{MACHINES} callers", "to bare", "in bulk", "to bare"])
    measures = [lambda store: store.one(one), lambda store: store.many(many), lambda store: bulk / store.bulk(bulk)]
    with bench.started(list(bench.contenders), table) as entries:
        rates = {name: [[] for _ in measures] for name in entries}
        for turn in range(-1, rounds):
            for name, (store, _) in bench.rotated(entries, turn):
                for values, run in zip(rates[name], measures):
                    speed = run(store)
                    if turn >= 0:
                        values.append(speed)
        if "postgres" not in entries:
            raise Gone("nothing to compare with")
        bare = [median(values) for values in rates["postgres"]]
        for name, (store, _) in entries.items():
            cells = [(rate(median(values)), ratio(median(values), base)) for values, base in zip(rates[name], bare)]
            table.rows.append([store.label, *(cell for pair in cells for cell in pair)])
            table.data[name] = rates[name]
    table.notes = [f"bare: `pgbench` with a prepared INSERT into a table with one more index, and COPY of 10 000 rows at a time; abide: HTTP on a unix socket, "
                   f"{MACHINES} callers are {MACHINES} daemons with one caller each, in bulk 10 000 a request to one daemon"]
    return table
