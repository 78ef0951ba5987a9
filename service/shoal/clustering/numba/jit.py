"""The only module that imports numba: typed decorators, and the folder of compiled kernels.

Kernels release the interpreter's lock and keep the order of every sum (no fastmath): replays and published tables need
the same bits on every run.
"""

from __future__ import annotations

import hashlib
import os
import pickle
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

_numba_flags: Any = config  # its names are set when numba is imported, so type checkers do not know them

_NO_REFERENCE_COUNTS = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}
"""Switches reference counting off. A later numba may lack the option: kernels would be slower, results the same."""

_CLUSTERING = Path(__file__).parents[1]
"""Folder of the package whose modules hold kernels."""

_CUT_OFF = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError)
"""What reading a part of a pickled file raises."""

DRAFT_AGE_S = 600.0
"""Age (s) of a file from which on no process still writes it."""

_GUARD = "_guard_against_spurious_io_errors"
"""Name of numba's context manager around reads and writes of its cache."""


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; for type checkers it keeps its type.

    With ``NUMBA_DISABLE_JIT=1`` the function stays plain Python.
    """
    return _compiled(function)


def njit_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """Compile, as `njit` does, a function that creates no array but views; it is inlined into its callers.

    A function that creates an array is rejected on its first call. Without new arrays no references need counting, and
    an inlined function receives no pointers. In small kernels both would cost as much as the arithmetic. Functions that
    it calls must be decorated in the same way.
    """
    return _compiled(function, forceinline=True, **_NO_REFERENCE_COUNTS)


def _compiled(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    folder = _cache_folder()
    with _cache_in(folder):
        flags: dict[str, Any] = {"nogil": True, "fastmath": False, "cache": folder is not None, **options}
        compiled = numba.njit(**flags)(function)
    _tolerate_cache_errors(getattr(compiled, "_cache", None))
    return cast("Callable[P, R]", compiled)


def _tolerate_cache_errors(cache_of_kernel: Any) -> None:  # noqa: ANN401 - numba declares no public type
    """Let numba ignore errors of its cache: on a full disk kernels are compiled in every process.

    numba does so on Windows only. A later numba may lack the guard: then a full disk ends the process.
    """
    if hasattr(cache_of_kernel, _GUARD):
        setattr(cache_of_kernel, _GUARD, partial(_guarded, cache_of_kernel))


@contextmanager
def _guarded(cache_of_kernel: Any) -> Iterator[None]:  # noqa: ANN401 - as above
    """Ignore errors of the cache; discard its entries of this kernel if a file is cut off, so that it is replaced.

    A machine that stops, or a disk that fills up, can leave a part of a file.
    """
    try:
        yield
    except OSError:
        pass
    except _CUT_OFF:
        with suppress(OSError):
            cache_of_kernel.flush()


@cache
def _cache_folder() -> Path | None:
    """Return the first writable folder for compiled kernels, or None: kernels are then compiled in every process.

    numba considers a compiled function up to date as long as the file of that function is unchanged, even if a kernel
    that it calls has changed. Therefore the name of the folder is a hash of the text of every module that may hold a
    kernel or a constant of one.
    """
    sources = [_CLUSTERING.parent / "arrays.py", *sorted(_CLUSTERING.rglob("*.py"))]
    text = b"\0".join(path.read_bytes() for path in sources)
    name = f"shoal-{hashlib.sha256(text).hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(chosen)] if chosen else [_CLUSTERING / "__pycache__", *_user_caches()]
    found = next((folder / name for folder in folders if _is_writable(folder / name)), None)
    if found is not None:
        _remove_drafts(found)
    return found


def _remove_drafts(folder: Path) -> None:
    """Remove files that numba had begun to write when its process was ended; it gives them their name at the end."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as new:
        now_s = os.fstat(new.fileno()).st_mtime
        for draft in folder.rglob("*.tmp.*"):
            if now_s - draft.stat().st_mtime > DRAFT_AGE_S:
                draft.unlink()


def _user_caches() -> list[Path]:
    """Return the user's cache folder; an empty list for a user without a home folder, as in some containers."""
    chosen, home = os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME")
    return [Path(chosen) / "numba"] if chosen else [Path(home) / ".cache" / "numba"] if home else []


def _is_writable(folder: Path) -> bool:
    """Whether files can be written to a folder; creates the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def _cache_in(folder: Path | None) -> Iterator[None]:
    """Make numba use this folder while one function is decorated, without affecting other users of numba."""
    before = _numba_flags.CACHE_DIR
    _numba_flags.CACHE_DIR = str(folder or before)
    try:
        yield
    finally:
        _numba_flags.CACHE_DIR = before
