"""Long work of a command: run in a thread, so that signals are handled, with its progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any, NoReturn, Self, TypeVar, overload

import structlog
from tqdm import tqdm

from shoal.files.files import PIPE
from shoal.process_end import end_process

__all__ = ["BackgroundRunner", "elapsed_time", "log_if_slow", "progress_bar", "reading_bar"]

T = TypeVar("T")
INTERRUPTED = 130
REFRESH_S = 0.5
SLOW_S = 10.0
"""Time after which a command that prints nothing meanwhile logs that it is at work."""
POLL_S = 0.1
"""Time between two checks whether work that can be stopped is to stop."""


class BackgroundRunner:
    """Context in which kernels are compiled or run in a thread while the main thread waits.

    A kernel cannot be stopped, and Python handles no signal before the main thread returns from one. The compiler turns
    an exception of a signal into another error. If a signal ends the command meanwhile, the contexts opened within this
    one are closed first, so that incomplete files are removed. Then the process ends at once, with the exit code of the
    signal.
    """

    def __init__(self) -> None:
        self._work: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    @overload
    def run(self, work: Callable[[], T]) -> T: ...

    @overload
    def run(self, work: Callable[[], T], stop: Event | None) -> T | None: ...

    def run(self, work: Callable[[], T], stop: Event | None = None) -> T | None:
        """Return the result of ``work``, or raise its exception; return None once ``stop`` is set.

        The work then goes on, and the process must end by `shoal.process_end.end_process`.
        """
        executor = ThreadPoolExecutor(1, thread_name_prefix="kernels")
        future = executor.submit(work)
        self._work = future
        executor.shutdown(wait=False)
        while stop is not None and not wait([future], POLL_S).done:
            if stop.is_set():
                return None
        return future.result()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None or self._work is None or self._work.done():
            return
        code = error.code if isinstance(error, SystemExit) else INTERRUPTED
        end_process(code if isinstance(code, int) else INTERRUPTED)


def progress_bar(**options: Any) -> tqdm[NoReturn]:  # noqa: ANN401 - the options of tqdm
    """Return a progress bar on standard error; it is drawn only on a terminal."""
    return tqdm(**options, disable=not sys.stderr.isatty(), file=sys.stderr)


@contextmanager
def reading_bar(path: str, position: Callable[[], int] | None) -> Iterator[Callable[[int], None]]:
    """Show how much of a source has been read: its share of the bytes of a file, else the number of records.

    Parameters
    ----------
    path : str
        Of the source; a name that is no file is a pipe.
    position : callable, optional
        Returns the number of bytes read so far; None if the end of the source is not known.

    Yields
    ------
    callable
        To be called with the number of records after each block.
    """
    is_file = position is not None and path != PIPE and Path(path).is_file()
    size, unit = (Path(path).stat().st_size, "B") if is_file else (None, " records")
    with progress_bar(desc="reading", total=size, unit=unit, unit_scale=True) as bar:

        def advance(count: int) -> None:
            bar.update(count if size is None or position is None else position() - bar.n)

        yield advance


@contextmanager
def log_if_slow(log: structlog.stdlib.BoundLogger, text: str) -> Iterator[None]:
    """Log a line if the context lasts longer than `SLOW_S`."""
    timer = Timer(SLOW_S, log.info, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
