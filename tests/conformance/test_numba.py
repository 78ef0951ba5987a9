"""What `shoal.kernels.compiler` uses of numba's insides: each version that pyproject.toml allows must have it.

Kernels work without some of it, more slowly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from numba.core import caching, codegen, compiler, compiler_machinery, config, cpu, dispatcher, event, typed_passes
from shoal.kernels import compiler as own

pytestmark = pytest.mark.conformance

FLAGS = ["_nrt", "forceinline", "no_cfunc_wrapper", "no_cpython_wrapper"]


def plus_one(x: float) -> float:
    return x + 1.0


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (cpu.CPUTargetOptions, FLAGS),
        (compiler, ["CompilerBase", "DefaultPassBuilder"]),
        (compiler_machinery, ["PassManager", "register_pass"]),
        (typed_passes.NativeLowering, ["run_pass"]),
        (codegen.CPUCodeLibrary, ["_finalize_dynamic_globals", "_optimize_final_module", "_finalize_final_module"]),
        (codegen.CPUCodeLibrary, ["_ensure_finalized"]),
        (dispatcher.Dispatcher, ["add_overload", "get_call_template"]),
        (caching.IndexDataCacheFile, ["load"]),
        (caching.UserProvidedCacheLocator, ["ensure_cache_path"]),
        (caching.FunctionCache, [own._GUARD, "load_overload", "flush"]),
        (config, ["CACHE_DIR"]),
        (event, ["Listener", "install_listener"]),
    ],
)
def test_numba_has_what_the_compiler_of_kernels_replaces(owner: object, names: list[str]) -> None:
    assert [name for name in names if not hasattr(owner, name)] == [], numba.__version__


def test_inner_functions_are_compiled_by_the_passes_of_numba_but_for_their_lowering() -> None:
    state = SimpleNamespace(func_ir=None, flags=compiler.Flags())  # type: ignore[no-untyped-call]
    passes = compiler.DefaultPassBuilder.define_nopython_pipeline(state).passes  # type: ignore[no-untyped-call]
    assert [one for one, _ in passes].count(typed_passes.NativeLowering) == 1
    assert list(inspect.signature(caching.IndexDataCacheFile).parameters) == [
        "cache_path",
        "filename_base",
        "source_stamp",
    ]


@pytest.mark.parametrize("name", ["_INNER_PIPELINE", "_NO_REFERENCE_COUNTS"])
def test_a_later_numba_without_the_insides_compiles_the_same_more_slowly(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 0)  # also where kernels are tested as plain Python
    monkeypatch.setattr(own, name, {})
    made: Callable[..., Any] = own._compiled_inner.__wrapped__(plus_one, forceinline=True)
    assert numba.njit(lambda x: made(x) + 0.0)(1.0) == 2.0


def test_the_version_is_one_that_was_tested() -> None:
    assert numba.__version__.rsplit(".", 1)[0] in {"0.67", "0.68"}
