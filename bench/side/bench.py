"""What the benches share: their options, starting contenders so that they surely end, and the way from measurement to table."""

import argparse
import contextlib
import importlib
import pathlib
import random
import signal
import sys
import traceback

from . import install, report
from .wire import Gone

FOLDER = install.BENCH


class Bench:
    """The options, and starting contenders so that they surely end."""

    def __init__(self, options, contenders):
        self.abide = pathlib.Path(options.abide).resolve()
        self.quick, self.rounds, self.without = options.quick, options.rounds, options.without
        self.options, self.contenders = options, contenders

    @contextlib.contextmanager
    def started(self, names, table):
        """The contenders that could be started: {name: (contender, connection)}. The others become rows that say why."""
        entries, made = {}, []
        try:
            for name in names:
                if name in self.without:
                    continue
                one = self.contenders[name](self)
                made.append(one)
                try:
                    entries[name] = (one, one.open())
                except install.Missing as why:
                    table.missing(one.label, why)
            yield entries
        finally:
            for one in made:
                one.close()

    def rotated(self, entries, turn):
        """All entries, in another order each turn (the same in every run), so that none always runs after the same
        neighbour: what that one still does when it has answered slows down whoever comes next."""
        order = list(entries.items())
        random.Random(turn).shuffle(order)
        return order


def parser(description, measurements, contenders):
    """The options that every bench has; one may add its own."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--abide", default=FOLDER.parent / "target" / "dist" / "abide", help="the abide binary (default: target/dist/abide)")
    made.add_argument("--only", action="append", choices=measurements, help="measure only this; may be repeated")
    made.add_argument("--without", action="append", default=[], choices=list(contenders), help="leave a contender out; may be repeated")
    made.add_argument("--quick", action="store_true", help="few rounds, to see that everything runs")
    made.add_argument("--rounds", type=int, help="rounds of what is measured in rounds")
    return made


def run(name, options, measurements, contenders):
    """Measures all that was asked for. Tables are printed, and saved as `NAME.md` and `NAME.json`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench, facts, tables = Bench(options, contenders), report.machine(), []
    for measurement in options.only or measurements:
        print(f"measuring {measurement} …", file=sys.stderr, flush=True)
        try:
            table = importlib.import_module(f"side.measure.{measurement}").measure(bench)
        except Exception as error:  # one measurement that fails must not cost the others
            if not isinstance(error, (Gone, install.Missing)):
                traceback.print_exc()
            table = report.Table(measurement, f"failed: {error}", ["tool"])
        tables.append(table)
        print(report.plain(table), flush=True)
        report.save(FOLDER, name, tables, facts)
