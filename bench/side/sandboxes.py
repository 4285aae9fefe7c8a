"""Sandboxes beside each other, behind one verb: run a command in the workspace of a user.

Each has a home with a key, a shell file and a repository as its workspace, and beside it a folder that is nobody's business.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from . import install
from .contender import Abide, AbideConnection, Answer, Contender
from .install import Missing
from .wire import Wire

PATIENCE = 60


class PerCommand:
    """A sandbox that is made by a program for each command."""

    pid = None

    def __init__(self, words, env, folder):
        self.words, self.env, self.folder = words, env, folder

    def shell(self, command):
        done = subprocess.run([*self.words, command], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
        return Answer(time.perf_counter(), text=done.stdout + done.stderr, exit_code=done.returncode)

    def close(self):
        pass


def scene(home):
    """The files of a user. Returns the workspace."""
    work = home / "work"
    for folder in (work, home / "outside", home / ".ssh", home / ".cache"):
        folder.mkdir(mode=0o700, exist_ok=True)
    (home / ".ssh" / "id_ed25519").write_text("secret-key\n")
    (home / ".bashrc").write_text("# kept\n")
    (work / "file").write_text("x\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q", "."], ["config", "user.name", "a"], ["config", "user.email", "a@b.c"], ["add", "."], ["commit", "-qm", "1"]):
        subprocess.run([*git, *words], cwd=work, env={**os.environ, "HOME": str(home)}, check=True, capture_output=True)
    return work


class WithScene(Contender):
    """A contender whose commands run in the workspace of its user."""

    work = None

    def open(self):
        # Sandboxes treat /tmp in a way of their own, and nobody's home is there.
        if self.home is None:
            self.home = pathlib.Path(tempfile.mkdtemp(prefix="abide-bench-", dir=pathlib.Path.home()))
            (self.home / "tmp").mkdir()
            self.prepare()
        return super().open()

    def prepare(self):
        super().prepare()
        self.work = scene(self.home)

    def words(self):
        raise NotImplementedError

    def connect(self):
        return PerCommand(self.words(), self.env(), self.work)


class Nothing(WithScene):
    name, label = "nothing", "no sandbox"

    def words(self):
        return ["/bin/sh", "-c"]


class Bubblewrap(WithScene):
    """The whole disk read-only, the workspace writable, all namespaces: what most agents ask of it."""

    name, label = "bubblewrap", "bubblewrap"

    def words(self):
        if not shutil.which("bwrap"):
            raise Missing("bwrap is not installed")
        return ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev",
                "--proc", "/proc", "--tmpfs", "/tmp", "--bind", str(self.work), str(self.work), "--chdir", str(self.work), "--", "/bin/sh", "-c"]


class SandboxRuntime(WithScene):
    name, label = "sandbox-runtime", "sandbox-runtime"

    def words(self):
        for program in ("bwrap", "socat", "rg"):
            if not shutil.which(program):
                raise Missing(f"{program} is not installed")
        settings = self.home / "srt.json"
        settings.write_text(json.dumps({"network": {"allowedDomains": [], "deniedDomains": []},
                                        "filesystem": {"denyRead": [], "allowWrite": [str(self.work)], "denyWrite": []}}))
        program = install.package("sandbox-runtime") / "node_modules" / ".bin" / "srt"
        return [str(program), "--settings", str(settings), "-c"]


class AbideSandbox(WithScene, Abide):
    name, label, off = "abide", "abide `workspace-write`", ""

    def env(self):
        return {**super().env(), "ABIDE_OFF": self.off}

    def prepare(self):
        super().prepare()
        with open(self.home / "abide" / "config.toml", "a", encoding="utf-8") as config:
            config.write('[sandbox]\nmode = "workspace-write"\nat_least = "landlock"\n')

    def connect(self):
        # The folder in which the client starts abide is the workspace.
        with open(self.home / "stderr.log", "ab") as errors:
            wire = Wire([str(self.bench.abide), "mcp"], self.env(), self.work, errors)
        return AbideConnection(wire, self.handshake)


class AbideLandlock(AbideSandbox):
    name, label, off = "abide-landlock", "abide, Landlock alone", "namespaces,bubblewrap"


CONTENDERS = {one.name: one for one in (Nothing, AbideSandbox, AbideLandlock, Bubblewrap, SandboxRuntime)}
