"""Typed decorators that compile functions with numba, and the folder of compiled kernels.

Kernels release the interpreter's lock and keep the order of every sum (no fastmath): restarts and published tables need
the same bits on every run.

Compiling takes seconds. A kernel (`njit`) is compiled together with the inner functions that it calls (`njit_inline`,
`njit_inner`). Inner functions get no machine code of their own. They depend on internals of numba's compiler: its
lowering pass and its code library.

numba keeps compiled kernels in files. This module chooses their folder, lets numba read a folder that is not writable,
and removes folders of other versions. It depends on internals of numba's cache.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numba
from numba.core import compiler as numba_compiler
from numba.core import compiler_machinery, config, event, typed_passes, types
from numba.core.caching import IndexDataCacheFile, UserProvidedCacheLocator
from numba.core.cpu import CPUTargetOptions

__all__ = [
    "has_cache",
    "has_writable_cache",
    "njit",
    "njit_inline",
    "njit_inner",
    "on_compilation",
    "stopping_compilation",
]

_numba_flags: Any = config  # its names are set when numba is imported, so type checkers do not know them

_SHOAL = Path(__file__).parents[1]
_PACKAGES = ("kernels", "protection", "scales", "streams", "tables")
"""Packages whose modules hold kernels."""

_CUT_OFF = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError)
"""What reading a part of a pickled file raises."""

DRAFT_AGE_S = 600.0
"""Age (s) of a file from which on no process still writes it."""

_NAME, _SUFFIXES = re.compile(r"shoal-[0-9a-f]{16}"), {".nbi", ".nbc"}
"""Name of a folder of kernels, and how the names of its files end."""

_decorating = threading.RLock()
"""Held while numba's settings are changed."""

UNUSED_AGE_S = 30 * 86_400.0
"""Time (s) after which a folder of another version is removed if no process has used it."""

_GUARD = "_guard_against_spurious_io_errors"
"""Name of numba's context manager around reads and writes of its cache."""


def has_writable_cache() -> bool:
    """Return whether compiled kernels are kept for later processes."""
    return _folders().own is not None


def has_cache() -> bool:
    """Return whether compiled kernels are read from a folder."""
    return any(folder is not None for folder in _folders())


def njit_with_cache(function: Callable[..., Any], **flags: bool) -> Any:  # noqa: ANN401 - numba declares no public type
    """Return a function as numba compiles it on its first call, with the cache of kernels if there is one."""
    own, prepared = _folders()
    with _cache_in(own or prepared, is_writable=own is not None):
        decorate: Any = numba.njit
        compiled = decorate(cache=has_cache(), **flags)(function)
    cache_of_kernel = getattr(compiled, "_cache", None)
    _tolerate_cache_errors(cache_of_kernel)
    if own is not None and prepared is not None:
        _read_first(cache_of_kernel, prepared)
    return compiled


def _read_first(cache_of_kernel: Any, prepared: Path) -> None:  # noqa: ANN401 - numba declares no public type
    """Let numba look into the prepared folder before its own. What is compiled goes to its own."""
    own = getattr(cache_of_kernel, "_cache_file", None)
    if own is None:
        return  # with NUMBA_DISABLE_JIT, or a later numba
    path = str(prepared / Path(cache_of_kernel.cache_path).name)
    first = cast("Any", IndexDataCacheFile)(path, cache_of_kernel._impl.filename_base, own._source_stamp)  # noqa: SLF001
    load = own.load

    def load_from_both(key: Any) -> Any:  # noqa: ANN401 - numba declares no public type
        with suppress(OSError, *_CUT_OFF):
            if (found := first.load(key)) is not None:
                return found
        return load(key)

    own.load = load_from_both


def _tolerate_cache_errors(cache_of_kernel: Any) -> None:  # noqa: ANN401 - numba declares no public type
    """Let numba ignore errors of its cache: on a full disk kernels are compiled in every process.

    numba does so on Windows only. A later numba may lack the guard: then a full disk ends the process.
    """
    if hasattr(cache_of_kernel, _GUARD):
        setattr(cache_of_kernel, _GUARD, partial(suppress, OSError))
        cache_of_kernel.load_overload = partial(_load_or_discard, cache_of_kernel, cache_of_kernel.load_overload)


