"""How late timers are that are all due within the same second."""

from ..report import Table, percentile
from ..wire import Gone


def measure(bench):
    count = 2_000 if bench.quick else 10_000
    table = Table("timers_late", f"{count:,} timers due within one second: how late".replace(",", " "), ["store", "median", "p99", "most", "early"])
    with bench.started(list(bench.contenders), table) as entries:
        for name, (store, _) in entries.items():
            try:
                late = store.late(count)
            except Gone as error:
                table.rows.append([store.label, f"failed: {error}"])
                continue
            table.rows.append([store.label, *(f"{percentile(late, share):.1f} ms" for share in (50, 99, 100)), sum(one < 0 for one in late)])
            table.data[name] = {"p50_ms": percentile(late, 50), "p99_ms": percentile(late, 99), "most_ms": max(late), "count": len(late)}
    table.notes = ["abide: until a client that waits in read_messages has it; the library: when decided; the floor: when its completion is on disk; DelayQueue: when it comes out, on no disk",
                   "SQLite, Redis and PostgreSQL are asked every 10 ms, 1 000 at a time, which is also what waiting costs them"]
    return table
