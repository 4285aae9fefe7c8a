#!/usr/bin/env python3
"""Makes the packages that contain abide's binary, without a compiler: packaging/package.py FOLDER ARCH=BINARY...

ARCH is x86_64 or aarch64. The same binaries make the same packages: files are sorted and date from the last commit.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# How others name an architecture.
NODE = {"x86_64": "x64", "aarch64": "arm64"}
LICENSES = ["LICENSE-MIT", "LICENSE-APACHE"]
# Tests compress less, which is quicker.
LEVEL = int(os.environ.get("COMPRESSION_LEVEL", "9"))


def last_change():
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    log = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return int(log.stdout) if log.returncode == 0 else int(time.time())


EPOCH = last_change()
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def with_version(name):
    """A JSON file of this folder, with the version of the workspace in place of 0.0.0."""
    return (HERE / name).read_text().replace('"0.0.0"', json.dumps(VERSION)).encode()


def licenses(folder=""):
    return {f"{folder}{name}": (ROOT / name).read_bytes() for name in LICENSES}


def is_program(name, data):
    return data.startswith((b"\x7fELF", b"#!"))


def tarball(path, files):
    """A .tar.gz of a table from names to contents."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), EPOCH
            entry.mode = 0o755 if is_program(name, data) else 0o644
            tar.addfile(entry, io.BytesIO(data))
    path.write_bytes(gzip.compress(packed.getvalue(), LEVEL, mtime=EPOCH))
    return path


def archive(path, files):
    """A zip file of a table from names to contents."""
    date = max(time.gmtime(EPOCH)[:6], (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as packed:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if is_program(name, data) else 0o100644) << 16
            packed.writestr(entry, data)
    return path


def static_archive(out, arch, binary):
    name = f"abide-{VERSION}-{arch}-linux"
    files = {f"{name}/abide": binary, f"{name}/README.md": (ROOT / "README.md").read_bytes()}
    return tarball(out / f"{name}.tar.gz", files | licenses(f"{name}/"))


def npm(out, binaries):
    files = {
        "package/package.json": with_version("npm/package.json"),
        "package/abide-mcp.js": (HERE / "npm/abide-mcp.js").read_bytes(),
        "package/README.md": (HERE / "npm/README.md").read_bytes(),
    }
    files |= {f"package/{NODE[arch]}/abide": binary for arch, binary in binaries.items()}
    return tarball(out / f"abide-mcp-{VERSION}.tgz", files | licenses("package/"))


def wheel(out, arch, binary):
    """A wheel with the binary as its script `abide-mcp`: no Python runs beside it."""
    tags = [f"py3-none-manylinux_2_17_{arch}", f"py3-none-musllinux_1_1_{arch}"]
    platform = ".".join(tag.removeprefix("py3-none-") for tag in tags)
    info, scripts = f"abide_mcp-{VERSION}.dist-info", f"abide_mcp-{VERSION}.data/scripts"
    readme = (HERE / "npm/README.md").read_text().replace('"npx", "args": ["-y", ', '"uvx", "args": [').replace("npx ", "uvx ")
    metadata = [
        "Metadata-Version: 2.4",
        "Name: abide-mcp",
        f"Version: {VERSION}",
        "Summary: Lets AI agents run commands, keep terminals and wait: an MCP server, a command line and a page",
        "License-Expression: MIT OR Apache-2.0",
        *[f"License-File: {name}" for name in LICENSES],
        "Description-Content-Type: text/markdown",
        "",
        "<!-- mcp-name: io.github.abide-mcp/abide -->",
        readme,
    ]
    short = (
        "#!python\n"
        "import os, sys\n"
        'binary = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "abide-mcp")\n'
        'os.execv(binary, ["abide"] + sys.argv[1:])\n'
    )
    files = {
        f"{scripts}/abide-mcp": binary,
        f"{scripts}/abide": short.encode(),
        f"{info}/METADATA": "\n".join(metadata).encode(),
        f"{info}/WHEEL": "\n".join(
            ["Wheel-Version: 1.0", "Generator: abide", "Root-Is-Purelib: false", *[f"Tag: {tag}" for tag in tags], ""]
        ).encode(),
    } | licenses(f"{info}/licenses/")
    record = ""
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return archive(out / f"abide_mcp-{VERSION}-py3-none-{platform}.whl", files)


def bundle(out, arch, binary):
    files = {"manifest.json": with_version("mcpb/manifest.json"), "server/abide": binary}
    return archive(out / f"abide-{VERSION}-{arch}.mcpb", files | licenses())


def plugin(out):
    files = {
        ".claude-plugin/plugin.json": with_version("plugin/.claude-plugin/plugin.json"),
        ".mcp.json": (HERE / "plugin/.mcp.json").read_bytes(),
    }
    return archive(out / f"abide-{VERSION}-claude-plugin.zip", files | licenses())


def bill_of_materials(out):
    """What the binary contains, in the CycloneDX format: the crates of the lock file and the page's packages."""
    tree = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-musl"],
            cwd=ROOT, capture_output=True, check=True,
        ).stdout
    )
    sums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    used = needed_by(tree, "abide")
    parts = []
    for package in tree["packages"]:
        if package["id"] in used:
            name, version = package["name"], package["version"]
            parts.append(component("cargo", name, version, package["license"], sums.get((name, version))))
    lock = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    for path, package in lock.items():
        if path and not package.get("dev"):
            parts.append(component("npm", path.rsplit("node_modules/")[-1], package["version"], package.get("license"), None))
    described = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
            "component": component("cargo", "abide", VERSION, "MIT OR Apache-2.0", None) | {"type": "application"},
        },
        "components": sorted(parts, key=lambda part: part["purl"]),
    }
    path = out / f"abide-{VERSION}.cdx.json"
    path.write_text(json.dumps(described, indent=1) + "\n")
    return path


def needed_by(tree, name):
    """Ids of the packages that the program is linked with; not what only builds or tests it."""
    edges = {node["id"]: node["deps"] for node in tree["resolve"]["nodes"]}
    todo = [package["id"] for package in tree["packages"] if package["name"] == name]
    found = set()
    while todo:
        package = todo.pop()
        if package not in found:
            found.add(package)
            todo += [dep["pkg"] for dep in edges[package] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    return found


def component(kind, name, version, license, checksum):
    purl_name = name.replace("@", "%40")
    described = {"type": "library", "name": name, "version": version, "purl": f"pkg:{kind}/{purl_name}@{version}"}
    if license:
        described["licenses"] = [{"expression": license.replace("/", " OR ")}]
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    binaries = {arch: Path(path).read_bytes() for arch, path in (word.split("=", 1) for word in sys.argv[2:])}
    made = [npm(out, binaries), plugin(out), bill_of_materials(out)]
    for arch, binary in binaries.items():
        made += [static_archive(out, arch, binary), wheel(out, arch, binary), bundle(out, arch, binary)]
    registry = out / "server.json"
    registry.write_bytes(with_version("server.json"))
    for path in [*made, registry]:
        print(path)


if __name__ == "__main__":
    main()
