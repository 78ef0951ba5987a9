"""The end of a process while one of its threads compiles or runs a kernel.

Such a thread cannot be interrupted. It must not run either while the interpreter unloads its libraries: that is a
segmentation fault. Then the process ends without unloading anything.
"""

from __future__ import annotations

import os
import sys
from threading import Thread
from typing import NoReturn
from weakref import WeakSet

__all__ = ["end_process", "end_process_if_compiling", "register_compiling"]

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
