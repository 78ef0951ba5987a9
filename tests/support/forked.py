"""Processes that run a program of Python, forked from a server that has imported Shoal and Faust already.

Such a process is one of its own: it has its own id, is stopped and killed by signals, and shares nothing with the test.
It only starts faster (0.1 instead of 2 s of processor time). Its hash seed is that of the server: tests of what a new
interpreter decides, of variables that are read at the first import, and of flags of the interpreter use `subprocess`.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from unittest.mock import patch

TESTS = Path(__file__).resolve().parents[1]


class ForkedProcess:
    """A forked process, with the methods of `subprocess.Popen` that the tests use.

    ``program`` is a file with code of Python, run as ``__main__``. It has exactly this environment, and appends its
    standard output to ``out`` and its standard error to ``log``.
    """

    def __init__(
        self, program: Path, arguments: Sequence[str], environment: Mapping[str, str], out: Path, log: Path
    ) -> None:
        self.out = out
        out.touch()
        log.touch()
        given = (str(program), list(arguments), dict(environment), str(out), str(log))
        self._process = _context().Process(target=_run, args=given)
        self._process.start()
        self.pid = self._process.pid
        assert self.pid is not None

    @property
    def returncode(self) -> int | None:
        """Exit code, or the negative number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            assert self.pid is not None
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_program(
    command: Sequence[str], environment: Mapping[str, str], out: Path, log: Path, *, is_fresh: bool = False
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start a command whose first word is a file with code of Python; ``is_fresh`` starts a new interpreter for it."""
    if not is_fresh:
        return ForkedProcess(Path(command[0]), command[1:], environment, out, log)
    with out.open("ab") as stdout, log.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, *command], env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )


def start_server() -> None:
    """Start the fork server and wait until it has imported all; otherwise the first process waits for it."""
    process = _context().Process(target=int)
    process.start()
    process.join()
    assert process.exitcode == 0


def _context() -> ForkServerContext:
    """Return the context of the fork server of this process; the first call starts the server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["support.preloaded"])
    # The server takes over the environment, and does not know where a test finds its modules.
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    with patch.dict(os.environ, {"PYTHONPATH": paths}):
        ensure_running()
    return context


def _run(program: str, arguments: list[str], environment: dict[str, str], out: str, log: str) -> None:
    assert "support.preloaded" in sys.modules, "the fork server could not import it"
    for descriptor, path in ((0, os.devnull), (1, out), (2, log)):
        opened = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process runs
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
