"""Long work of a command: run in a thread, so that signals are handled, with its progress on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, NoReturn, Self, TypeVar

from tqdm import tqdm

__all__ = ["BackgroundRunner", "elapsed_time", "progress_bar"]

T = TypeVar("T")
INTERRUPTED = 130
REFRESH_S = 0.5


class BackgroundRunner:
    """Context in which kernels run in a thread while the main thread waits.

    A kernel cannot be stopped, and Python handles no signal before the main thread returns from one. If a signal ends
    the command while a kernel runs, the contexts opened within this one are closed first, so that incomplete files are
    removed. Then the process ends at once, with the exit code of the signal.
    """

    def __init__(self) -> None:
        self._work: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``, or raise its exception."""
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


def progress_bar(**options: Any) -> tqdm[NoReturn]:  # noqa: ANN401 - the options of tqdm
    """Return a progress bar on standard error; it is drawn only on a terminal."""
    return tqdm(**options, disable=not sys.stderr.isatty(), file=sys.stderr)


@contextmanager
def elapsed_time(label: str) -> Iterator[tqdm[NoReturn]]:
    """Show the elapsed time of work of unknown length. A thread draws it, since kernels release the interpreter."""
    with progress_bar(desc=label, bar_format="{desc}: {elapsed}") as bar:
        is_over = Event()

        def refresh() -> None:
            while not is_over.wait(REFRESH_S):
                bar.refresh()

        thread = Thread(target=refresh, name=f"{label}-bar", daemon=True)
        if not bar.disable:
            thread.start()
        try:
            yield bar
        finally:
            is_over.set()
            if thread.is_alive():
                thread.join()
