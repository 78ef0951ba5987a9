"""The end of a process while one of its threads compiles or runs a kernel.

Such a thread cannot be interrupted. It must not run either while the interpreter unloads its libraries: that is a
segmentation fault. Then the process ends without unloading anything.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from threading import Thread
from typing import NoReturn
from weakref import WeakSet

EXIT_S = 5.0
"""How long the end of a process waits for a thread that compiles (s)."""

_compiling: WeakSet[Thread] = WeakSet()


def end_process(code: int) -> NoReturn:
    """End the process with this exit code, without waiting for its threads and without unloading the interpreter.

    Both standard streams are flushed. Functions of `atexit` are not called.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def register_compiling(thread: Thread) -> None:
    """Register a thread during which the interpreter must not be unloaded."""
    _compiling.add(thread)


def end_process_if_compiling(code: int) -> None:
    """End the process with this exit code if a registered thread still runs; otherwise return."""
    if any(thread.is_alive() for thread in _compiling):
        end_process(code)


def wait_at_exit(thread: Thread, has_failed: Callable[[], bool]) -> None:
    """Let the end of a process that is not a command of Shoal wait for a registered thread.

    A single step of the compiler can take longer than `EXIT_S`; then that process ends without unloading, with exit
    code 1 after an error and otherwise 0.
    """
    atexit.register(_wait_for, thread, has_failed)


def _wait_for(thread: Thread, has_failed: Callable[[], bool]) -> None:
    thread.join(EXIT_S)
    if thread.is_alive():
        # The interpreter sets `last_value` when it prints an error that nothing caught.
        end_process(1 if has_failed() or hasattr(sys, "last_value") else 0)
