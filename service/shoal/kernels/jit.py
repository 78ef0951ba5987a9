"""Decorators of kernels, the functions over arrays that numba compiles. Without need, numba is not imported.

A kernel (`njit`) has two forms, which return the same bits: the Python function as it is written, and the one that
`shoal.kernels.compiler` makes of it. A process begins with the first. `use_compiled` changes to the second, which is
faster from some thousand records on, but takes half a second to load and, without a cache, tens of seconds to compile.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

INTERPRETED_HELD = 1_000
"""Most held records of a stream whose decisions are taken as plain Python while a faster form is prepared."""

INTERPRETED_RECORDS, INTERPRETED_AT_FIRST = 500, 4000
"""Most records of a table, or of a stream without a policy, for which compiled kernels do not pay (about a second)."""

INTERPRETED_COLUMNS = 4
"""Most numbers of a record with which the neighbours in a table of `INTERPRETED_AT_FIRST` are found in seconds."""

_IS_DISABLED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
"""Whether kernels stay as they are written."""

_inner: dict[Callable[..., Any], dict[str, bool]] = {}
"""Options of each function that only kernels call."""


class _Choice(threading.local):
    """Whether the calling thread uses the compiled forms before the process does."""

    is_compiled = False


class _Process:
    """Whether the process uses the compiled forms, or prepares them beside its work."""

    is_compiled = False
    is_preparing = False


_of_thread = _Choice()


class Kernel:
    """A function that Python calls, in the form that is in use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: object) -> Any:  # noqa: ANN401 - of any function
        """Call the function."""
        if _Process.is_compiled or _of_thread.is_compiled:
            return self.compiled(*arguments)
        return self.function(*arguments)

    @property
    def compiled(self) -> Callable[..., Any]:
        """The compiled form, which this kernel uses from now on."""
        if self._compiled is None:
            compiler = import_module("shoal.kernels.compiler")  # it imports numba, which takes half a second
            self._compiled = compiler.compiled_kernel(self.function)
        return self._compiled


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Declare a kernel, a function that Python calls. Type checkers see the type of the function."""
    return cast("Callable[P, R]", Kernel(function))


def njit_inner(function: Callable[P, R]) -> Callable[P, R]:
    """Declare a function that only kernels call: it is compiled as a part of each kernel that calls it.

    It gets no machine code of its own, which would take most of the time of compiling (docs/adr/0021).
    """
    _inner[function] = {}
    return function


def njit_inline(function: Callable[P, R]) -> Callable[P, R]:
    """Declare an inner function that is inlined into its callers.

    The function may return views and creates no array. So it needs no reference counts. An inlined function receives no
    pointers. In small functions both would cost as much as the arithmetic. A function that creates an array is rejected
    when it is compiled. Functions that it calls must be decorated in the same way.
    """
    _inner[function] = {"forceinline": True}
    return function


def inner_options(function: Callable[..., Any]) -> dict[str, bool] | None:
    """Return the options of an inner function; None for other objects."""
    return _inner.get(function)


def is_compiled() -> bool:
    """Whether kernels run in their compiled form."""
    return _Process.is_compiled


def is_final() -> bool:
    """Whether kernels keep the form that is in use."""
    return _Process.is_compiled or _IS_DISABLED


def is_preparing() -> bool:
    """Whether the compiled forms will be in use soon."""
    return _Process.is_preparing


def set_preparing(*, is_preparing: bool) -> None:
    """Say whether the compiled forms are being prepared."""
    _Process.is_preparing = is_preparing


def use_compiled() -> None:
    """Run kernels in their compiled form from now on, unless ``NUMBA_DISABLE_JIT=1`` is set."""
    _Process.is_compiled = not _IS_DISABLED


def compile_if_large(records: int, columns: int = 1, *, is_slow: bool = False, form: str = "") -> None:
    """Run kernels in their compiled form from now on if they take long: for more than `INTERPRETED_RECORDS` records.

    Fewer are enough if each has more than `INTERPRETED_COLUMNS` numbers (a category is one each): plain Python then
    takes minutes. Where the kernels of this ``form`` are not in the cache yet, narrow tables need more than
    `INTERPRETED_AT_FIRST`.
    """
    wide = max(1.0, columns / INTERPRETED_COLUMNS)
    if records <= INTERPRETED_RECORDS / wide and not is_slow:
        return
    from shoal.kernels.cache import was_compiled  # noqa: PLC0415 - only larger tables need the cache

    waits = form and columns <= INTERPRETED_COLUMNS and not was_compiled(form)
    most = INTERPRETED_AT_FIRST if waits else INTERPRETED_RECORDS / wide
    if is_slow or records > most:
        use_compiled()


@contextmanager
def with_compiled() -> Iterator[None]:
    """Context in which this thread runs kernels in their compiled form, which loads or compiles them."""
    _of_thread.is_compiled = not _IS_DISABLED
    try:
        yield
    finally:
        _of_thread.is_compiled = False
