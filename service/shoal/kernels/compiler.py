"""The compiled form of kernels, by numba, and the folder of compiled kernels.

Compiled kernels release the interpreter's lock and keep the order of every sum (no fastmath): restarts and published
tables need the same bits on every run, and the bits of the interpreted form.

Compiling takes seconds. A kernel (`njit`) is compiled together with the inner functions that it calls (`njit_inline`,
`njit_inner`). Inner functions get no machine code of their own. They depend on internals of numba's compiler: its
lowering pass and its code library.

numba keeps compiled kernels in files. This module chooses their folder, lets numba read a folder that is not writable,
and removes folders of other versions. It depends on internals of numba's cache.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numba
from numba.core import compiler as numba_compiler
from numba.core import compiler_machinery, config, event, typed_passes, types
from numba.core.caching import IndexDataCacheFile, UserProvidedCacheLocator
from numba.core.codegen import CPUCodeLibrary
from numba.core.cpu import CPUTargetOptions

from shoal.kernels.cache import has_cache, kernel_folders, noting_faults
from shoal.kernels.jit import Kernel, inner_options

_numba_flags: Any = config  # its names are set when numba is imported, so type checkers do not know them

_CUT_OFF = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError)
"""What reading a part of a pickled file raises."""

_decorating = threading.RLock()
"""Held while numba's settings are changed."""

_GUARD = "_guard_against_spurious_io_errors"
"""Name of numba's context manager around reads and writes of its cache."""


def njit_with_cache(function: Callable[..., Any], **flags: bool) -> Any:  # noqa: ANN401 - numba declares no public type
    """Return a function as numba compiles it on its first call, with the cache of kernels if there is one."""
    own, prepared = kernel_folders()
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
        setattr(cache_of_kernel, _GUARD, noting_faults)
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


_NO_REFERENCE_COUNTS = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}
"""Switches reference counting off. If a later numba lacks the option, kernels are slower and the results the same."""

# numba has no types for these. They are internals of the versions of numba that pyproject.toml allows.
_compiler: Any = numba_compiler
_passes: Any = typed_passes
_types: Any = types
_machinery: Any = compiler_machinery

_FLAGS: dict[str, Any] = {"nogil": True, "fastmath": False}


def compiled_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled form of a kernel: it is read from the cache, or compiled, at its first call."""
    compiled = njit_with_cache(_with_compiled_globals(function), no_cfunc_wrapper=True, **_FLAGS)
    _unify_signatures(compiled)
    compiled.compile = partial(_run_interruptibly, compiled.compile)
    return cast("Callable[..., Any]", compiled)


def _run_interruptibly(compile_kernel: Callable[[Any], Any], signature: Any) -> Any:  # noqa: ANN401 - as numba has it
    """Compile a kernel for the types of its arguments, for the main thread in another one.

    In callbacks of the compiler, Python drops a KeyboardInterrupt, or it becomes another error. So the main thread only
    waits. After an interrupt, the other thread goes on: it is a daemon, and the kernel is compiled for a later call.
    """
    if threading.current_thread() is not threading.main_thread():
        return compile_kernel(signature)
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(compile_kernel(signature))
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            found.set_exception(error)

    threading.Thread(target=run, name="compiler", daemon=True).start()
    return found.result()


def _with_compiled_globals(function: Callable[..., Any]) -> FunctionType:
    """Return a copy of a function that finds the compiled forms of the functions that it calls."""
    plain = cast("FunctionType", function)
    copy = FunctionType(
        plain.__code__, _compiled_globals(plain.__globals__), plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__qualname__ = plain.__qualname__
    return copy


_globals_of: dict[int, dict[str, Any]] = {}
"""For the names of a module, by their identity: the same names, with compiled forms."""


def _compiled_globals(names: dict[str, Any]) -> dict[str, Any]:
    """Return the names of a module, with the compiled forms of its kernels and inner functions.

    Other modules that it imports from are treated in the same way, and may import from it.
    """
    found = _globals_of.setdefault(id(names), {})
    for name, value in list(names.items()):
        if name in found:
            continue
        found[name] = value  # first, because a function that it calls can ask for this module again
        if isinstance(value, Kernel):
            found[name] = value.compiled
        elif isinstance(value, FunctionType) and (options := inner_options(value)) is not None:
            found[name] = _compiled_inner(value, **options)
    return found


@cache
def _compiled_inner(function: Callable[..., Any], *, forceinline: bool = False) -> Callable[..., Any]:
    """Return the compiled form of a function that only kernels call."""
    options = {"forceinline": True, **_NO_REFERENCE_COUNTS} if forceinline else {}
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    flags: dict[str, Any] = {**_FLAGS, **wrappers, **options, **_INNER_PIPELINE}
    compiled: Any = numba.njit(**flags)(_with_compiled_globals(function))
    _unify_signatures(compiled)

    def add_overload(result: Any) -> None:  # noqa: ANN401
        """Store the result for kernels. numba's own method would also build a Python entry."""
        compiled.overloads[tuple(result.signature.args)] = result

    compiled.add_overload = add_overload
    return cast("Callable[..., Any]", compiled)


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
        entry_point = partial(_refuse, state.func_id.func_qualname)
        state["cr"] = state["cr"]._replace(cfunc=entry_point)
        state.targetctx.insert_user_function(entry_point, state["cr"].fndesc, [library])
        return True


def _refuse(*_: object) -> None:
    """Take the place of the machine code that an inner function lacks: nothing but kernels calls it."""
    raise TypeError("an inner function has no compiled form of its own")


class _InnerCompiler(_compiler.CompilerBase):  # type: ignore[misc]
    """Compiler of inner functions."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes of numba, with the lowering pass replaced."""
        own = _machinery.PassManager("inner")
        for one, text in _compiler.DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            own.add_pass(_InnerLowering if one is _passes.NativeLowering else one, text)
        own.finalize()
        return [own]


_USED = ("_finalize_dynamic_globals", "_optimize_final_module", "_finalize_final_module", "_ensure_finalized")
_INNER_PIPELINE = {"pipeline_class": _InnerCompiler} if all(hasattr(CPUCodeLibrary, name) for name in _USED) else {}
"""If a later numba lacks the methods, inner functions get machine code: compiling takes longer, results are equal."""


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
