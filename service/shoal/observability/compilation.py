"""Changes a process to compiled kernels: beside the work of a stream, or before that of a large table.

A process begins with kernels as plain Python (`shoal.kernels.jit`), so that nobody waits for the compiler.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import structlog

from shoal.kernels.cache import (
    cache_fault,
    compiling_alone,
    has_writable_cache,
    kernel_folders,
    mark_compiled,
    was_compiled,
)
from shoal.kernels.jit import INTERPRETED_HELD, is_final, set_preparing, use_compiled, with_compiled
from shoal.policy import Policy
from shoal.process_end import register_compiling, wait_at_exit
from shoal.streams import precompile

TABLE_COMPILE_S = 25
"""Processor time of the compiler for algorithm `auto` of tables (s); 18 s for up to 256 records."""

PATIENCE_S = 1.0
"""Processor time (s) after which the compiled form is worth compiling."""

LOAD_PATIENCE_S = 0.2
"""Processor time (s) of a command after which the compiled form is loaded if the cache has it."""

REMINDER_S = 10.0
"""Time between two log lines while records wait for the compiled form (s)."""

POLL_S = 0.2
"""Time between two looks at the compiler of a worker (s)."""

CHILD_NICENESS = 5
"""How much less of a busy processor the compiler gets: a third of the share of the worker."""

NOT_COMPILED = "kernels were not compiled, and records are processed more slowly"

CACHE_FULL = "the cache of kernels could not be written: each process compiles them anew, in a thread"

_NOT_WRITTEN = 74
"""Exit code of a child that could not write what it compiled."""

_NEEDED_BYTES = 400_000_000
"""Memory that compiling needs."""

_CONTROL_GROUPS, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_PROGRAM = "from shoal.observability.compilation import compile_as_child; compile_as_child()"


class KernelCompiler:
    """Context that changes the process to the compiled kernels of a policy with a stream, beside the work.

    Call `advance` between two blocks of records. If the cache has the compiled kernels, they are loaded after 0.2 s of
    processor time. Otherwise, after a second, a child process compiles them into the cache first. It ends with this
    process, and leaves most of the processor to it. Without a writable cache, a thread compiles them.
    A command waits while kernels are loaded: a thread beside its work would make both slower. A worker does not wait.

    Parameters
    ----------
    policy : Policy
        With a stream.
    log : structlog.stdlib.BoundLogger
        Gets one line if the kernels have to be compiled.
    patience_s : float, default 1.0
        Processor time (s) of this process before anything is compiled; 0 for a worker, which runs for long.
    has_failed : callable
        Returns whether the process ends because of an error, if it ends while a thread loads or compiles.
    """

    def __init__(
        self,
        policy: Policy,
        log: structlog.stdlib.BoundLogger,
        patience_s: float = PATIENCE_S,
        has_failed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._policy, self._log, self._has_failed = policy, log, has_failed
        self._is_command = patience_s > 0
        self._load_s, self._begin_s = time.process_time() + LOAD_PATIENCE_S, time.process_time() + patience_s
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._is_over, self._is_loaded = is_final(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        set_preparing(is_preparing=False)
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            _close_input(self._child)
        if self._thread is not None and self._thread.is_alive():
            wait_at_exit(self._thread, self._has_failed)

    async def finish(self) -> None:
        """Advance until the compiled form is in use, or cannot be."""
        self._begin_s = 0.0
        self.advance()
        while not self._is_over:
            await asyncio.sleep(POLL_S)
            self.advance()

    def advance(self, held: int = 0) -> None:
        """Begin, or change to the compiled form if it is there; wait for it if too many records are held."""
        if held > INTERPRETED_HELD:
            self._begin_s = 0.0
        self._step()
        told_s = time.monotonic()
        while held > INTERPRETED_HELD and not self._is_over:
            time.sleep(POLL_S)
            if time.monotonic() - told_s >= REMINDER_S:
                told_s = time.monotonic()
                self._log.info("records wait for the faster form of the kernels", held=held)
            self._step()

    def _step(self) -> None:
        if self._is_over:
            return
        if self._thread is not None:
            if not self._thread.is_alive():
                self._end(NOT_COMPILED)
        elif self._child is not None:
            self._look_at(self._child)
        elif time.process_time() >= self._begin_s:
            self._begin()
        elif time.process_time() >= self._load_s:
            self._load_s = self._begin_s  # the cache is looked into once
            if was_compiled(self._policy.fingerprint):
                self._load()

    def _begin(self) -> None:
        set_preparing(is_preparing=True)
        if was_compiled(self._policy.fingerprint):
            self._load()
        elif not _has_memory():
            self._end("memory is short: kernels are not compiled, and records are processed more slowly")
        elif has_writable_cache():
            self._log.info("a faster form of the kernels is being compiled beside the work")
            try:
                self._child = _start_child(self._policy)
            except OSError as error:  # no memory or no process is left
                self._end(NOT_COMPILED, reason=error.strerror)
        else:
            self._log.info("no cache of kernels is writable: a faster form is compiled in a thread of this process")
            self._start_thread()

    def _look_at(self, child: subprocess.Popen[bytes]) -> None:
        code = child.poll()
        if code is None:
            return
        self._child = None
        _close_input(child)
        if code == 0:
            self._load()
        elif code == _NOT_WRITTEN:
            folder = str(kernel_folders().own)
            self._log.warning(CACHE_FULL, folder=folder, remedy="free space there, or set NUMBA_CACHE_DIR")
            self._start_thread()
        else:
            self._end(NOT_COMPILED, exit_code=code)

    def _load(self) -> None:
        thread = self._start_thread()
        if self._is_command:
            thread.join()
            self._end(NOT_COMPILED)

    def _start_thread(self) -> threading.Thread:
        self._thread = threading.Thread(target=self._run, name="kernels", daemon=True)
        register_compiling(self._thread)
        self._thread.start()
        return self._thread

    def _run(self) -> None:
        with with_compiled():
            precompile(self._policy)
        self._is_loaded = True

    def _end(self, fault: str = "", **facts: object) -> None:
        self._is_over = True
        set_preparing(is_preparing=False)
        if self._is_loaded:
            use_compiled()
        elif fault:
            self._log.warning(fault, **facts)


def _start_child(policy: Policy) -> subprocess.Popen[bytes]:
    """Start a process that compiles the kernels of a policy into the cache. It ends when its standard input does."""
    child = subprocess.Popen(  # noqa: S603 - this interpreter, with a constant program
        [sys.executable, "-P", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # A large policy fills the pipe until the child reads it.
    threading.Thread(target=_send, args=(child, pickle.dumps(policy)), daemon=True).start()
    return child


def _send(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None  # noqa: S101
    with suppress(OSError):  # the exit code of the child tells
        child.stdin.write(data)
        child.stdin.flush()


def _close_input(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None  # noqa: S101
    with suppress(OSError):  # the child ended before it had read everything
        child.stdin.close()


def compile_as_child() -> None:
    """Compile the kernels of the policy that standard input holds, then mark them as compiled."""
    for number in (signal.SIGINT, signal.SIGTERM):  # of a terminal or a service manager: the parent ends this process
        signal.signal(number, signal.SIG_IGN)
    os.nice(CHILD_NICENESS)
    policy = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with compiling_alone(policy.fingerprint), with_compiled():
        if not was_compiled(policy.fingerprint):
            precompile(policy)
        if cache_fault():
            os._exit(_NOT_WRITTEN)
        mark_compiled(policy.fingerprint)
    os._exit(0)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _has_memory() -> bool:
    """Return whether the limit of the container, if there is one, leaves what compiling needs."""
    free = free_memory()
    return free is None or free[0] > _NEEDED_BYTES


def free_memory() -> tuple[int, int] | None:
    """Return how much the limit of the container or unit leaves, and the limit (bytes); None if there is none.

    Pages of files that nobody has read lately do not count: the kernel drops them when memory is needed.
    """
    group = _control_group()
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + int(statistics["inactive_file"]), limit
    except (OSError, ValueError, KeyError):
        return None


def _control_group() -> Path:
    """Return the folder of this process's control group (version 2): that of a unit, or the only one of a container."""
    try:
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        return _CONTROL_GROUPS
    name = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    own = _CONTROL_GROUPS / name
    return own if (own / "memory.max").exists() else _CONTROL_GROUPS


class CompilationNotice:
    """Context that logs the first kernel that is compiled in it, and adds up the time of the compiler.

    Nothing is logged if the cache has all kernels.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, about_s: int) -> None:
        self.seconds = 0.0
        """Time that the compiler took (s); summaries leave it out."""
        self._log, self._text = log, f"compiling kernels, once: about {about_s} s"
        if not has_writable_cache():
            self._text = (
                f"compiling kernels, about {about_s} s in each process: no cache is writable, set NUMBA_CACHE_DIR"
            )
        self._began_s, self._is_announced = 0.0, False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        from shoal.kernels.compiler import on_compilation  # noqa: PLC0415 - it imports numba, which is slow

        self._stack.enter_context(on_compilation(self._begin, self._end))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        if not self._is_announced:
            self._is_announced = True
            self._log.info(self._text)

    def _end(self) -> None:
        self.seconds += time.monotonic() - self._began_s
