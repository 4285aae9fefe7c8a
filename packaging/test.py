#!/usr/bin/env python3
"""Installs every kind of package into an empty folder and makes a real MCP call through it: packaging/test.py FOLDER

FOLDER holds what packaging/package.py, packaging/deb and packaging/crates have made.
"""

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Registers qemu for programs of another architecture, in namespaces of its own.
FOREIGN = HERE / "foreign-architecture"


def main():
    packages = Path(sys.argv[1]).resolve()
    tests = [archive, npm, claude_plugin, wheel, desktop_bundle, debian, container, crates, registry_entry, bill_of_materials]

    def tried(test):
        with tempfile.TemporaryDirectory(prefix="abide-package-") as empty:
            return test(packages, Path(empty))

    # Each installs into a folder of its own and mostly waits.
    with ThreadPoolExecutor(4) as pool:
        for test, skipped in zip(tests, pool.map(tried, tests)):
            print(f"{test.__name__}: {skipped or test.__doc__}", flush=True)


def archive(packages, empty):
    """the archives were unpacked; their binaries ran a command, a session and a timer, another architecture's under qemu"""
    found = sorted(packages.glob("abide-*-linux.tar.gz"))
    assert found, "no archive was made"
    for packed in found:
        unpack(packed, empty)
        binary = empty / packed.name.removesuffix(".tar.gz") / "abide"
        arch = packed.name.removesuffix("-linux.tar.gz").rsplit("-", 1)[1]
        # Without a standard library for musl there is only one archive, with a binary that is not static.
        if len(found) > 1:
            expect_static(binary)
        whole_path([] if arch == os.uname().machine else [FOREIGN, arch], binary, empty)


def npm(packages, empty):
    """the npm package was installed; abide-mcp is the MCP server, abide the command line"""
    install_npm(packages, empty)
    expect_call([empty / "node_modules/.bin/abide-mcp"], empty)
    expect_output([empty / "node_modules/.bin/abide", "--version"], "abide ")


def claude_plugin(packages, empty):
    """the plugin for Claude Code was unpacked; the server that it names answered"""
    install_npm(packages, empty)
    unzip(one(packages, "abide-*-claude-plugin.zip"), empty / "plugin")
    json.loads((empty / "plugin/.claude-plugin/plugin.json").read_text())["name"]
    server = json.loads((empty / "plugin/.mcp.json").read_text())["mcpServers"]["abide"]
    expect_call([server["command"], *server["args"]], empty, agent="claude-code")


def wheel(packages, empty):
    """the wheel was installed into a new environment; abide-mcp is the MCP server, abide the command line"""
    run([sys.executable, "-m", "venv", empty / "venv"])
    found = one(packages, f"abide_mcp-*manylinux*_{os.uname().machine}.*.whl")
    run([empty / "venv/bin/pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", found])
    expect_call([empty / "venv/bin/abide-mcp"], empty)
    expect_output([empty / "venv/bin/abide", "--version"], "abide ")


def desktop_bundle(packages, empty):
    """the bundle for Claude Desktop was unpacked; the command of its manifest answered"""
    unzip(one(packages, f"abide-*-{os.uname().machine}.mcpb"), empty)
    server = json.loads((empty / "manifest.json").read_text())["server"]
    assert (empty / server["entry_point"]).is_file(), server
    words = [server["mcp_config"]["command"], *server["mcp_config"]["args"]]
    expect_call([word.replace("${__dirname}", str(empty)) for word in words], empty, agent="claude-desktop")


def debian(packages, empty):
    """the Debian package was installed into a root of its own, ran and was removed"""
    if shutil.which("dpkg") is None:
        return "skipped, since it needs dpkg"
    run([HERE / "test-deb", one(packages, f"abide_*_{debian_architecture()}.deb")])


def container(packages, empty):
    """the image of the Containerfile was built from the Debian package; abide ran in it"""
    if shutil.which("buildah") is None or os.geteuid() != 0:
        return "skipped, since it needs buildah and root"
    run([HERE / "test-container", one(packages, f"abide_*_{debian_architecture()}.deb")])


def debian_architecture():
    return subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()


def crates(packages, empty):
    """the crates were unpacked and built as `cargo install` does; the program has its page"""
    config = []
    for crate in sorted((packages / "crates").glob("*.crate")):
        name, _, version = crate.stem.rpartition("-")
        # Cargo builds again what is in another folder than before.
        sources = ROOT / "target/package-crates" / name
        replace(crate, sources)
        if name == "abide":
            program = sources
        else:
            config += ["--config", f"patch.crates-io.{name}.path = {json.dumps(str(sources))}"]
    assert (program / "page/index.html").is_file(), "the page is missing in the crate"
    for setting in development_profile():
        config += ["--config", setting]
    # The patches are not in the lock file, hence no --locked; --offline keeps cargo from looking for newer versions.
    install = ["cargo", "install", "--quiet", "--offline", "--debug", "--root", empty / "root"]
    run([*install, "--target-dir", ROOT / "target", *config, "--path", program])
    expect_call([empty / "root/bin/abide", "mcp"], empty)


