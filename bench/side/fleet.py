"""A fleet of abide daemons on one PostgreSQL server, and a bare server with a plain table beside it.

Both servers have the same settings and sync every commit. Everybody reaches them over unix sockets.
"""

import json
import signal
import subprocess
import time
import urllib.parse

from . import timers
from .wire import Gone

MACHINES = 32


class Bare(timers.Postgres):
    """The server alone: `pgbench` inserts, `psql` copies."""

    label = "PostgreSQL, a table"
    settings = ["max_connections=400", "shared_preload_libraries=pg_stat_statements"]

    def statements(self):
        """Statements that were run since the last call, without those that ask."""
        counted = self.sql("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements")
        self.sql("SELECT pg_stat_statements_reset()")
        return int(counted)

    def begin(self):
        seconds = super().begin()
        self.sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        return seconds

    def stop(self):
        self.daemon.send_signal(signal.SIGINT)  # a fast shutdown: connections are closed
        self.daemon.wait()
        self.daemon = None

    def one(self, each):
        """Timers a second, one after the other."""
        return each / self.single(1, each)[0]

    def many(self, each):
        """Timers a second of many at once, each one after the other."""
        return MACHINES * each / self.single(MACHINES, each)[0]


class Machine(timers.Abide):
    """One daemon. Its configuration comes from `abide fleet init` or `join`."""

    def __init__(self, bench, name):
        super().__init__(bench)
        self.name = name

    def prepare(self):
        super().prepare()
        with open(self.home / "abide" / "config.toml", "a", encoding="utf-8") as config:
            config.write(f'machine = "{self.name}"\n[fleet]\ntype = ["*"]\nrun = ["*"]\n')

    def connect(self):
        """Started by `join`."""
        return self.Connection()

    def join(self, url, secret):
        """Joins the fleet, or begins it where there is no secret yet; returns the secret."""
        words = ["fleet", "join" if secret else "init", url]
        done = subprocess.run([self.bench.abide, *words], env=self.env(), cwd=self.home, input=secret or "", text=True, capture_output=True, check=False)
        if done.returncode:
            raise Gone(f"abide {' '.join(words[:2])}: {done.stderr.strip()[-200:]}")
        subprocess.run([self.bench.abide, "stop"], env=self.env(), cwd=self.home, capture_output=True, check=False)
        self.begin()
        return secret or (self.home / "abide" / "fleet-secret").read_text()

    def tool(self, name, **arguments):
        return self.request("POST", f"/v1/tools/{name}", json.dumps(arguments))


class Fleet(timers.Store):
    name, label = "abide", "abide on PostgreSQL"

    def prepare(self):
        self.server, self.machines, self.secret = Bare(self.bench), [], None

    def begin(self):
        self.server.open()
        place = urllib.parse.quote(str(self.server.place), safe="")
        self.url = f"postgres://postgres@{place}/postgres?schema=abide"
        self.grow(1)

    def grow(self, count):
        """Lets machines join until there are so many."""
        while len(self.machines) < count:
            machine = Machine(self.bench, f"machine-{len(self.machines)}")
            self.machines.append(machine)
            machine.open()
            self.secret = machine.join(self.url, self.secret)
        self.wait(lambda: len(self.machines[0].request("GET", "/v1/machines")["machines"]) >= count)

    def one(self, each):
        return each / self.machines[0].single(1, each)[0]

    def many(self, each):
        self.grow(MACHINES)
        started = [machine.started_single(1, each) for machine in self.machines]
        return MACHINES * each / max(machine.ended_callers(callers)[0] for machine, callers in zip(self.machines, started))

    def bulk(self, count):
        return self.machines[0].bulk(count)

    def completions(self, count):
        """Completions a second of timers of one machine that are all due at the same moment."""
        machine, ahead = self.machines[0], 20
        before = machine.running()
        due = time.time() + ahead
        for part in timers.parts(range(count), timers.BATCH):
            machine.make([due - time.time()] * len(part))
        if time.time() > due:
            raise Gone("they were due before all were made")
        time.sleep(max(0, due - time.time()))
        self.wait(lambda: machine.running() == before)
        return count / (time.time() - due)

    def takeover(self, turn):
        """Seconds from the death of a machine until its timer has completed on another one. The timer is due at the death."""
        lost = self.machines[turn % len(self.machines)]
        made = lost.tool("timer", mission=timers.TEXT, total_duration=1)
        time.sleep(0.9)
        lost.crash()
        died = time.time()
        query = f"SELECT count(*) FROM abide.timer WHERE id = '{made['timer_id']}' AND ended_ms IS NOT NULL"
        self.wait(lambda: self.server.sql(query) == "1")
        took = time.time() - died
        lost.begin()
        return took

    def close(self):
        for machine in getattr(self, "machines", []):
            machine.close()
        if getattr(self, "server", None):
            self.server.close()
        super().close()


ALL = {"postgres": Bare, "abide": Fleet}
