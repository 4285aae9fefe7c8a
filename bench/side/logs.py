"""The logs that are replayed, and the errors planted in them. Seeded: the same logs and places everywhere.

An error is one line as a real tool would print it. Its `sign` is the part that names it uniquely; a tool has
kept the error when the sign is in what it returned. Not every error says "error": that is the point.
"""

import dataclasses
import pathlib
import random

CAPTURED = pathlib.Path(__file__).resolve().parent.parent / "logs" / "captured"
SEED = 20
SERVICE_SIZE = 3_000_000


@dataclasses.dataclass
class Log:
    name: str
    text: str
    signs: list


# Which lines are planted where: the line, and the sign that must come back.
PLANTED = {
    "cargo": [
        ("error[E0308]: mismatched types in `ledger_close`, expected `u64`, found `Option<u64>`", "`ledger_close`"),
        ("error: could not compile `invoice-render` (lib) due to 1 previous error", "`invoice-render`"),
        ("error: linking with `cc` failed: exit status: 1: unable to find library -lspeexdsp", "-lspeexdsp"),
    ],
    "gcc": [
        ("tariff_map.c:812:17: error: 'struct tariff' has no member named 'validity'", "'validity'"),
        ("/usr/bin/ld: unit_07.o: undefined reference to `crc32_combine_gen'", "crc32_combine_gen"),
        ("make: *** [rules.mk:61: objects/unit_geo.o] Error 1", "objects/unit_geo.o"),
    ],
    "npm": [
        ("npm error code EBADENGINE @harbor/quay-client@5.1.0", "@harbor/quay-client"),
        ("npm error gyp ERR! stack Error: `make` failed with exit code: 2 in node-lmdb-native", "node-lmdb-native"),
        ("npm http fetch GET 404 https://packages.example/@harbor%2fcrane-types 31ms (cache skip)", "crane-types"),
    ],
    "pip": [
        ("  ERROR: Failed building wheel for pyquorum-bindings", "pyquorum-bindings"),
        ("ERROR: Cannot install tidewater==2.4 because these package versions have conflicting dependencies.", "tidewater==2.4"),
    ],
    "apt": [
        ("E: Unable to correct problems, you have held broken packages: libmarble-widget.", "libmarble-widget"),
        ("dpkg: error processing package cups-gravure (--configure):", "cups-gravure"),
    ],
    "pytest": [
        ("E       sqlalchemy.exc.OperationalError: no such table: pension_grants", "pension_grants"),
        ("ERROR tests/test_brokerage_feed.py - ModuleNotFoundError: No module named 'feedlib_v7'", "feedlib_v7"),
        ("Fatal Python error: Segmentation fault in extension _fastcsv_ext", "_fastcsv_ext"),
    ],
    "service": [
        ("2026-03-02T11:08:41.000Z ERROR billing[411] charge 7719-KQ refused: card network unreachable", "7719-KQ"),
        ("thread 'settle-4' panicked at src/settle.rs:207:9: index out of bounds: the len is 3 but the index is 3", "settle.rs:207"),
        ("2026-03-02T12:31:07.000Z INFO  worker[038] out of memory: killed process 60177 (thumbnailer)", "60177 (thumbnailer)"),
        ('{"level":"critical","msg":"replica lag 8141s, failover refused","node":"pg-west-3"}', "pg-west-3"),
    ],
}


def service():
    """Three megabytes of a service that is busy and well: few kinds of lines, other numbers in each."""
    draw = random.Random(SEED)
    lines, size, clock = [], 0, 0
    while size < SERVICE_SIZE:
        clock += draw.randint(1, 900)
        stamp = f"2026-03-02T{clock // 3_600_000 % 24:02}:{clock // 60_000 % 60:02}:{clock // 1000 % 60:02}.{clock % 1000:03}Z"
        kind = draw.random()
        if kind < 0.80:
            line = f"{stamp} INFO  http[{draw.randint(1, 40):03}] GET /v1/items/{draw.randint(1, 99999)} 200 {draw.randint(1, 90)}ms bytes={draw.randint(90, 9000)}"
        elif kind < 0.94:
            line = f"{stamp} DEBUG cache[{draw.randint(1, 8):03}] hit key=item:{draw.randint(1, 99999)} age={draw.randint(1, 600)}s"
        elif kind < 0.99:
            line = f"{stamp} INFO  worker[{draw.randint(1, 40):03}] job {draw.randint(10**6, 10**7)} done in {draw.randint(10, 4000)}ms"
        else:
            line = f"{stamp} WARN  http[{draw.randint(1, 40):03}] slow request GET /v1/report {draw.randint(1000, 9000)}ms"
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines) + "\n"


def planted():
    """All logs with their errors at places drawn anywhere in them, the first line to the last."""
    draw = random.Random(SEED)
    for name, errors in PLANTED.items():
        text = service() if name == "service" else (CAPTURED / f"{name}.log").read_text()
        lines = text.split("\n")
        for line, _ in errors:
            lines.insert(draw.randrange(len(lines)), line)
        whole = "\n".join(lines)
        signs = [sign for _, sign in errors]
        assert all(whole.count(sign) == 1 for sign in signs), f"a sign in {name} is not unique"
        yield Log(name, whole, signs)
