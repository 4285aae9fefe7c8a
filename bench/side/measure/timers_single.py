"""Durable timers made one by one: by 64 callers at once, and by one alone."""

from ..report import Table, median, ms, rate, ratio
from ..wire import Gone

MANY = 64


def measure(bench):
    rounds, each, alone = bench.rounds or (2 if bench.quick else 7), 50 if bench.quick else 200, 50 if bench.quick else 300
    table = Table("timers_single", f"durable timers made one by one, {rounds} rounds in turn",
                  ["store", f"{MANY} callers", "to abide", "one caller: each", "to SQLite's commit"])
    with bench.started(list(bench.contenders), table) as entries:
        many, lone, failed = {name: [] for name in entries}, {name: [] for name in entries}, {}
        for turn in range(-1, rounds):
            for name, (store, _) in bench.rotated(entries, turn):
                if name in failed:
                    continue
                try:
                    speed, one = MANY * each / store.single(MANY, each)[0], store.single(1, alone)[1]
                except Gone as error:
                    failed[name] = str(error)
                    continue
                if turn >= 0:
                    many[name].append(speed)
                    lone[name].append(one)
    middle = {name: (median(many[name]), median(lone[name])) for name in entries if name not in failed}
    for name, (store, _) in entries.items():
        if name in failed:
            table.rows.append([store.label, f"failed: {failed[name]}"])
            continue
        speed, one = middle[name]
        table.rows.append([store.label, rate(speed), ratio(speed, middle.get("abide", (None,))[0]), ms(one), ratio(one, middle.get("sqlite", (0, 0))[1])])
        table.data[name] = {"many_per_s": many[name], "lone_s": lone[name]}
    table.notes = ["DelayQueue: nothing is on disk, and the callers are tasks of the same thread",
                   "one caller: the median of a round, and of these the median; PostgreSQL and the library: the mean of a round",
                   "SQLite: one writer at a time, so 64 callers make as many as one; in Python, without any door before it"]
    return table
