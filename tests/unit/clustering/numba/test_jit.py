from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shoal.arrays import Float64Vector
from shoal.clustering.numba import jit

pytestmark = pytest.mark.unit

PROGRAM = """
import numpy as np
from numba.core import config, errors
before = config.CACHE_DIR
from shoal.clustering.numba.jit import njit, njit_in_place
from shoal.clustering.numba.exact_sums import sum_clusters
totals, exact = np.empty((1, 1)), np.empty((1, 1), np.bool_)
sum_clusters(np.array([[1.0], [2.0]]), np.array([0, 2]), totals, np.empty((1, 1)), exact)
assert totals[0, 0] == 3.0 and exact[0, 0]
assert config.CACHE_DIR == before

def doubled(values):
    return values + values

def trebled(values):
    return values + values + values

assert njit(doubled)(np.ones(2)).tolist() == [2.0, 2.0]
try:
    njit_in_place(trebled)(np.ones(2))
except errors.NumbaError:
    print("refused")
"""


def run(folder: Path, cache: Path, *before: str) -> str:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    variables = {**os.environ, "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(cache)}
    command = [*before, sys.executable, str(program)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_are_kept_where_numba_is_told_to(tmp_path: Path) -> None:
    assert run(tmp_path, tmp_path / "kept") == "refused\n"
    (folder,) = (tmp_path / "kept").iterdir()
    assert folder.name.startswith("shoal-")
    assert [path.name for path in folder.rglob("exact_sums.sum_clusters*.nbi")] != []


def test_without_a_place_to_keep_them_kernels_are_compiled_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made below this")
    assert run(tmp_path, tmp_path / "file" / "kept") == "refused\n"


def test_on_a_full_disk_kernels_are_compiled_in_every_process(tmp_path: Path) -> None:
    # Full for every file, as it were: so a place counts as writable, and no kernel fits into it.
    assert run(tmp_path, tmp_path / "kept", "prlimit", "--fsize=100", "--") == "refused\n"
    assert [path for path in (tmp_path / "kept").rglob("*") if path.suffix in {".nbi", ".nbc"}] == []


def test_the_folder_is_named_by_the_text_of_every_module_with_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clustering = tmp_path / "clustering"
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(jit, "_CLUSTERING", clustering)
    texts = {"arrays.py": "LARGEST = 1\n", "clustering/stream/nearest.py": "\n", "clustering/numba/heaps.py": "\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    first = jit._cache_folder.__wrapped__()
    assert first is not None
    assert first.parent == clustering / "__pycache__"
    assert jit._cache_folder.__wrapped__() == first
    for name, text in texts.items():
        (tmp_path / name).write_text(text + "# changed\n")
        assert jit._cache_folder.__wrapped__() != first, name
        (tmp_path / name).write_text(text)
    assert jit._cache_folder.__wrapped__() == first


def test_a_folder_of_the_user_is_the_second_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arrays.py").write_text("")
    (tmp_path / "clustering").mkdir()
    (tmp_path / "clustering" / "__pycache__").write_text("in the way")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(jit, "_CLUSTERING", tmp_path / "clustering")
    folder = jit._cache_folder.__wrapped__()
    assert folder is not None
    assert folder.parent == tmp_path / "user" / "numba"


def test_a_user_without_a_home_has_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arrays.py").write_text("")
    (tmp_path / "clustering").mkdir()
    (tmp_path / "clustering" / "__pycache__").write_text("in the way")
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jit, "_CLUSTERING", tmp_path / "clustering")
    assert jit._cache_folder.__wrapped__() is None
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = jit._cache_folder.__wrapped__()
    assert folder is not None
    assert folder.parent == tmp_path / "home" / ".cache" / "numba"


def test_a_compiled_function_is_still_a_function() -> None:
    @jit.njit
    def total(values: Float64Vector) -> float:
        return float(values.sum())

    assert total(np.ones(3)) == 3.0