def _load_or_discard(cache_of_kernel: Any, load: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    """Load a kernel; if a file is cut off, return None and discard the files of this kernel, so that they are replaced.

    A machine that stops, or a disk that fills up, can leave a part of a file.
    """
    try:
        return load(*arguments)
    except _CUT_OFF:
        with suppress(OSError):
            cache_of_kernel.flush()
        return None


class _Folders(NamedTuple):
    """The first writable folder, and the first that holds kernels and is not writable, as in a read-only image.

    Without one of one's own, kernels that the other lacks are compiled in every process.
    """

    own: Path | None
    prepared: Path | None


@cache
def _folders() -> _Folders:
    """Find the folders of compiled kernels, and remove from one's own what no process needs.

    numba considers a compiled function up to date as long as the file of that function is unchanged, even if a kernel
    that it calls has changed. Therefore the name of the folder is a hash of the text of every module that may hold a
    kernel or a constant of one.
    """
    candidates = _candidates()
    own = next(filter(_is_writable, candidates), None)
    if own is not None:
        _remove_drafts(own)
        _remove_unused_versions(own)
    others = (folder for folder in candidates if folder != own and any(folder.rglob("*.nbi")))
    return _Folders(own, next((folder for folder in others if not _is_writable(folder)), None))


def _candidates() -> list[Path]:
    sources = [_SHOAL / "arrays.py", *(path for name in _PACKAGES for path in sorted((_SHOAL / name).rglob("*.py")))]
    text = b"\0".join(path.read_bytes() for path in sources)
    name = f"shoal-{hashlib.sha256(text).hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(chosen)] if chosen else [_SHOAL / "kernels" / "__pycache__", *_user_caches()]
    return list(filter(_is_trusted, (folder / name for folder in folders)))


def _remove_drafts(folder: Path) -> None:
    """Remove files that numba had begun to write when its process was ended; it gives them their name at the end."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as new:
        now_s = os.fstat(new.fileno()).st_mtime
        for draft in folder.rglob("*.tmp.*"):
            if now_s - draft.stat().st_mtime > DRAFT_AGE_S:
                draft.unlink()


def _remove_unused_versions(folder: Path) -> None:
    """Remove folders of other versions that no process has used for 30 days; note the use of this one."""
    with suppress(OSError):
        os.utime(folder)
        now_s = folder.stat().st_mtime
        for other in folder.parent.glob("shoal-*"):
            if now_s - other.stat().st_mtime > UNUSED_AGE_S and _has_only_kernels(other):
                shutil.rmtree(other, ignore_errors=True)


def _has_only_kernels(folder: Path) -> bool:
    """Whether a folder is one of kernels: the user may keep other folders beside it."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    are_kernels = all(path.suffix in _SUFFIXES or ".tmp." in path.name for path in files)
    return _NAME.fullmatch(folder.name) is not None and are_kernels


def _is_trusted(folder: Path) -> bool:
    """Whether nobody else can have put kernels into a folder: they are code, which is executed when it is loaded.

    A folder is trusted if its owner is this user, root or the owner of this package, and others cannot write to it.
    """
    try:
        found, package = folder.stat(), Path(__file__).stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    is_shared = found.st_mode & stat.S_IWOTH != 0 and found.st_mode & stat.S_ISVTX == 0
    return found.st_uid in {0, os.geteuid(), package.st_uid} and not is_shared


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
def _cache_in(folder: Path | None, *, is_writable: bool) -> Iterator[None]:
    """Make numba use this folder while one function is decorated, without affecting other users of numba.

    numba ignores a folder that is not writable. It must not check this if kernels are only to be read.
    """
    with _decorating:
        before, locator = _numba_flags.CACHE_DIR, cast("Any", UserProvidedCacheLocator)
        _numba_flags.CACHE_DIR = str(folder or before)
        try:
            if not is_writable:
                locator.ensure_cache_path = lambda _: None
            yield
        finally:
            _numba_flags.CACHE_DIR = before
            if not is_writable:
                del locator.ensure_cache_path  # it is inherited again


P = ParamSpec("P")
R = TypeVar("R")


_NO_REFERENCE_COUNTS = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}
"""Switches reference counting off. If a later numba lacks the option, kernels are slower and the results the same."""

# numba has no types for these. They are internals of the versions of numba that pyproject.toml allows.
_compiler: Any = numba_compiler
_passes: Any = typed_passes
_types: Any = types
_machinery: Any = compiler_machinery

