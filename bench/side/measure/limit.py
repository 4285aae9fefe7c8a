"""What happens at a limit: how late the answer is, and what of the command still lives after it."""

import time
import uuid

from .. import process
from ..report import Table, median, ms, percentile
from ..wire import Gone

LIMIT = 1
SETTLE = 1.5  # seconds that survivors of the answer have to go away by themselves
PATIENCE = 60

# Each leaves one or more processes; MARK is in the environment of all of them.
CASES = {
    "sleep": "sleep 600",
    "held pipe": "setsid sleep 600 & setsid sh -c 'sleep 600 & sleep 600' & sleep 600",
    "flood": "yes",
}


def measure(bench):
    rounds = bench.rounds or (3 if bench.quick else 20)
    table = Table("limit", f"a command over its limit of {LIMIT} s, {rounds} rounds of each case in turn: answer after the limit, and survivors",
                  ["tool", "case", "median late", "p99 late", "alive at the answer", f"alive {SETTLE} s later"])
    with bench.started(["abide", "codex-app", "desktop-commander"], table) as entries:
        late, left, failed = {}, {}, {}
        for turn in range(rounds):
            for case, script in CASES.items():
                for name, (contender, connection) in bench.rotated(entries, turn):
                    if (name, case) in failed or (name, "") in failed:
                        continue
                    mark = f"ABIDE_BENCH_LIMIT={uuid.uuid4().hex}"
                    try:
                        delay, survivors = one(name, contender, connection, script, mark)
                    except Gone as error:
                        failed[name, case] = str(error)
                        if (connection := reopen(contender)) is None:
                            failed[name, ""] = str(error)
                        else:
                            entries[name] = (contender, connection)
                        continue
                    finally:
                        process.end_carrying(mark)
                    late.setdefault((name, case), []).append(delay)
                    left.setdefault((name, case), []).append(survivors)
    for name, (contender, _) in entries.items():
        for case in CASES:
            if (name, case) not in late:
                table.rows.append([contender.label, case, f"no answer: {failed.get((name, case), failed.get((name, '')))}"])
                continue
            delays, counts = late[name, case], left[name, case]
            table.rows.append([contender.label, case, ms(median(delays)), ms(percentile(delays, 99)),
                               max(first for first, _ in counts), max(last for _, last in counts)])
            table.data[f"{name}/{case}"] = {"late_s": delays, "alive_at_the_answer_and_later": counts, "failed": failed.get((name, case))}
    table.notes = ["alive: the most processes of the command in any round; the bench ends them afterwards",
                   "Desktop Commander's limit ends nothing by design: the delay is that of its answer, the counts are from its force_terminate on"]
    return table


def one(name, contender, connection, script, mark):
    quoted = script.replace("'", "'\\''")
    start = time.perf_counter()
    answer = connection.shell(f"exec env {mark} sh -c '{quoted}'", limit=LIMIT, patience=PATIENCE)
    if name == "desktop-commander" and answer.session is not None:
        connection.wait(connection.call("force_terminate", {"pid": answer.session}), PATIENCE)
    first = last = len(process.carrying(mark))
    end = time.monotonic() + SETTLE
    while last and time.monotonic() < end:
        time.sleep(0.05)
        last = len(process.carrying(mark))
    return answer.at - start - LIMIT, (first, last)


def reopen(contender):
    """A fresh server in place of one that does not answer."""
    contender.close()
    try:
        return contender.open()
    except Exception:  # the row says that it failed; the others go on
        return None
