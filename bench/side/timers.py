"""Places to keep timers, each behind the same verbs: bulk, single, restart, drain, late.

A timer is a deadline, an owner and a text. Whatever is made or completed is on disk when it is told: Redis syncs its log always,
PostgreSQL and SQLite every commit. A completion is written too, since otherwise a crash would repeat or lose it. Those that have no
clock of their own are asked for what is due every ten milliseconds.
"""

import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time

from . import install, process
from .contender import Abide as AbideContender
from .contender import Contender
from .install import Missing
from .wire import Gone

BATCH, FEW = 10_000, 1_000
TEXT = "look at the logs of the build"
POLL = 0.01
PATIENCE = 600


def totals(count):
    """How many seconds each of the timers runs: an hour to a day."""
    return [3600 + n % 86_400 for n in range(count)]


def parts(values, size):
    return [values[at:at + size] for at in range(0, len(values), size)]


class Store(Contender):
    """No wire: the verbs are the contender's own."""

    daemon = None

    class Connection:
        def close(self):
            """There is nothing to close but the server, and that ends with the contender."""

    def connect(self):
        self.begin()
        return self.Connection()

    def begin(self):
        """Starts the server; returns when it answers."""

    def wait(self, ready, patience=PATIENCE):
        """Looks until it is so; the seconds that it took."""
        start = time.perf_counter()
        while not ready():
            if time.perf_counter() - start > patience:
                raise Gone(f"not ready within {patience} s")
            time.sleep(0.002)
        return time.perf_counter() - start

    def weigh(self):
        """Memory of its processes in kB, or None where it has none."""
        found = {*process.carrying(self.mark), *process.carrying(str(self.home), in_command=True)}
        return sum(process.shared_kb(pid) for pid in found)

    def callers(self, path, count, each, request):
        """Many clients on a unix socket: the seconds in all, and the median of one answer."""
        return self.ended_callers(self.started_callers(path, count, each, request))

    def started_callers(self, path, count, each, request):
        file = self.home / "request"
        file.write_bytes(request)
        return subprocess.Popen([install.FLOOR / "callers", path, str(count), str(each), file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def ended_callers(callers):
        said, fault = callers.communicate()
        if callers.returncode:
            raise Gone(f"callers: {fault.strip()[-200:]}")
        return tuple(float(word) for word in said.split())

    def close(self):
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
            self.daemon = None
        super().close()


class Program(Store):
    """No server: a program that is told one verb and prints numbers. What it says a timer weighs holds until the next verb."""

    count, memory = 0, 0

    def run(self, *words):
        done = subprocess.run([*self.words, *map(str, words)], capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    def bulk(self, count):
        seconds, each = self.run("bulk", count)
        self.count, self.memory = count, each * count / 1024
        return seconds

    def weigh(self):
        return self.memory

    def single(self, callers, each):
        return self.run("single", callers, each)

    def late(self, count):
        return self.run("late", count)


class Floor(Program):
    name, label = "floor", "floor (C: a file, a heap)"

    def prepare(self):
        install.compile_floor()
        self.file = self.home / "timers.log"
        self.words = [install.FLOOR / "log_timers", self.file]

    def restart(self, count):
        seconds, found = self.run("restart")
        if found != count:
            raise Gone(f"{found:.0f} of {count} timers were found")
        return seconds

    def drain(self):
        return self.run("drain")[0]

    def late(self, count):
        self.file.unlink(missing_ok=True)
        return super().late(count)


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Abide(Store, AbideContender):
    name, label = "abide", "abide over HTTP"

    def prepare(self):
        AbideContender.prepare(self)
        install.compile_floor()
        self.socket = self.home / "abide" / "run" / "http.sock"

    def begin(self):
        with open(self.home / "stderr.log", "ab") as errors:
            self.daemon = subprocess.Popen([self.bench.abide, "serve"], env=self.env(), cwd=self.home, stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL, stderr=errors)
        return self.wait(lambda: self.running() is not None)

    def request(self, method, path, body=None):
        connection = UnixHttp(self.socket)
        try:
            connection.request(method, path, body, {"content-type": "application/json", "abide-agent": "bench"} if body else {})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise Gone(f"{path}: {answer.status}: {data[:200]!r}")
        return json.loads(data)

    def running(self):
        """How many timers run, or None while nobody answers."""
        try:
            return self.request("GET", "/v1/status")["timers"]["running"]
        except (OSError, http.client.HTTPException):
            return None

    def make(self, all_totals):
        bodies = [json.dumps({"timers": [{"mission": TEXT, "total_duration": total} for total in part]}) for part in parts(all_totals, BATCH)]
        start = time.perf_counter()
        for body in bodies:
            self.request("POST", "/v1/timers", body)
        return time.perf_counter() - start

    def bulk(self, count):
        return self.make(totals(count))

    def single(self, callers, each):
        return self.ended_callers(self.started_single(callers, each))

    def started_single(self, callers, each):
        body = json.dumps({"mission": TEXT, "total_duration": 36_000}).encode()
        head = ("POST /v1/timers HTTP/1.1\r\nhost: localhost\r\nabide-agent: bench\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n")
        return self.started_callers(self.socket, callers, each, head.encode() + body)

    def crash(self):
        self.daemon.kill()
        self.daemon.wait()

    def restart(self, count):
        self.crash()
        seconds = self.begin()
        if (found := self.running()) != count:
            raise Gone(f"{found} of {count} timers were found")
        return seconds

    def database(self):
        return sqlite3.connect(self.home / "abide" / "abide.db")

    def drain(self):
        self.crash()
        with self.database() as database:
            database.execute("UPDATE timer SET due_ms = due_ms - 100000000")
        database.close()
        start = time.perf_counter()
        self.begin()
        self.wait(lambda: self.running() == 0)
        return time.perf_counter() - start

    def late(self, count):
        """From the deadline to the moment when a client that waits for messages has it."""
        self.make([5 + n / count for n in range(count)])
        told = {}
        while len(told) < count:
            answer = self.request("POST", "/v1/tools/read_messages", '{"timeout_seconds": 20}')
            now = time.time()
            if not answer["messages"]:
                raise Gone(f"{len(told)} of {count} were told")
            told |= {message["timer_id"]: now for message in answer["messages"]}
        with self.database() as database:
            due = {key: (made + total) / 1000 for key, made, total in database.execute("SELECT id, created_ms, total_ms FROM timer")}
        database.close()
        return [(now - due[key]) * 1000 for key, now in told.items()]


class Library(Store):
    """abide's engine without a door: the bench that cargo builds, where it has been built."""

    name, label = "abide-library", "abide as a library (cargo bench)"
    said = {}

    def prepare(self):
        found = [path for path in (install.BENCH.parent / "target" / "release" / "deps").glob("timers-*") if os.access(path, os.X_OK) and path.is_file()]
        if not found:
            raise Missing("not built (cargo bench -p abide --bench timers --no-run)")
        self.program = max(found, key=lambda path: path.stat().st_mtime)

    def ask(self, pattern, count=1_000):
        """A number that it printed; it prints all of them in one run."""
        if count not in self.said:
            done = subprocess.run([self.program, str(count)], capture_output=True, text=True, timeout=PATIENCE, check=False)
            if done.returncode:
                raise Gone(f"the bench failed: {done.stderr.strip()[-200:]}")
            self.said[count] = done.stdout
        found = re.search(pattern, self.said[count], re.MULTILINE)
        if not found:
            raise Gone(f"it did not say {pattern}")
        return found[1]

    def seconds(self, pattern, count):
        value = self.ask(pattern, count)
        number, unit = re.fullmatch(r"([\d.]+)(\D+)", value).groups()
        return float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]

    def bulk(self, count):
        self.count = count
        return self.seconds(r"^bulk .* made in (\S+):", count)

    def weigh(self):
        return float(self.ask(r"^memory +(\d+)", self.count)) * self.count / 1024 if getattr(self, "count", 0) else 0

    def single(self, callers, each):
        rate = float(self.ask(rf"^durable +(\d+) a second from {callers} callers"))
        return callers * each / rate, callers / rate

    def restart(self, count):
        return self.seconds(r"^restart +ready after (\S+)", count)

    def drain(self):
        return self.seconds(r"^overdue +all drained in ([^;]+);", self.count)

    def late(self, count):
        if count != 10_000:
            raise Gone("it measures 10 000 only")
        return [float(self.ask(rf"^lateness .*{part} (\d+) ms")) for part in ["p50"] * 50 + ["p99"] * 49 + ["most"]]


class DelayQueue(Program):
    """No disk at all: what is left of the work where nothing has to survive."""

    name, label = "delay-queue", "tokio's DelayQueue (in memory only)"

    def prepare(self):
        self.words = [install.crate("delay-queue")]

    def restart(self, count):
        """Nothing comes back."""

    def drain(self):
        return self.run("drain", self.count)[0]


class Sqlite(Store):
    name, label = "sqlite", "SQLite, a table (WAL, synchronous FULL)"

    def begin(self):
        self.table = self.opened()
        self.table.execute("CREATE TABLE IF NOT EXISTS timer (number INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, agent TEXT NOT NULL, text TEXT NOT NULL) STRICT")
        self.table.execute("CREATE INDEX IF NOT EXISTS due ON timer (due_ms)")
        self.table.execute("CREATE TABLE IF NOT EXISTS done (number INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, text TEXT NOT NULL) STRICT")

    def opened(self):
        table = sqlite3.connect(self.home / "timers.db", isolation_level=None)
        table.execute("PRAGMA journal_mode = WAL")
        table.execute("PRAGMA synchronous = FULL")
        return table

    def weigh(self):
        return None

    def make(self, dues):
        start = time.perf_counter()
        for part in parts(dues, BATCH):
            self.table.execute("BEGIN")
            self.table.executemany("INSERT INTO timer (due_ms, agent, text) VALUES (?, 'bench', ?)", [(due, TEXT) for due in part])
            self.table.execute("COMMIT")
        return time.perf_counter() - start

    def bulk(self, count):
        now = int(time.time() * 1000)
        return self.make([now + total * 1000 for total in totals(count)])

    def single(self, callers, each):
        """One commit after the other: a database file has one writer at a time."""
        took, due = [], int(time.time() * 1000) + 36_000_000
        for _ in range(min(callers, 10) * each):
            start = time.perf_counter()
            self.table.execute("INSERT INTO timer (due_ms, agent, text) VALUES (?, 'bench', ?)", (due, TEXT))
            took.append(time.perf_counter() - start)
        took.sort()
        return sum(took) / len(took) * callers * each, took[len(took) // 2]

    def restart(self, count):
        self.table.close()
        start = time.perf_counter()
        self.table = self.opened()
        self.table.execute("SELECT min(due_ms) FROM timer").fetchone()
        seconds = time.perf_counter() - start
        if self.table.execute("SELECT count(*) FROM timer").fetchone() != (count,):
            raise Gone("timers are missing")
        return seconds

    def take(self, before):
        """Completes a few that are due, and says which deadlines they had."""
        self.table.execute("BEGIN IMMEDIATE")
        rows = self.table.execute("DELETE FROM timer WHERE number IN (SELECT number FROM timer WHERE due_ms <= ? ORDER BY due_ms LIMIT ?) "
                                  "RETURNING number, due_ms, text", (before, FEW)).fetchall()
        self.table.executemany("INSERT INTO done VALUES (?, ?, ?)", rows)
        self.table.execute("COMMIT")
        return [due for _, due, _ in rows]

    def drain(self):
        start = time.perf_counter()
        while self.take(1 << 62):
            pass
        return time.perf_counter() - start

    def late(self, count):
        self.table.execute("DELETE FROM timer")
        self.table.execute("DELETE FROM done")
        begin = time.time() * 1000 + 2000
        self.make([int(begin + n * 1000 / count) for n in range(count)])
        return poll(lambda: self.take(int(time.time() * 1000)), count)

    def close(self):
        if getattr(self, "table", None):
            self.table.close()
        super().close()


def poll(take, count):
    """Asks for what is due every few milliseconds; how late each came."""
    late, end = [], time.monotonic() + PATIENCE
    while len(late) < count:
        if time.monotonic() > end:
            raise Gone(f"{len(late)} of {count} came")
        if found := take():
            now = time.time() * 1000
            late += [now - due for due in found]
        else:
            time.sleep(POLL)
    return late


class Redis(Store):
    name, label = "redis", "Redis, a sorted set (appendfsync always)"

    TAKE = ("local due = redis.call('ZRANGEBYSCORE', 'due', '-inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2]) "
            "local names, scores = {}, {} "
            "for n = 1, #due, 2 do names[#names + 1] = due[n]; scores[#scores + 1] = due[n + 1] end "
            "if #names > 0 then redis.call('ZREM', 'due', unpack(names)); redis.call('RPUSH', 'done', unpack(names)) end "
            "return table.concat(scores, ' ')")

    def prepare(self):
        install.compile_floor()
        self.program = install.debian("redis-server", ["redis-server", "redis-tools"])
        self.socket = self.home / "redis.sock"

    def env(self):
        return {**super().env(), **install.debian_env()}

    def begin(self):
        self.daemon = subprocess.Popen([self.program, "--port", "0", "--unixsocket", self.socket, "--dir", self.home, "--save", "",
                                        "--appendonly", "yes", "--appendfsync", "always"], executable=self.program,
                                       env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self.wait(self.answers)

    def answers(self):
        if self.daemon.poll() is not None:
            raise Gone(f"redis-server ended with {self.daemon.returncode}")
        try:
            self.wire = socket.socket(socket.AF_UNIX)
            self.wire.connect(str(self.socket))
            self.file = self.wire.makefile("rb")
            return self.command("PING") == b"PONG"
        except (OSError, Gone):
            return False

    @staticmethod
    def packed(*words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    def answer(self):
        line = self.file.readline()
        if line[:1] in (b"", b"-"):
            raise Gone(line.decode().strip() or "Redis has closed the connection")
        if line[:1] == b"$":
            return self.file.read(int(line[1:]) + 2)[:-2]
        return line[1:].strip()

    def command(self, *words):
        self.wire.sendall(self.packed(*words))
        return self.answer()

    @staticmethod
    def member(number):
        return json.dumps({"id": f"timer-{number}", "agent": "bench", "text": TEXT})

    def make(self, dues):
        pairs = [(due, self.member(f"{n:012}")) for n, due in enumerate(dues)]
        bodies = [self.packed("ZADD", "due", *(word for pair in batch for word in pair)) for batch in parts(pairs, BATCH)]
        start = time.perf_counter()
        for body in bodies:
            self.wire.sendall(body)
            self.answer()
        return time.perf_counter() - start

    def bulk(self, count):
        now = int(time.time() * 1000)
        return self.make([now + total * 1000 for total in totals(count)])

    def single(self, callers, each):
        return self.callers(self.socket, callers, each, self.packed("ZADD", "due", int(time.time() * 1000) + 36_000_000, self.member(f"{time.time_ns()}-@@@@@@@@@@@@")))

    def restart(self, count):
        self.daemon.kill()
        self.daemon.wait()
        seconds = self.begin()
        if int(self.command("ZCARD", "due")) != count:
            raise Gone("timers are missing")
        return seconds

    def take(self, before):
        return [float(due) for due in self.command("EVAL", self.TAKE, 0, before, FEW).split()]

    def drain(self):
        start = time.perf_counter()
        while self.take("+inf"):
            pass
        return time.perf_counter() - start

    def late(self, count):
        self.command("DEL", "due", "done")
        begin = time.time() * 1000 + 2000
        self.make([int(begin + n * 1000 / count) for n in range(count)])
        return poll(lambda: self.take(int(time.time() * 1000)), count)


class Postgres(Store):
    name, label = "postgres", "PostgreSQL, a table"
    settings = []

    TABLES = """
CREATE EXTENSION pg_buffercache;
CREATE TABLE timer (number bigserial PRIMARY KEY, due timestamptz NOT NULL, agent text NOT NULL, text text NOT NULL);
CREATE INDEX due ON timer (due);
CREATE TABLE done (number bigint PRIMARY KEY, due timestamptz NOT NULL, taken timestamptz NOT NULL, text text NOT NULL);
CREATE PROCEDURE take(past timestamptz, wanted bigint) LANGUAGE plpgsql AS $$
DECLARE found bigint; taken bigint := 0;
BEGIN
  WHILE taken < wanted LOOP
    WITH gone AS (DELETE FROM timer WHERE number IN (SELECT number FROM timer WHERE due <= coalesce(past, clock_timestamp())
                  ORDER BY due LIMIT 1000 FOR UPDATE SKIP LOCKED) RETURNING number, due, text)
    INSERT INTO done SELECT number, due, clock_timestamp(), text FROM gone;
    GET DIAGNOSTICS found = ROW_COUNT;
    COMMIT;
    taken := taken + found;
    IF found = 0 THEN PERFORM pg_sleep(0.01); END IF;
  END LOOP;
END $$;
"""

    def prepare(self):
        self.programs = install.debian("postgres", ["postgresql"]).parent
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="abide-bench-postgres-"))
        # It does not run as root.
        self.user = None
        if os.geteuid() == 0:
            names = [entry.pw_name for entry in pwd.getpwall()]
            self.user = "postgres" if "postgres" in names else "nobody"
            shutil.chown(self.place, self.user)
        done = self.run("initdb", "--username=postgres", "--auth=trust", "--no-sync", f"--pgdata={self.place / 'data'}")
        if done.returncode:
            raise Missing(f"initdb: {done.stderr.strip()[-200:]}")

    def env(self):
        return {**super().env(), **install.debian_env(), "PGHOST": str(self.place), "PGUSER": "postgres", "PGDATABASE": "postgres"}

    def run(self, program, *words, stdin=None):
        env = {**self.env(), "HOME": str(self.place), "TMPDIR": str(self.place)}
        return subprocess.run([self.programs / program, *words], env=env, cwd=self.place, user=self.user, text=True, capture_output=True,
                              check=False, **({"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}))

    def sql(self, text):
        done = self.run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", stdin=text)
        if done.returncode:
            raise Gone(f"psql: {done.stderr.strip()[-200:]}")
        return done.stdout.strip()

    def begin(self):
        fresh = not (self.place / "data" / "started").exists()
        with open(self.place / "log", "ab") as log:
            self.daemon = subprocess.Popen([self.programs / "postgres", "-D", self.place / "data", "-k", self.place,
                                            *(word for setting in ["listen_addresses=", *self.settings] for word in ("-c", setting))],
                                           env=self.env(), cwd=self.place, user=self.user, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        seconds = self.wait(self.answers)
        if fresh:
            self.sql(self.TABLES)
            (self.place / "data" / "started").touch()
        return seconds

    def answers(self):
        if self.daemon.poll() is not None:
            raise Gone(f"postgres ended with {self.daemon.returncode}")
        return self.run("psql", "-X", "-q", "-c", "SELECT 1").returncode == 0

    def weigh(self):
        """Its processes, found by their parent since they write titles over their environment, and the buffers that hold something,
        which belong to none of those that are still there."""
        buffers = self.sql("SELECT count(*) * 8 FROM pg_buffercache WHERE relfilenode IS NOT NULL")
        return int(buffers) + sum(process.shared_kb(pid) for pid in [self.daemon.pid, *process.children(self.daemon.pid)])

    def make(self, rows):
        lines = "".join("COPY timer (due, agent, text) FROM STDIN;\n" + "".join(part) + "\\.\n" for part in parts(rows, BATCH))
        start = time.perf_counter()
        self.sql(lines)
        return time.perf_counter() - start

    @staticmethod
    def row(when):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(when)) + f".{int(when % 1 * 1e6):06}+00\tbench\t{TEXT}\n"

    def bulk(self, count):
        now = time.time()
        return self.make([self.row(now + total) for total in totals(count)])

    def single(self, callers, each):
        script = self.place / "single.sql"
        script.write_text(f"INSERT INTO timer (due, agent, text) VALUES (now() + interval '10 hours', 'bench', '{TEXT}');\n")
        done = self.run("pgbench", "-n", "-M", "prepared", "-c", str(callers), "-j", "1", "-t", str(each), "-f", str(script))
        rate = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or not rate:
            raise Gone(f"pgbench: {done.stderr.strip()[-200:]}")
        return callers * each / float(rate[1]), callers / float(rate[1])

    def restart(self, count):
        self.daemon.send_signal(signal.SIGQUIT)  # an immediate shutdown: the next start recovers as after a crash
        self.daemon.wait()
        seconds = self.begin()
        if self.sql("SELECT count(*) FROM timer") != str(count):
            raise Gone("timers are missing")
        return seconds

    def drain(self):
        count = self.sql("SELECT count(*) FROM timer")
        start = time.perf_counter()
        self.sql(f"CALL take('infinity', {count})")
        return time.perf_counter() - start

    def late(self, count):
        self.sql("TRUNCATE timer, done")
        begin = time.time() + 2
        self.make([self.row(begin + n / count) for n in range(count)])
        self.sql(f"CALL take(NULL, {count})")
        return [float(value) for value in self.sql("SELECT extract(epoch FROM taken - due) * 1000 FROM done").split()]

    def close(self):
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGQUIT)
            self.daemon.wait()
            self.daemon = None
        super().close()
        if getattr(self, "place", None):
            shutil.rmtree(self.place, ignore_errors=True)


ALL = {kind.name: kind for kind in (Floor, Abide, Library, DelayQueue, Sqlite, Redis, Postgres)}
