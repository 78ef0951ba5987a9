"""The one place that names numba: a typed `njit`, and where compiled kernels are kept between processes.

Kernels release the lock of the interpreter and keep the order of every sum (no fastmath): replays and published
tables need the same bits on every run.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import config
from numba.core.cpu import CPUTargetOptions

__all__ = ["njit", "njit_in_place"]

P = ParamSpec("P")
R = TypeVar("R")

_numba_flags: Any = config  # filled when numba is imported, so no type checker knows its names

_NO_REFERENCE_COUNTS = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}
"""No counting of references. A numba to come may not know the option: the same results, later."""

_CLUSTERING = Path(__file__).parents[1]
"""Folder of the package whose modules hold kernels."""

_GUARD = "_guard_against_spurious_io_errors"


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; for the type checker it stays what it was.

    With ``NUMBA_DISABLE_JIT=1`` the function is left as plain Python.
    """
    return _compiled(function)


def njit_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as `njit` does a function that makes no array, only views; one that does is refused on its first call.

    Without new arrays nobody need count references to them, and put into its caller it need not be handed dozens of
    pointers: in small kernels both cost as much as the arithmetic. What it calls must be decorated likewise.
    """
    return _compiled(function, forceinline=True, **_NO_REFERENCE_COUNTS)


def _compiled(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    folder = _cache_folder()
    with _cache_in(folder):
        flags: dict[str, Any] = {"nogil": True, "fastmath": False, "cache": folder is not None, **options}
        compiled = numba.njit(**flags)(function)
    _tolerate_cache_errors(getattr(compiled, "_cache", None))
    return cast("Callable[P, R]", compiled)


def _tolerate_cache_errors(cache_of_kernel: Any) -> None:  # noqa: ANN401 - numba's own, of no public type
    """Go on where a compiled kernel cannot be kept or read: on a full disk it is compiled in every process.

    numba has the place for it and forgives on Windows only. A numba to come may not have it: then a full disk ends the
    process, as it does there.
    """
    if hasattr(cache_of_kernel, _GUARD):
        setattr(cache_of_kernel, _GUARD, partial(suppress, OSError))


@cache
def _cache_folder() -> Path | None:
    """Return the first writable place for compiled kernels; None (compile in every process) when there is none.

    numba treats a compiled function as up to date as long as the file of that function is unchanged, even if a
    kernel that it calls has changed. So the folder is named by the text of every module that can hold a kernel, and
    of the constants that kernels use.
    """
    sources = [_CLUSTERING.parent / "arrays.py", *sorted(_CLUSTERING.rglob("*.py"))]
    text = b"\0".join(path.read_bytes() for path in sources)
    name = f"shoal-{hashlib.sha256(text).hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(chosen)] if chosen else [_CLUSTERING / "__pycache__", *_user_caches()]
    return next((place / name for place in places if _is_writable(place / name)), None)


def _user_caches() -> list[Path]:
    """Return the user's folder for what can be made again; none for a user without a home, as in some containers."""
    chosen, home = os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME")
    return [Path(chosen) / "numba"] if chosen else [Path(home) / ".cache" / "numba"] if home else []


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def _cache_in(folder: Path | None) -> Iterator[None]:
    """Let numba choose this folder while one function is decorated, and leave other users of numba alone."""
    before = _numba_flags.CACHE_DIR
    _numba_flags.CACHE_DIR = str(folder or before)
    try:
        yield
    finally:
        _numba_flags.CACHE_DIR = before
