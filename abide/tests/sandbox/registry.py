"""Registries of four package managers as files below ./files: one package in each."""
import hashlib, io, json, os, tarfile, zipfile

def write(path, data):
    path = os.path.join("files", path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file: file.write(data if isinstance(data, bytes) else data.encode())

def tar(members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()

def pack(members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in members.items(): archive.writestr(name, text)
    return made.getvalue()

base = "http://allowed.test/files"
# Python: an index of links.
info = "answer-1.0.dist-info"
wheel = pack({
    "answer.py": "value = 42\n",
    f"{info}/METADATA": "Metadata-Version: 2.1\nName: answer\nVersion: 1.0\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/RECORD": f"answer.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
})
write("wheels/answer-1.0-py3-none-any.whl", wheel)
write("simple/answer/index.html", f'<a href="{base}/wheels/answer-1.0-py3-none-any.whl">answer-1.0-py3-none-any.whl</a>')
# npm: a document for each package.
package = {"name": "answer", "version": "1.0.0", "main": "index.js", "scripts": {"postinstall": "node -e 1"}}
archive = tar({"package/package.json": json.dumps(package), "package/index.js": "module.exports = 42;\n"})
write("npm/answer.tgz", archive)
package["dist"] = {"tarball": f"{base}/npm/answer.tgz", "shasum": hashlib.sha1(archive).hexdigest()}
write("npm/answer", json.dumps({"name": "answer", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": package}}))
# Cargo: an index with a line for each version.
manifest = '[package]\nname = "answer"\nversion = "1.0.0"\nedition = "2021"\n'
crate = tar({"answer-1.0.0/Cargo.toml": manifest, "answer-1.0.0/src/lib.rs": "pub const VALUE: u32 = 42;\n"})
write("crates/answer-1.0.0.crate", crate)
write("index/config.json", json.dumps({"dl": base + "/crates/{crate}-{version}.crate"}))
line = {"name": "answer", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate).hexdigest(), "features": {}, "yanked": False}
write("index/an/sw/answer", json.dumps(line) + "\n")
# Go: a folder of versions for each module.
module, version = "example.org/answer", "v1.0.0"
write(f"go/{module}/@v/list", version + "\n")
write(f"go/{module}/@v/{version}.info", json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"}))
write(f"go/{module}/@v/{version}.mod", f"module {module}\n")
sources = {"go.mod": f"module {module}\n", "answer.go": "package answer\n\nconst Value = 42\n"}
write(f"go/{module}/@v/{version}.zip", pack({f"{module}@{version}/{name}": text for name, text in sources.items()}))