_FLAGS: dict[str, Any] = {"nogil": True, "fastmath": False}


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel, which Python calls, on its first call. Type checkers see the undecorated type.

    With ``NUMBA_DISABLE_JIT=1`` the function stays plain Python.
    """
    compiled = njit_with_cache(function, no_cfunc_wrapper=True, **_FLAGS)
    if not _numba_flags.DISABLE_JIT:
        _unify_signatures(compiled)
    return cast("Callable[P, R]", compiled)


def njit_inner(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function as a part of each kernel that calls it; machine code of its own would take longest.

    If Python calls it, as tests do, it is compiled as a kernel.
    """
    return _inner(function)


def njit_inline(function: Callable[P, R]) -> Callable[P, R]:
    """Compile as `njit_inner` does, and inline the function into its callers.

    The function may return views. So it needs no reference counts, which would cost as much as its arithmetic. One that
    creates an array is rejected when it is compiled. Functions that it calls must be decorated in the same way.
    """
    return _inner(function, forceinline=True, **_NO_REFERENCE_COUNTS)


def _inner(function: Callable[P, R], **options: bool) -> Callable[P, R]:
    if _numba_flags.DISABLE_JIT:
        return function
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    flags: dict[str, Any] = {**_FLAGS, **wrappers, **options, "pipeline_class": _InnerCompiler}
    compiled: Any = numba.njit(**flags)(function)
    _unify_signatures(compiled)

    def add_overload(result: Any) -> None:  # noqa: ANN401
        """Store the result for kernels. numba's own method would also build a Python entry."""
        compiled.overloads[tuple(result.signature.args)] = result

    compiled.add_overload = add_overload
    return cast("Callable[P, R]", compiled)


def _unify_signatures(compiled: Any) -> None:  # noqa: ANN401 - numba declares no public types
    """Compile one version for all constants of a type, and for labels (int32) as for other whole numbers (int64)."""
    template = compiled.get_call_template

    def get_call_template(arguments: Any, keywords: Any) -> Any:  # noqa: ANN401
        return template(tuple(map(_widened, arguments)), keywords)

    compiled.get_call_template = get_call_template


def _widened(one: Any) -> Any:  # noqa: ANN401
    """Return the type of an argument without its constant, and int64 for int32."""
    plain = _types.unliteral(one)
    return _types.int64 if plain == _types.int32 else plain


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
        entry_point = partial(_call_as_kernel, state.func_id.func)
        state["cr"] = state["cr"]._replace(cfunc=entry_point)
        state.targetctx.insert_user_function(entry_point, state["cr"].fndesc, [library])
        return True


def _call_as_kernel(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - of any function
    """Take the place of the machine code that an inner function lacks: call a kernel, compiled on demand."""
    return _as_kernel(function)(*arguments)


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


class _Listener(event.Listener):
    """Calls two functions when the compiler begins and ends; a kernel is compiled with the kernels that it calls."""

    def __init__(self, began: Callable[[], None], ended: Callable[[], None]) -> None:
        self._began, self._ended, self._depth = began, ended, 0

    def on_start(self, _: Any) -> None:  # noqa: ANN401 - the interface of numba
        self._depth += 1
        if self._depth == 1:
            self._began()

    def on_end(self, _: Any) -> None:  # noqa: ANN401 - the interface of numba
        self._depth -= 1
        if self._depth == 0:
            self._ended()


@contextmanager
def on_compilation(began: Callable[[], None], ended: Callable[[], None]) -> Iterator[None]:
    """Call functions before and after kernels are compiled in this context, in any thread; not if a cache has them."""
    with event.install_listener("numba:compile", _Listener(began, ended)):
        yield


class CompilationStopped(BaseException):
    """Ends the compilation of a kernel. It is no `Exception`, so that the compiler does not take it for its own."""


class _Stopper(event.Listener):
    """Raises `CompilationStopped` in one thread at the next function that is compiled there."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop, self._thread = stop, threading.get_ident()

    def on_start(self, _: Any) -> None:  # noqa: ANN401 - the interface of numba
        if self._stop.is_set() and threading.get_ident() == self._thread:
            raise CompilationStopped

    def on_end(self, _: Any) -> None:  # noqa: ANN401 - the interface of numba
        pass


@contextmanager
def stopping_compilation(stop: threading.Event) -> Iterator[None]:
    """Context in which no further function is compiled once ``stop`` is set; `CompilationStopped` is raised instead."""
    with event.install_listener("numba:compile", _Stopper(stop)):
        yield
