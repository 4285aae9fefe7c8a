"""Puts the contenders in place under .contenders/: C programs and crates are compiled, packages of npm and PyPI installed as locked,
and Debian's packages, where the machine does not have them, unpacked."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent.parent
FLOOR = BENCH / "floor" / "bin"


class Missing(Exception):
    """A contender that cannot take part, and why."""


def compile_floor():
    FLOOR.mkdir(exist_ok=True)
    common = max(header.stat().st_mtime for header in (BENCH / "floor").glob("*.h"))
    for source in sorted((BENCH / "floor").glob("*.c")):
        made = FLOOR / source.stem
        if made.exists() and made.stat().st_mtime >= max(common, source.stat().st_mtime):
            continue
        try:
            done = subprocess.run(["cc", "-O2", "-pthread", "-o", made, source], capture_output=True, text=True, check=False)
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


def crate(name):
    """The program of contenders/NAME, built with cargo as its lock says."""
    wanted, place = BENCH / "contenders" / name, BENCH / ".contenders" / name
    try:
        done = subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", wanted / "Cargo.toml", "--target-dir", place],
                              capture_output=True, text=True, timeout=600, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Missing("cargo is missing or took too long") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("error")]
        raise Missing("it does not build" + (": " + said[0] if said else ""))
    return place / "release" / name


def python_package(name):
    """The folder of an installed PyPI package and all it needs, in the versions that contenders/NAME/requirements.txt says."""
    wanted, place = BENCH / "contenders" / name / "requirements.txt", BENCH / ".contenders" / name
    stamp = place / "installed-requirements.txt"
    if stamp.exists() and stamp.read_bytes() == wanted.read_bytes():
        return place
    shutil.rmtree(place, ignore_errors=True)
    print(f"installing {name} …", flush=True)
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
                               "--target", place, "--requirement", wanted], capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired as error:
        raise Missing("pip took too long") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Missing("pip install failed" + (": " + said[0] if said else ""))
    shutil.copy(wanted, stamp)
    return place


def debian(program, packages):
    """Where a program is: on the machine's path or Debian's own folders, else out of these packages, which are unpacked and not installed."""
    places = [*os.environ["PATH"].split(":"), "/usr/sbin", *sorted(map(str, pathlib.Path("/usr/lib/postgresql").glob("*/bin")))]
    if found := shutil.which(program, path=":".join(places)):
        return pathlib.Path(found).resolve()
    place = BENCH / ".contenders" / "debian"
    if not (found := _unpacked(place, program)):
        print(f"fetching {program} …", flush=True)
        archives = place / "archives"
        archives.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["apt-get", "download", "-q", *_with_libraries(packages)], cwd=archives, capture_output=True, check=True, timeout=600)
            for archive in archives.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", archive, place], capture_output=True, check=True)
        except (FileNotFoundError, subprocess.SubprocessError) as error:
            raise Missing(f"{program} is neither installed nor to be had with apt-get") from error
        shutil.rmtree(archives)
        found = _unpacked(place, program)
    if not found:
        raise Missing(f"Debian's packages {' '.join(packages)} have no {program}")
    return found


def _with_libraries(packages):
    """These packages, the parts that they are made of, and the libraries that they name; the C library is everywhere."""
    wanted, left = set(), list(packages)
    while left:
        name = left.pop()
        if name in wanted:
            continue
        wanted.add(name)
        said = subprocess.run(["apt-cache", "depends", name], capture_output=True, text=True, check=True).stdout
        for needed in re.findall(r"^  Depends: (\S+)$", said, re.MULTILINE):
            if re.match(r"postgresql|redis|lua-", needed) or needed.startswith("lib") and not needed.startswith("libc6"):
                left.append(needed)
    return sorted(wanted)


def _unpacked(place, program):
    return next(iter(sorted(place.glob(f"usr/bin/{program}")) + sorted(place.glob(f"usr/lib/postgresql/*/bin/{program}"))), None)


def debian_env():
    """Variables by which unpacked programs find their libraries."""
    place = BENCH / ".contenders" / "debian"
    found = [str(one) for one in sorted(place.glob("lib/*-linux-gnu*")) + sorted(place.glob("usr/lib/*-linux-gnu*"))]
    return {"LD_LIBRARY_PATH": ":".join(found)} if found else {}


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