def development_profile():
    """The workspace's settings of a development build: with them, what the workspace has compiled is used again."""
    profile = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]["dev"]
    packages = profile.pop("package")
    own = [f"profile.dev.{key} = {json.dumps(value)}" for key, value in profile.items()]
    return own + [
        f"profile.dev.package.{json.dumps(name)}.{key} = {json.dumps(value)}"
        for name, settings in packages.items()
        for key, value in settings.items()
    ]


def registry_entry(packages, empty):
    """the registry's entry names the packages that exist"""
    entry = json.loads((packages / "server.json").read_text())
    unpack(one(packages, "abide-mcp-*.tgz"), empty)
    package = json.loads((empty / "package/package.json").read_text())
    assert package["mcpName"] == entry["name"], (package["mcpName"], entry["name"])
    for named in entry["packages"]:
        assert (named["identifier"], named["version"]) == (package["name"], package["version"]), named


def bill_of_materials(packages, empty):
    """the bill of materials lists our crates, theirs and the page's packages"""
    parts = {part["purl"].rsplit("@", 1)[0] for part in json.loads(one(packages, "*.cdx.json").read_text())["components"]}
    missing = {"pkg:cargo/abide-core", "pkg:cargo/tokio", "pkg:npm/react"} - parts
    assert not missing, f"{missing} are missing"


def install_npm(packages, empty):
    found = one(packages, "abide-mcp-*.tgz")
    run(["npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "--prefix", empty, found], cwd=empty)


def whole_path(runner, binary, empty):
    """A command, a session, a timer and an MCP call."""
    environment = private(empty)
    say = lambda *words: subprocess.check_output([*runner, binary, *words], env=environment, text=True, timeout=300)
    try:
        assert say("run", "--", "echo one; echo two") == "one\ntwo\n"
        session = json.loads(say("session", "start", "--json", "--", "cat"))["session_id"]
        said = say("session", "send", session, "ping")
        assert "ping" in said, said
        say("session", "kill", session)
        timer = json.loads(say("timer", "start", "--json", "1s", "--reason", "test"))
        assert timer["status"] == "completed", timer
    finally:
        say("stop")
    expect_call([*runner, binary, "mcp"], empty)


def expect_call(server, folder, agent="default"):
    """Starts an MCP server and calls its tool `shell`, which makes a session of this agent."""
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "package-test", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "shell", "arguments": {"command": "echo installed-$((40 + 2))"}}},
    ]
    environment = private(folder)
    # The program itself, whichever way it was installed.
    abide = list(itertools.takewhile(lambda word: word != "mcp", map(str, server)))
    process = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder)
    try:
        for request in requests:
            process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answers = iter(process.stdout.readline, "")
        answer = next(found for line in answers if (found := json.loads(line)).get("id") == 2)
        listed = subprocess.check_output([*abide, "ps", "--all", "--json"], env=environment, cwd=folder)
    finally:
        process.stdin.close()
        process.wait(timeout=60)
        # Ends the daemon of this folder.
        subprocess.run([*abide, "stop"], env=environment, cwd=folder, stdout=subprocess.DEVNULL, timeout=120)
    text = answer["result"]["content"][0]["text"]
    assert "installed-42" in text, f"{shlex.join(map(str, server))} answered {answer}"
    agents = [session["agent"] for session in json.loads(listed)["sessions"]]
    assert agent in agents, agents


def expect_output(words, wanted):
    said = subprocess.check_output(words, text=True)
    assert said.startswith(wanted), said


def expect_static(binary):
    """A static binary names no interpreter that loads libraries."""
    data = binary.read_bytes()
    count = int.from_bytes(data[56:58], "little")
    size = int.from_bytes(data[54:56], "little")
    start = int.from_bytes(data[32:40], "little")
    kinds = [int.from_bytes(data[start + n * size : start + n * size + 4], "little") for n in range(count)]
    assert 3 not in kinds, f"{binary} needs a dynamic loader"


def private(folder):
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    return os.environ | {"ABIDE_DIR": str(state)}


def one(packages, pattern):
    found = list(packages.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def unpack(path, into):
    # By `tar`, since not every Python 3.11 knows the argument `filter`, without which later ones warn.
    subprocess.run(["tar", "-xf", path, "-C", into], check=True)


def replace(crate, folder):
    """Makes the folder contain the files of a crate and no others. Files that are the same keep their times."""
    with tarfile.open(crate) as tar:
        files = {folder / Path(*Path(entry.name).parts[1:]): tar.extractfile(entry).read() for entry in tar if entry.isfile()}
    for old in folder.rglob("*"):
        if old.is_file() and old not in files:
            old.unlink()
    for path, data in files.items():
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def unzip(path, into):
    with zipfile.ZipFile(path) as packed:
        for entry in packed.infolist():
            extracted = Path(packed.extract(entry, into))
            extracted.chmod(entry.external_attr >> 16 & 0o777)


def run(words, **options):
    subprocess.run(words, check=True, **options)


if __name__ == "__main__":
    main()
