"""A million pending timers: how fast they are made, what they weigh, how soon a restart has them, how fast overdue ones are completed."""

from ..report import Table, rate, ratio
from ..wire import Gone


def measure(bench):
    count = bench.options.count or (20_000 if bench.quick else 1_000_000)
    table = Table("timers_bulk", f"{count:,} pending timers".replace(",", " "),
                  ["store", "made", "to abide", "memory each", "ready after a crash", "overdue ones completed", "to abide"])
    with bench.started(list(bench.contenders), table) as entries:
        found, failed = {}, {}
        for name, (store, _) in entries.items():
            try:
                found[name] = one(store, count)
            except Gone as error:
                failed[name] = str(error)
    base = found.get("abide", {})
    for name, (store, _) in entries.items():
        if name in failed:
            table.rows.append([store.label, f"failed: {failed[name]}"])
            continue
        seen = found[name]
        each = "–" if seen["kb"] is None else f"{round(seen['kb'] * 1024 / count)} B"
        ready = "all is lost" if seen["restart_s"] is None else f"{seen['restart_s']:.2f} s"
        table.rows.append([store.label, rate(seen["made"]), ratio(seen["made"], base.get("made")), each, ready,
                           rate(seen["drained"]), ratio(seen["drained"], base.get("drained"))])
    table.data = found
    table.notes = ["made: 10 000 in a batch, on disk after each; memory: growth of PSS of the server, with its caches",
                   "ready: from the start after a kill to the first answer. SQLite has no server: it is opened and asked for the first deadline",
                   "completed: 1 000 at a time, each completion on disk; abide from the start of the daemon on, with the message to the owner"]
    return table


def one(store, count):
    before = store.weigh()
    seconds = store.bulk(count)
    after = store.weigh()
    return {"made": count / seconds, "kb": None if after is None else after - (before or 0), "restart_s": store.restart(count),
            "drained": count / store.drain()}
