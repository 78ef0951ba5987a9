"""Tests in several processes compile each kernel once: the first compiles it, the others wait and read the cache."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core import dispatcher
from numba.core.compiler_lock import global_compiler_lock

LOCKS = Path(tempfile.gettempdir()) / f"shoal-kernels-{os.getuid()}"


def compile_once() -> None:
    """Let each process hold a lock of the function that numba compiles; kernels call each other in no circle."""
    LOCKS.mkdir(exist_ok=True)
    plain: Callable[[Any, Any], Any] = dispatcher.Dispatcher.compile

    def locked(self: Any, signature: Any) -> Any:
        function = self.py_func
        name = f"{inspect.getfile(function)} {function.__qualname__}"
        with global_compiler_lock, (LOCKS / hashlib.sha256(name.encode()).hexdigest()[:24]).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return plain(self, signature)

    vars(dispatcher)["Dispatcher"].compile = locked
