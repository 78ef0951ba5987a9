"""Commands of `shoal` in the process of the test: the same output and exit code, without a new interpreter."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import structlog
from shoal.cli import main
from shoal.errors import ShoalError
from shoal.files import Files, run_pipe
from shoal.policy import Policy

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HOOKS = ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook"), (logging, "raiseExceptions"))
QUIET_LOGGERS = ("aiokafka", "aiohttp", "asyncio", "numba", "kafka")


@dataclass(frozen=True)
class Ended:
    """How a command ended; the fields are called as those of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run_command(
    *arguments: str, stdin: bytes = b"", folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a command; what it sets for its process is set back, and lines on compilation are left out."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    with ExitStack() as stack:
        out, error = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        stack.enter_context(patch.dict(os.environ, {**clean, **(environment or {})}, clear=True))
        stack.enter_context(chdir(folder or Path.cwd()))
        stack.enter_context(_settings_of_the_process())
        stack.enter_context(patch.object(sys, "stdin", stack.enter_context(_fed(stdin))))
        stack.enter_context(redirect_stdout(stack.enter_context(_text(out))))
        stack.enter_context(redirect_stderr(stack.enter_context(_text(error))))
        code = _code_of(list(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
        out.seek(0)
        error.seek(0)
        ended = Ended(code, out.read(), without_notice(error.read()))
    _pass_on_signal(code)
    return ended


def without_notice(stderr: bytes) -> bytes:
    """Return standard error without lines on compilation and slow work, which depend on the machine and what ran."""
    notices = (b"compiling kernels", b"still ")
    return b"".join(line for line in stderr.splitlines(keepends=True) if not any(one in line for one in notices))


def _code_of(arguments: list[str]) -> int:
    """Exit code of a command, also where the parser of arguments ends it."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1


def _pass_on_signal(code: int) -> None:
    """End the tests with a signal that has ended the command: it was sent to this process."""
    for number in SIGNALS:
        if code == 128 + number:
            signal.raise_signal(number)


@contextmanager
def _fed(content: bytes) -> Iterator[io.TextIOWrapper]:
    """Open a pipe to read from, into which a thread writes the content."""
    reading, writing = os.pipe()

    def feed() -> None:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(content)
        except BrokenPipeError:
            return  # the command ended before it had read all

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        with os.fdopen(reading, encoding="utf-8") as stream:
            yield stream
    finally:
        feeder.join()


@contextmanager
def _text(file: BinaryIO) -> Iterator[io.TextIOWrapper]:
    """Open a second descriptor of a file for text: a command may direct its standard output elsewhere."""
    with os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8") as stream:
        yield stream


@contextmanager
def _settings_of_the_process() -> Iterator[None]:
    """Set back what `main` sets for the whole process."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    hooks: list[tuple[Any, str, Any]] = [(owner, name, getattr(owner, name)) for owner, name in HOOKS]
    root, logs = logging.getLogger(), structlog.get_config() if structlog.is_configured() else None
    before, level = root.handlers[:], root.level
    quiet = {name: logging.getLogger(name).level for name in QUIET_LOGGERS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for owner, name, hook in hooks:
            setattr(owner, name, hook)
        root.handlers = before
        root.setLevel(level)
        for name, usual in quiet.items():
            logging.getLogger(name).setLevel(usual)
        structlog.reset_defaults()
        if logs is not None:
            structlog.configure(**logs)


@dataclass
class FollowingThread:
    """`shoal pipe --follow` in a thread, with the methods of `subprocess.Popen` that the tests use."""

    policy: Path
    files: Files
    returncode: int | None = None

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._said = b""
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        try:
            run_pipe(Policy.load(self.policy), self.files, self._stop)
            self.returncode = 0
        except ShoalError as error:
            self._said = f"shoal: {error}\n".encode()
            self.returncode = error.exit_code

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, _: int) -> None:
        """Do what SIGINT and SIGTERM do in a process."""
        self._stop.set()

    def kill(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"still following after {timeout} s"
        return b"", self._said


def on_full_disk(room: int) -> list[str]:
    """Return the beginning of a command in which no file grows beyond ``room`` bytes; bytecode is not written."""
    return ["prlimit", f"--fsize={room}", "--", "env", "PYTHONDONTWRITEBYTECODE=1"]
