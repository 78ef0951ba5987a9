"""Build and unpack the tools of `make check-deploy` below build/tools: nothing is installed on the system.

Tools of Go are built by ``go install`` at the versions of versions.toml. Prometheus, kcat and libfaketime are taken
from packages of Debian. What is there already is left as it is. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = ROOT / "build" / "tools"
BIN = TOOLS / "bin"
DEBIAN = TOOLS / "debian"

sys.path.insert(0, str(HERE.parent))
from waiting import progress_dots  # noqa: E402 - sys.path is set first

__all__ = ["GoTool", "ToolFailedError", "install"]

BUILD_S = 1800.0
"""Time limit for one tool (s); the longest build takes three minutes of processor time."""
ATTEMPTS = 3
"""A download may fail in between."""
GO = "install Go 1.26 or newer and put it into the PATH"
APT = "on Debian as root: apt-get update, or apt-get install prometheus kcat libfaketime"


class ToolFailedError(Exception):
    """A tool cannot be had; the message names the remedy."""


class GoTool(NamedTuple):
    """A program of a Go module."""

    name: str
    module: str
    package: str
    version: str
    sum: str

    @property
    def path(self) -> Path:
        """Where the program is."""
        return BIN / self.name

    def is_there(self) -> bool:
        """Return whether the program was built from this version of the module."""
        return self.path.is_file() and self.found_in(self.path) == (self.module, self.version, self.sum)

    @staticmethod
    def found_in(program: Path) -> tuple[str, ...]:
        """Return module, version and hash that Go wrote into a program; empty if it wrote none."""
        told = _output([_go(), "version", "-m", str(program)])
        return next((tuple(line.split()[1:]) for line in told.splitlines() if line.split()[:1] == ["mod"]), ())

    def build(self) -> None:
        """Build the program.

        Raises
        ------
        ToolFailedError
            Go is missing or too old, the module cannot be downloaded, or it is not the one of versions.toml.
        """
        source = "/".join(filter(None, (self.module, self.package)))
        with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
            _try([_go(), "install", f"{source}@{self.version}"], f"go builds {self.name} {self.version}", GOBIN=folder)
            (built,) = Path(folder).iterdir()
            found = self.found_in(built)
            if found != (self.module, self.version, self.sum):
                raise ToolFailedError(f"{self.name}: versions.toml does not name what was built: {' '.join(found)}")
            built.replace(self.path)


def install(names: Sequence[str] = ()) -> list[str]:
    """Make every tool that is not there, or only those of these names; return the names of all that were asked for.

    One program of a package of Debian brings the others, which are small.

    Raises
    ------
    ToolFailedError
        A tool is unknown or cannot be had; the message names the remedy.
    """
    BIN.mkdir(parents=True, exist_ok=True)
    described = (HERE / "versions.toml").read_bytes()
    wanted = tomllib.loads(described.decode())
    programs: list[str] = wanted["debian"]["programs"]
    known = sorted([*wanted["go"], *programs])
    if unknown := set(names) - set(known):
        raise ToolFailedError(f"{', '.join(sorted(unknown))}: unknown; the tools are {' '.join(known)}")
    chosen = sorted(set(names)) or known
    with (TOOLS / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tools = [GoTool(name, **fields) for name, fields in wanted["go"].items() if name in chosen]
        for tool in tools:
            if not tool.is_there():
                tool.build()
        packages = wanted["debian"]["packages"]
        stamp = DEBIAN / "stamp"
        written = hashlib.sha256(repr((packages, programs)).encode()).hexdigest()
        is_chosen = not set(programs).isdisjoint(chosen)
        if is_chosen and not (stamp.is_file() and stamp.read_text(encoding="utf-8") == written):
            _from_debian(packages, programs)
            stamp.write_text(written, encoding="utf-8")
    return chosen


def _from_debian(packages: list[str], programs: list[str]) -> None:
    """Unpack packages; without apt, use the programs of the system."""
    shutil.rmtree(DEBIAN, ignore_errors=True)
    DEBIAN.mkdir()
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
            _try(["apt-get", "download", *packages], f"apt downloads {', '.join(packages)}", folder=Path(folder))
            for package in sorted(Path(folder).glob("*.deb")):
                _try(["dpkg-deb", "-x", str(package), str(DEBIAN)], f"dpkg unpacks {package.name}", attempts=1)
    for name in programs:
        unpacked = DEBIAN / "usr" / "bin" / name
        _write_starter(name, str(unpacked) if unpacked.is_file() else shutil.which(name))
        _output([str(BIN / name), "-V" if name == "kcat" else "--version"])


def _write_starter(name: str, program: str | None) -> None:
    """Write a script that starts a program with the libraries that were unpacked beside it."""
    if program is None:
        raise ToolFailedError(f"no apt-get and no {name}: install Prometheus and kcat; {APT}")
    folders = sorted({str(library.parent) for library in (DEBIAN / "usr" / "lib").glob("*/*.so.*")})
    starter = BIN / name
    starter.unlink(missing_ok=True)
    libraries = f"LD_LIBRARY_PATH={shlex.quote(':'.join(folders))} " if folders else ""
    starter.write_text(f'#!/bin/sh\n{libraries}exec {shlex.quote(program)} "$@"\n', encoding="utf-8")
    starter.chmod(0o755)


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise ToolFailedError(f"no go found: {GO}")
    return go


def _try(command: list[str], what: str, *, attempts: int = ATTEMPTS, folder: Path = TOOLS, **variables: str) -> None:
    """Run a command, several times if it fails, with progress dots."""
    said = ""
    with progress_dots(f"tools: {what}"):
        for _ in range(attempts):
            try:
                done = subprocess.run(
                    command,
                    cwd=folder,
                    env=os.environ | variables,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=BUILD_S,
                )
            except subprocess.TimeoutExpired:
                raise ToolFailedError(f"{what}: not done after {BUILD_S:.0f} s") from None
            if done.returncode == 0:
                return
            said = done.stderr.strip()[-1500:]
    raise ToolFailedError(f"{what}: {said}\nremedy: {GO if command[0].endswith('go') else APT}")


def _output(command: list[str]) -> str:
    """Return what a program prints that takes no time."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise ToolFailedError(f"{' '.join(command)}: {done.stderr.strip()[-1500:]}\nremedy: make tools, or {APT}")
    return done.stdout


if __name__ == "__main__":
    try:
        names = install(sys.argv[1:])
    except ToolFailedError as error:
        sys.exit(f"tools: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"{BIN.relative_to(ROOT)}: {' '.join(names)}")
