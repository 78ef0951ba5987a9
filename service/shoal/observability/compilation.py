"""Says that kernels are compiled, which takes seconds to a minute, and measures how long that takes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

import structlog

from shoal.kernels.jit import on_compilation
from shoal.policy import Policy
from shoal.streams.rules import INDEXED_FROM, MAX_INDEXED_DIMENSIONS

__all__ = ["TABLE_COMPILE_S", "CompilationNotice", "stream_compile_s"]

RULES_S = {"nearest": 10, "awo": 30, "greedy": 30, "block": 35}
"""Processor time of the compiler for a rule without options (s), as measured from an empty cache."""

TABLE_COMPILE_S = 25
"""The same for algorithm `auto` of tables; 18 s for up to 256 records."""

INDEXES_S = {"nearest": 12, "awo": 30}
"""The same for the kernels of a rule's index, which are compiled in addition."""

PROTECTED_S = 50
"""The same for every rule of a stream that protects confidential values; it has kernels of its own, and no index."""

REMINDER_S = 10.0
"""Time between two log lines while kernels are compiled (s)."""


class CompilationNotice:
    """Context that logs the first kernel that is compiled in it, and adds up the time of the compiler.

    Every 10 s it logs that kernels are still compiled. Nothing is logged if the cache has all kernels.

    Parameters
    ----------
    log : BoundLogger
        Of the command.
    about_s : int
        Time to announce (s).
    announce : callable, optional
        Called with the text that is logged when the compiler begins, and with an empty text when the context ends.

    Attributes
    ----------
    seconds : float
        Time that the compiler took (s); summaries leave it out.
    """

    def __init__(
        self, log: structlog.stdlib.BoundLogger, about_s: int, announce: Callable[[str], None] | None = None
    ) -> None:
        self.seconds = 0.0
        self._log, self._announce = log, announce
        self._text = f"compiling kernels, once: about {about_s} s"
        self._began_s, self._is_compiling, self._is_announced = 0.0, False, False
        self._stack, self._closed = ExitStack(), threading.Event()

    def __enter__(self) -> Self:
        self._stack.enter_context(on_compilation(self._begin, self._end))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._closed.set()
        if self._announce is not None:
            self._announce("")

    def _begin(self) -> None:
        self._began_s, self._is_compiling = time.monotonic(), True
        if self._is_announced:
            return
        self._is_announced = True
        self._log.info(self._text)
        if self._announce is not None:
            self._announce(self._text)
        threading.Thread(target=self._remind, name="compilation", daemon=True).start()

    def _remind(self) -> None:
        """Log regularly that kernels are compiled. One kernel alone can take longer than a reader waits in silence."""
        while not self._closed.wait(REMINDER_S):
            if self._is_compiling:
                self._log.info(
                    "still compiling kernels", seconds=round(self.seconds + time.monotonic() - self._began_s)
                )

    def _end(self) -> None:
        self.seconds += time.monotonic() - self._began_s
        self._is_compiling = False


def stream_compile_s(policy: Policy) -> int:
    """Return the time (s) to announce for the kernels of a policy's rule."""
    stream = policy.require_stream()
    if policy.protects_values:
        return PROTECTED_S
    has_index = INDEXED_FROM.get(stream.rule, math.inf) <= stream.delta
    has_codes = any(a.is_nominal or a.missing == "group" for a in policy.clustered)
    is_narrow = len(policy.clustered) <= MAX_INDEXED_DIMENSIONS and not has_codes
    return RULES_S[stream.rule] + (INDEXES_S[stream.rule] if has_index and is_narrow else 0)
