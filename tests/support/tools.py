"""The programs of `make tools`: tests run them from build/tools/bin, and fail if one is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "tools" / "bin"


def tool(name: str) -> str:
    path = BIN / name
    assert path.is_file(), f"{name} is missing: run `make tools`"
    return str(path)


def run_tool(name: str, *arguments: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of `make tools` in the root folder of the repository, and return what it printed."""
    return subprocess.run(
        [tool(name), *map(str, arguments)],
        cwd=ROOT,
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def output_of(name: str, *arguments: str | Path, given: str | None = None) -> str:
    """Run a program that must succeed, and return its standard output."""
    done = run_tool(name, *arguments, given=given)
    assert done.returncode == 0, f"{name}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout
