"""What /proc says about processes: who carries a mark, how much memory one has. And ending those that are ours."""

import os
import signal
import time


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid, what):
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def name(pid):
    return _read(pid, "comm").decode("utf-8", "replace").strip()


def is_zombie(pid):
    return b"\nState:\tZ" in _read(pid, "status")


def carrying(mark, *, in_command=False):
    """The living processes that have `mark` in the environment they started with (or in their command line)."""
    mark = mark.encode()
    return [pid for pid in pids()
            if pid != os.getpid() and (mark in _read(pid, "environ") or in_command and mark in _read(pid, "cmdline"))
            and not is_zombie(pid)]


def children(pid):
    return [int(word) for word in _read(pid, f"task/{pid}/children").split()]


def status_number(pid, field):
    for line in _read(pid, "status").decode().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return None


def resident_kb(pid):
    return status_number(pid, "VmRSS") or 0


def private_kb(pid):
    """Memory that would be free if this process ended."""
    total = 0
    for line in _read(pid, "smaps_rollup").decode().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            total += int(line.split()[1])
    return total


def shared_kb(pid):
    """Its share of memory: what it has alone, and its part of what it has in common with others (PSS)."""
    for line in _read(pid, "smaps_rollup").decode().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def wakes(pid):
    """How often its threads have gone to sleep by themselves, which is as often as something woke them; and the
    nanoseconds that they have run."""
    switches, ran = 0, 0
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0, 0
    for task in tasks:
        switches += status_number(f"{pid}/task/{task}", "voluntary_ctxt_switches") or 0
        ran += int((_read(f"{pid}/task/{task}", "schedstat").split() or [0])[0])
    return switches, ran


def end(found):
    """Ends each of these processes by its id."""
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def end_carrying(mark, *, in_command=False):
    """Ends all that carry the mark, and those they start meanwhile."""
    for _ in range(50):
        found = carrying(mark, in_command=in_command)
        if not found:
            return
        end(found)
        time.sleep(0.05)
