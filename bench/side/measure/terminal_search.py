"""Searching a log of 100 MB: the action `search` beside `grep -n` on the same bytes."""

import os
import subprocess
import time

from .. import install
from ..report import Table, median, ms, ratio
from ..wire import Gone

SIZE = 100_000_000
PATIENCE = 120

PATTERNS = {
    "one line, a plain text": "request 000000777777 handled",
    "a few lines, an expression": "request 0+[47]{5,6} handled",
    "nothing, an alternative": "ERROR|panicked at|out of memory",
}


def measure(bench):
    rounds = bench.rounds or (3 if bench.quick else 15)
    table = Table("terminal_search", f"lines of a log of {SIZE // 1_000_000} MB, {rounds} rounds in turn",
                  ["pattern", "lines", "abide search", "grep -En", "to grep", "grep -En, LC_ALL=C", "to that"])
    with bench.started(["abide"], table) as entries:
        for contender, connection in entries.values():
            session, file = flooded(contender, connection)
            for label, pattern in PATTERNS.items():
                took, found = {"search": [], "utf8": [], "c": []}, set()
                for turn in range(-1, rounds):
                    ways = [("search", lambda: search(connection, session, pattern)), ("utf8", lambda: grep(file, pattern, "C.UTF-8")),
                            ("c", lambda: grep(file, pattern, "C"))]
                    for way, do in bench.rotated(dict(ways), turn):
                        seconds, lines = do()
                        found.add(lines)
                        if turn >= 0:
                            took[way].append(seconds)
                if len(found) != 1:
                    raise Gone(f"they do not agree on the lines that match {pattern}")
                middle = {way: median(times) for way, times in took.items()}
                table.rows.append([label, len(found.pop()), ms(middle["search"]), ms(middle["utf8"]), ratio(middle["search"], middle["utf8"]),
                                   ms(middle["c"]), ratio(middle["search"], middle["c"])])
                table.data[label] = {"pattern": pattern, **took}
    table.notes = ["grep: from fork to its end; search: from the call over MCP to its answer, with line numbers and the text of each line",
                   "wanted: within 2× of grep"]
    return table


def flooded(contender, connection):
    """A session that has written it all, and a file with the same bytes."""
    flood = f"{install.FLOOR / 'flood'} {SIZE}"
    file = contender.home / "flood.log"
    with open(file, "wb") as out:
        subprocess.run(flood.split(), stdout=out, check=True)
    answer = connection.ask("shell", command=flood, timeout=PATIENCE)
    if answer.exit_code != 0 or not answer.session:
        raise Gone(f"the flood did not end well: {answer.text[-200:]}")
    return answer.session, file


def search(connection, session, pattern):
    start = time.perf_counter()
    answer = connection.wait(connection.call("terminal_session", {"action": "search", "session_id": session, "pattern": pattern, "max_lines": 1000}),
                             PATIENCE)
    lines = (line.partition(":") for line in answer.text.splitlines() if line[:1].isdigit())
    return answer.at - start, frozenset((number, text) for number, _, text in lines)


def grep(file, pattern, locale):
    start = time.perf_counter()
    done = subprocess.run(["grep", "-En", pattern, file], env={"PATH": os.environ["PATH"], "LC_ALL": locale}, capture_output=True, text=True, check=False)
    took = time.perf_counter() - start
    lines = (line.partition(":") for line in done.stdout.splitlines())
    return took, frozenset((number, text) for number, _, text in lines)
