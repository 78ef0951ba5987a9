"""Long work in a thread of its own, so that signals are heard meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

__all__ = ["BackgroundRunner"]

T = TypeVar("T")
INTERRUPTED = 130


class BackgroundRunner:
    """Where kernels are at work while the main thread waits.

    A kernel cannot be stopped, and Python runs no handler of a signal before the main thread is back from one. Who is
    sent away while there is work leaves without it: what was opened within this context is closed first (half-written
    files go), then the process ends at once, with the code of the signal.
    """

    def __init__(self) -> None:
        self._work: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def do(self, work: Callable[[], T]) -> T:
        """Return what the work returns, or raise what it raises."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="kernels")
        future = executor.submit(work)
        self._work = future
        executor.shutdown(wait=False)
        return future.result()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._work is None or self._work.done():
            return
        code = error.code if isinstance(error, SystemExit) else INTERRUPTED
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else INTERRUPTED)
