"""How long it takes from a program's write to the answer of the read that waits for it."""

import os

from .. import install
from ..report import Table, median, ms, percentile, ratio
from ..wire import Gone

WARM_UP = 20
BEFORE = 5_000  # microseconds that the read stands before the program writes
PATIENCE = 20


def measure(bench):
    rounds = bench.rounds or (100 if bench.quick else 2000)
    table = Table("terminal_read", f"from a program's write to the answer of a blocked `read_output`, {rounds} rounds in turn",
                  ["tool", "median", "p90", "p99", "most", "to the floor", "first tenth", "last tenth"])
    with bench.started(["floor", "abide"], table) as entries:
        sessions = {name: begin(contender, connection) for name, (contender, connection) in entries.items()}
        took = {name: [] for name in entries}
        for turn in range(-WARM_UP, rounds):
            for name, (_, connection) in bench.rotated(entries, turn):
                delay = one(connection, *sessions[name])
                if turn >= 0:
                    took[name].append(delay)
        for _, bell in sessions.values():
            os.close(bell)
    middle = {name: median(times) for name, times in took.items()}
    for name, (contender, _) in entries.items():
        label = "abide" if name == "abide" else contender.label
        table.rows.append([label, ms(middle[name]), *(ms(percentile(took[name], share)) for share in (90, 99)), ms(max(took[name])),
                           ratio(middle[name], middle.get("floor")), *map(ms, ends(took[name]))])
        table.data[name] = {"first_tenth_s": ends(took[name])[0], "last_tenth_s": ends(took[name])[1], "median_s": middle[name], "p90_s": percentile(took[name], 90), "p99_s": percentile(took[name], 99),
                            "most_s": max(took[name]), "rounds": rounds}
    table.notes = [f"the program writes the monotonic time {BEFORE / 1000:.0f} ms after the read was sent; the client notes when the answer came",
                   "the read has `until`: without it a read of a terminal waits for what follows the line, such as a prompt",
                   "first and last tenth: their medians, which show whether reading gets slower as the log gets longer",
                   "wanted: a median within 1.5× of the floor and a p99 under 5 ms, on a machine that does nothing else"]
    return table


def ends(times):
    """The medians of the first and of the last tenth of the rounds."""
    tenth = max(1, len(times) // 10)
    return median(times[:tenth]), median(times[-tenth:])


def begin(contender, connection):
    """A session with the program that stamps, and the fifo that asks it for a stamp."""
    fifo = contender.home / "bell"
    os.mkfifo(fifo)
    bell = os.open(fifo, os.O_RDWR)
    session = connection.start(f"exec {install.FLOOR / 'stamp'} {fifo} {BEFORE}")
    # The start may have returned this line already.
    answer = connection.wait(connection.listen(session, "ready", since="0"), PATIENCE)
    if "ready" not in answer.text:
        raise Gone("the program did not start")
    return session, bell


def one(connection, session, bell):
    read = connection.listen(session, "at ")
    os.write(bell, b".")
    answer = connection.wait(read, PATIENCE)
    stamp = [line.split()[1] for line in answer.text.splitlines() if line.startswith("at ")]
    if len(stamp) != 1:
        raise Gone(f"one stamp was expected: {answer.text!r}")
    return answer.at - int(stamp[0]) / 1e9
