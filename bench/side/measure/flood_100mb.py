"""What a flood of output costs: its speed, the server's memory, other calls meanwhile, and whether all of it is kept."""

import hashlib
import subprocess
import time

from .. import install, process
from ..report import Table, median, ms, percentile, ratio
from ..wire import Gone

SIZE = 100_000_000
PATIENCE = 60  # seconds that another call may take while the flood runs
PAUSE = 0.01  # between two of the other calls


def measure(bench):
    rounds = 1 if bench.quick else 5
    table = Table("flood_100mb", f"{SIZE // 1_000_000} MB of log lines as fast as they come, {rounds} rounds in turn",
                  ["tool", "MB/s", "to the floor", "memory growth", "`true` alone", "`true` meanwhile", "worst", "kept"])
    speeds, seen, failed = {}, {}, {}
    with bench.started(["floor", "abide", "codex", "desktop-commander"], table) as entries:
        wanted = expected() if entries else None
        for turn in range(rounds):
            for name, entry in bench.rotated(entries, turn):
                if name in failed:
                    continue
                try:
                    result = floor(*entry) if name == "floor" else flood(name, *entry, wanted)
                except Gone as error:
                    failed[name] = str(error)
                    continue
                speeds.setdefault(name, []).append(SIZE / 1e6 / result["seconds"])
                seen.setdefault(name, []).append(result)
    base = median(speeds["floor"]) if "floor" in speeds else None
    for name, (contender, _) in entries.items():
        if name in failed:
            table.rows.append([contender.label, f"failed: {failed[name]}"])
            table.data[name] = {"failed": failed[name], "rounds": seen.get(name, [])}
            continue
        speed, results = median(speeds[name]), seen[name]
        label = "floor (C: pipe to file, 64 KiB)" if name == "floor" else contender.label
        row = [label, f"{speed:.0f}", ratio(speed, base)]
        if name == "floor":
            row += ["–", "–", "–", "–", "all"]
        else:
            others = [value for result in results for value in result["meanwhile"]]
            row += [f"{max(result['growth_kb'] for result in results) / 1024:.1f} MB", ms(median([result["alone"] for result in results])),
                    ms(median(others) if others else None), ms(max(others) if others else None), results[-1]["kept"]]
        table.rows.append(row)
        table.data[name] = {"mb_per_s": speed, "rounds": [{**r, "meanwhile": summary(r.get("meanwhile"))} for r in results]}
    table.notes = ["memory growth: the most that the server's resident memory rose over what it was before, seen while the flood ran",
                   "abide's other calls are on a second connection to the same daemon; the others have one connection to a server",
                   "Codex and Desktop Commander: kept is what the client could get; Codex streams it to the client and keeps little itself"]
    return table


def summary(values):
    return {"median_s": median(values), "p99_s": percentile(values, 99), "calls": len(values)} if values else None


def command():
    return f"{install.FLOOR / 'flood'} {SIZE}"


def expected():
    data = subprocess.run([install.FLOOR / "flood", str(SIZE)], stdout=subprocess.PIPE, check=True).stdout
    return hashlib.sha256(data).hexdigest()


def floor(contender, _connection):
    start = time.perf_counter()
    subprocess.run([install.FLOOR / "pipe_to_file", contender.home / "flood.log", install.FLOOR / "flood", str(SIZE)], check=True)
    return {"seconds": time.perf_counter() - start}


def flood(name, contender, connection, wanted):
    other = contender.second(connection)
    alone = []
    for _ in range(15):
        start = time.perf_counter()
        alone.append(other.shell("true").at - start)
    pid = contender.server_pid(connection)
    before = most = process.resident_kb(pid)
    meanwhile, start = [], time.perf_counter()
    key = connection.begin(command())
    while (answer := connection.ready(key)) is None:
        begun = time.perf_counter()
        reply = patient(other)
        meanwhile.append(reply.at - begun)
        most = max(most, process.resident_kb(pid))
        if other is connection:
            # On one connection an answer can have come while the other was waited for.
            connection.pump(PAUSE)
        else:
            time.sleep(PAUSE)
    finished = finish(name, connection, answer)
    most = max(most, process.resident_kb(pid))
    result = {"seconds": finished - start, "alone": median(alone), "meanwhile": meanwhile, "growth_kb": most - before,
              "kept": kept(name, contender, connection, answer, wanted)}
    if other is not connection:
        other.close()
    return result


def patient(connection):
    try:
        return connection.shell("true", patience=PATIENCE)
    except Gone as error:
        raise Gone(f"`true` meanwhile: {error}") from error


def finish(name, connection, answer):
    """When the flood had really ended: Desktop Commander may answer before."""
    if name != "desktop-commander" or answer.session is None:
        return answer.at
    end = time.monotonic() + 60
    while time.monotonic() < end:
        seen = connection.wait(connection.call("read_process_output", {"pid": answer.session, "offset": -1, "length": 1, "timeout_ms": 100}))
        if "Process completed" in seen.text or "No session found" in seen.text:
            return seen.at
        time.sleep(0.02)
    raise Gone("the flood did not end within 60 s")


def kept(name, contender, connection, answer, wanted):
    """How much of the flood can be had afterwards."""
    try:
        if name == "abide":
            data = contender.recover(answer.session)
        elif name == "codex":
            data = connection.stream_of(answer.session)
        else:
            page = connection.wait(connection.call("read_process_output", {"pid": answer.session, "offset": -10_000_000, "length": 10_000_000}), 60)
            data = "\n".join(line for line in page.text.split("\n") if line.startswith("2026-01-01T")).encode() + b"\n"
    except Gone as error:
        return f"unknown ({error})"
    if hashlib.sha256(data).hexdigest() == wanted:
        return "all"
    return f"{len(data) / SIZE:.1%}"
