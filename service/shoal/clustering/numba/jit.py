"""Typed decorators that compile functions with numba.

Kernels release the interpreter's lock and keep the order of every sum (no fastmath): restarts and published tables need
the same bits on every run.

Compiling takes seconds. A kernel (`njit`) is compiled together with the inner functions that it calls (`njit_inner`,
`njit_inline`). Inner functions get no machine code of their own. They depend on internals of numba's compiler: its
lowering pass and its code library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import compiler as numba_compiler
from numba.core import compiler_machinery, config, event, typed_passes, types
from numba.core.cpu import CPUTargetOptions

from shoal.clustering.numba.kernel_cache import njit_with_cache

__all__ = ["CompilationStopped", "njit", "njit_inline", "njit_inner", "on_compilation", "stopping_compilation"]

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


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a kernel, which Python calls, on its first call. Type checkers see the undecorated type.

    With ``NUMBA_DISABLE_JIT=1`` the function stays plain Python.
    """
    compiled = njit_with_cache(function, no_cfunc_wrapper=True, **_FLAGS)
    if not _numba_flags.DISABLE_JIT:
        _unify_signatures(compiled)
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
