"""A progress bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, NoReturn

from tqdm import tqdm

__all__ = ["bar", "ticking"]

TICK_S = 0.5


def bar(**about: Any) -> tqdm[NoReturn]:  # noqa: ANN401 - tqdm's own words
    """Return a bar on standard error; it is not drawn where that is no terminal."""
    return tqdm(**about, disable=not sys.stderr.isatty(), file=sys.stderr)


@contextmanager
def ticking(what: str) -> Iterator[tqdm[NoReturn]]:
    """Show how long something takes whose end nobody knows: kernels leave the interpreter free to draw meanwhile."""
    with bar(desc=what, bar_format="{desc}: {elapsed}") as shown:
        over = Event()

        def tick() -> None:
            while not over.wait(TICK_S):
                shown.refresh()

        ticker = Thread(target=tick, name=f"{what}-bar", daemon=True)
        if not shown.disable:
            ticker.start()
        try:
            yield shown
        finally:
            over.set()
            if ticker.is_alive():
                ticker.join()
