"""The only module that imports numba: typed decorators, and the folder of compiled kernels.

Kernels release the interpreter's lock and keep the order of every sum (no fastmath): restarts and published tables need
the same bits on every run.

Compiling takes seconds. A kernel (`njit`) is compiled together with the inner functions that it calls (`njit_inner`,
`njit_inline`). Inner functions get no machine code of their own. They depend on internals of numba's compiler: its
lowering pass and its code library.
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
from numba.core import compiler as numba_compiler
from numba.core import compiler_machinery, config, typed_passes, types
from numba.core.cpu import CPUTargetOptions

__all__ = ["njit", "njit_inline", "njit_inner"]

P = ParamSpec("P")
R = TypeVar("R")

_numba_flags: Any = config  # its names are set when numba is imported, so type checkers do not know them

_NO_REFERENCE_COUNTS = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}
"""Switches reference counting off. If a later numba lacks the option, kernels are slower and the results the same."""

# numba has no types for these. They are internals of the versions of numba that pyproject.toml allows.
_compiler: Any = numba_compiler
_passes: Any = typed_passes
_types: Any = types
_machinery: Any = compiler_machinery

_FLAGS: dict[str, Any] = {"nogil": True, "fastmath": False}

_CLUSTERING = Path(__file__).parents[1]
"""Folder of the package whose modules hold kernels."""

_CUT_OFF = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError)
"""What reading a part of a pickled file raises."""

DRAFT_AGE_S = 600.0
"""Age (s) of a file from which on no process still writes it."""

_GUARD = "_guard_against_spurious_io_errors"
"""Name of numba's context manager around reads and writes of its cache."""


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel, which Python calls, on its first call. Type checkers see the undecorated type.

    With ``NUMBA_DISABLE_JIT=1`` the function stays plain Python.
    """
    folder = _cache_folder()
    with _cache_in(folder):
        compiled = numba.njit(cache=folder is not None, **_FLAGS)(function)
    _tolerate_cache_errors(getattr(compiled, "_cache", None))
    return cast("Callable[P, R]", compiled)


def njit_inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only kernels call, as a part of each kernel that calls it.

    It gets no machine code of its own, which would take most of the time of compiling (docs/adr/0021). If Python calls
    it, as tests do, it is compiled as a kernel.
    """
    return _inner(function)


def njit_inline(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as `njit_inner` does, and inline the function into its callers.

    The function may return views and creates no array. So it needs no reference counts. An inlined function receives no
    pointers. In small functions both would cost as much as the arithmetic. A function that creates an array is rejected
    when it is compiled. Functions that it calls must be decorated in the same way.
    """
    return _inner(function, forceinline=True, **_NO_REFERENCE_COUNTS)


def _inner(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    if _numba_flags.DISABLE_JIT:
        return function
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    flags: dict[str, Any] = {**_FLAGS, **wrappers, **options, "pipeline_class": _InnerCompiler}
    compiled: Any = numba.njit(**flags)(function)
    template = compiled.get_call_template

    def get_call_template(arguments: Any, keywords: Any) -> Any:  # noqa: ANN401 - numba declares no public types
        """Compile one version per type, not per constant."""
        return template(tuple(map(_types.unliteral, arguments)), keywords)

    def add_overload(result: Any) -> None:  # noqa: ANN401
        """Store the result for kernels. numba's own method would also build a Python entry."""
        compiled.overloads[tuple(result.signature.args)] = result

    compiled.get_call_template = get_call_template
    compiled.add_overload = add_overload
    return cast("Callable[P, R]", compiled)


@_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(_passes.NativeLowering):  # type: ignore[misc] # numba has no types
    """Translates an inner function for its callers. Optimization and machine code are left to the kernels."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:  # noqa: ANN401
        """Translate the function. Return True, as numba's lowering does: the function has changed."""
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)

        def finalize() -> None:
            library._finalize_dynamic_globals()  # noqa: SLF001 - as the library does, without machine code
            library._finalized = True  # noqa: SLF001

        library._optimize_final_module = lambda: None  # noqa: SLF001
        library._finalize_final_module = finalize  # noqa: SLF001
        state.library = library
        state.flags.no_compile = True
        super().run_pass(state)
        library._ensure_finalized()  # noqa: SLF001
        entry_point = _EntryPoint(state.func_id.func)
        state["cr"] = state["cr"]._replace(cfunc=entry_point)
        state.targetctx.insert_user_function(entry_point, state["cr"].fndesc, [library])
        return True


class _EntryPoint:
    """What Python calls instead of the machine code that an inner function lacks: a kernel, compiled on demand."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> Any:  # noqa: ANN401 - of any function
        return _as_kernel(self._function)(*arguments)


@cache
def _as_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    return njit(function)


class _InnerCompiler(_compiler.CompilerBase):  # type: ignore[misc]
    """Compiler of inner functions."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes of numba, with the lowering pass replaced."""
        own = _machinery.PassManager("inner")
        for one, text in _compiler.DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            own.add_pass(_InnerLowering if one is _passes.NativeLowering else one, text)
        own.finalize()
        return [own]


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
