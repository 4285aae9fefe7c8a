"""Puts the contenders in place: C programs are compiled, npm packages installed as locked, under .contenders/."""

import pathlib
import shutil
import subprocess

BENCH = pathlib.Path(__file__).resolve().parent.parent
FLOOR = BENCH / "floor" / "bin"


class Missing(Exception):
    """A contender that cannot take part, and why."""


def compile_floor():
    FLOOR.mkdir(exist_ok=True)
    for source in sorted((BENCH / "floor").glob("*.c")):
        made = FLOOR / source.stem
        if made.exists() and made.stat().st_mtime >= source.stat().st_mtime:
            continue
        try:
            done = subprocess.run(["cc", "-O2", "-o", made, source], capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise Missing("no C compiler") from error
        if done.returncode:
            raise Missing(f"{source.name} does not compile")


def package(name):
    """The folder of an installed npm package set; installs it where it is not there or is out of date."""
    wanted, place = BENCH / "contenders" / name, BENCH / ".contenders" / name
    lock, stamp = wanted / "package-lock.json", place / "installed-lock.json"
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return place
    place.mkdir(parents=True, exist_ok=True)
    for file in (wanted / "package.json", lock, BENCH / ".npmrc"):
        shutil.copy(file, place)
    print(f"installing {name} …", flush=True)
    try:
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place, capture_output=True,
                              text=True, timeout=600, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Missing("npm is missing or took too long") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        raise Missing("npm ci failed" + (": " + said[0].removeprefix("npm error ") if said else ""))
    shutil.copy(lock, stamp)
    return place


def codex_program():
    found = sorted((package("codex") / "node_modules" / "@openai").glob("codex-*/vendor/*/bin/codex"))
    if not found:
        raise Missing("no Codex binary for this platform")
    return found[0]


def desktop_commander_program():
    found = package("desktop-commander") / "node_modules" / "@wonderwhy-er" / "desktop-commander" / "dist" / "index.js"
    if not found.exists():
        raise Missing("the package has no dist/index.js")
    return found
