"""Compiled kernels: where they are cached, and that a changed kernel is compiled again."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from shoal.kernels import cache, compiler, jit
from support.by_night import at_night
from support.commands import on_full_disk

pytestmark = pytest.mark.unit

INNER_PROGRAM = """
import numpy as np
from shoal.kernels import compiler
from shoal.kernels.jit import njit, njit_inline, njit_inner, use_compiled
use_compiled()

@njit_inline
def add(values, index, amount):
    values[index] += amount

@njit_inner
def copied(values):
    return values.copy()

@njit
def changed(values):
    result = copied(values)
    add(result, 0, 1)
    add(result, result.size - 1, result.size)
    return result

def files():
    return sorted({path.name.split("-")[0] for path in Path(os.environ["NUMBA_CACHE_DIR"]).rglob("*.nbc")})

import os
from pathlib import Path
print(changed(np.array([5, 6, 7])).tolist(), len(compiler._compiled_inner(add, forceinline=True).overloads), files())
"""

PROGRAM = """
import numpy as np
from numba.core import config, errors
before = config.CACHE_DIR
from shoal.kernels.jit import njit, njit_inline, use_compiled
from shoal.kernels.sums import sum_clusters
use_compiled()
totals, exact = np.empty((1, 1)), np.empty((1, 1), np.bool_)
sum_clusters(np.array([[1.0], [2.0]]), np.array([0, 2]), totals, np.empty((1, 1)), exact)
assert totals[0, 0] == 3.0 and exact[0, 0]
assert config.CACHE_DIR == before

def doubled(values):
    return values + values

@njit_inline
def tripled(values):
    return values + values + values

@njit
def six_times(values):
    return doubled(tripled(values))

doubled = njit(doubled)
assert doubled(np.ones(2)).tolist() == [2.0, 2.0]
try:
    six_times(np.ones(2))
except errors.NumbaError:
    print("rejected")
"""

SMALL_PROGRAM = """
import numpy as np
from shoal.kernels.jit import njit, use_compiled
use_compiled()

@njit
def doubled(values):
    return values[0] + values[0]

assert doubled(np.ones(2)) == 2.0
print(sum(doubled.compiled.stats.cache_hits.values()))
"""

READ_ONLY_PROGRAM = """
import os
import tempfile
from pathlib import Path
plain = tempfile.TemporaryFile

def refusing(*arguments, **options):
    # Also for a user who may write everywhere.
    if str(options["dir"]).startswith(os.environ["READ_ONLY"]):
        raise PermissionError
    return plain(*arguments, **options)

tempfile.TemporaryFile = refusing
import numpy as np
from shoal.kernels import cache, compiler, jit
folders = os.environ["FOLDERS"].split(":")
cache._candidates = lambda: [Path(folder) for folder in folders]
cache.kernel_folders.cache_clear()
jit.use_compiled()
compiled = []

@jit.njit
def doubled(values):
    return values[0] + values[0]

@jit.njit
def tripled(values):
    return values[0] + values[0] + values[0]

with compiler.on_compilation(lambda: compiled.append("began"), lambda: compiled.append("ended")):
    assert doubled(np.ones(2)) == 2.0
    if "TRIPLED" in os.environ:
        assert tripled(np.ones(2)) == 3.0
print(*compiled)
"""

LIMIT_PROGRAM = """
import numpy as np
from shoal.kernels.jit import use_compiled
use_compiled()
from shoal.streams.expiry import NO_TARGET, StreamConstraints, StreamState, empty_workspace
from shoal.streams.held_records import empty_held
from shoal.streams.partition import held_as_table
held = empty_held(8, 1, 0)
held.extent[:] = 0, 2
held.subjects[:2] = 1, 2
held.coordinates[0, :2] = 100.0
limits = np.zeros(0, np.int64)
constraints = StreamConstraints(2, 5, np.zeros(1), 0.5, limits, 0, NO_TARGET)
rows = held_as_table(StreamState(held, empty_workspace(8), constraints))
print(len(rows), sum(held_as_table.compiled.stats.cache_hits.values()))
"""


def run(folder: Path, cache: Path, *prefix: str, text: str = PROGRAM, **variables: str) -> str:
    program = folder / "program.py"
    if not program.exists():  # numba compares the time of its last change
        program.write_text(text)
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(cache), **variables}
    command = [*prefix, sys.executable, str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.own_interpreter
def test_kernels_are_cached_in_the_folder_of_the_environment_variable(tmp_path: Path) -> None:
    assert run(tmp_path, tmp_path / "cache") == "rejected\n"
    (folder,) = (tmp_path / "cache").iterdir()
    assert folder.name.startswith("shoal-")
    assert [path.name for path in folder.rglob("sums.sum_clusters*.nbi")] != []


@pytest.mark.own_interpreter
def test_inner_functions_are_compiled_as_parts_of_kernels_once_for_all_constants(tmp_path: Path) -> None:
    assert run(tmp_path, tmp_path / "cache", text=INNER_PROGRAM).splitlines() == [
        "[6, 6, 10] 1 ['program.changed']",
    ]


@pytest.mark.own_interpreter
def test_without_a_writable_folder_kernels_are_compiled_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made below this")
    assert run(tmp_path, tmp_path / "file" / "cache") == "rejected\n"


@pytest.mark.own_interpreter
def test_on_a_full_disk_kernels_are_compiled_in_every_process(tmp_path: Path) -> None:
    # With this limit an empty file can be created, so the folder counts as writable, but no kernel fits.
    assert run(tmp_path, tmp_path / "cache", *on_full_disk(100)) == "rejected\n"
    assert [path for path in (tmp_path / "cache").rglob("*") if path.suffix in {".nbi", ".nbc"}] == []


def kernels_in(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.rglob("*.nbi"))


def test_a_cache_that_is_there_but_not_writable_is_used(tmp_path: Path) -> None:
    prepared, own = tmp_path / "prepared", tmp_path / "own"

    def compiled(folders: str, read_only: str, **variables: str) -> str:
        variables |= {"FOLDERS": folders, "READ_ONLY": read_only}
        return run(tmp_path, tmp_path / "unused", text=READ_ONLY_PROGRAM, **variables).strip()

    assert compiled(str(prepared), "no folder") == "began ended"
    assert compiled(str(prepared), str(prepared)) == "", "nothing else is writable"
    # What the prepared folder does not have is compiled, and kept if another folder is writable.
    assert compiled(str(prepared), str(prepared), TRIPLED="1") == "began ended"
    assert compiled(f"{prepared}:{own}", str(prepared), TRIPLED="1") == "began ended"
    assert compiled(f"{prepared}:{own}", str(prepared), TRIPLED="1") == ""
    assert (kernels_in(prepared), kernels_in(own)) == (["program.doubled"], ["program.tripled"])


@pytest.mark.parametrize("cuts", [[(".nbi", 0), (".nbc", 40)], *at_night([(".nbi", 40), (".nbc", 0)])])
def test_a_cache_file_that_is_cut_off_is_replaced(tmp_path: Path, cuts: list[tuple[str, int]]) -> None:
    def cache_hits() -> int:
        return int(run(tmp_path, tmp_path / "cache", text=SMALL_PROGRAM))

    assert cache_hits() == 0
    for suffix, kept_bytes in cuts:
        (path,) = (one for one in (tmp_path / "cache").rglob("program.doubled*") if one.suffix == suffix)
        path.write_bytes(path.read_bytes()[:kept_bytes])
        assert cache_hits() == 0, (suffix, kept_bytes)
        assert cache_hits() == 1, (suffix, kept_bytes)


def test_files_that_an_ended_process_had_begun_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = cache.kernel_folders.__wrapped__().own
    assert folder is not None
    names = ("a.nbi.tmp.0123456789abcdef", "a.nbc.tmp.0123456789abcdef", "a.nbi")
    (folder / "below").mkdir()
    for name in names:
        (folder / "below" / name).write_bytes(b"")
    for name in (names[0], names[2]):
        os.utime(folder / "below" / name, (1_000_000_000, 1_000_000_000))
    cache.kernel_folders.__wrapped__()
    # The second may still be written.
    assert {path.name for path in (folder / "below").iterdir()} == {names[1], names[2]}


def test_folders_of_other_versions_are_removed_when_unused_for_30_days(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = cache.kernel_folders.__wrapped__().own
    assert folder is not None
    now_s = time.time()
    ages_days = {
        "shoal-0123456789abcdef": 31,
        "shoal-fedcba9876543210": 29,
        "shoal-quarantine": 400,
        "shoal-00000000000000aa": 400,
        "another-program": 400,
        folder.name: 400,
    }
    for name in ages_days:
        (tmp_path / name / "module").mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "module" / "kernel.nbi").write_bytes(b"x")
    (tmp_path / "shoal-00000000000000aa" / "references.jsonl").write_bytes(b"x")
    for name, age_days in ages_days.items():
        os.utime(tmp_path / name, (now_s - age_days * 86_400, now_s - age_days * 86_400))
    cache.kernel_folders.__wrapped__()
    # Folders of the user stay, whatever their names.
    assert {path.name for path in tmp_path.iterdir()} == ages_days.keys() - {"shoal-0123456789abcdef"}
    # The use of this version is noted: another version would keep it for 30 days.
    assert folder.stat().st_mtime > now_s - 60
    assert (folder / "module" / "kernel.nbi").exists()


@pytest.mark.parametrize(
    ("owner", "mode", "used"),
    [(None, 0o755, 1), (0, 0o755, 1), (65_534, 0o755, 0), (None, 0o777, 0), (None, 0o1777, 1)],
)
def test_a_folder_in_which_another_user_may_have_put_kernels_is_not_used(
    owner: int | None, mode: int, used: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = cache.kernel_folders.__wrapped__().own
    assert folder is not None
    folder.chmod(mode)
    plain = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        found = list(plain(path, **options))
        if path == folder and owner is not None:
            found[4] = owner
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", stat)
    assert cache._candidates() == [folder] * used


def test_errors_of_reading_a_cache_are_tolerated_when_it_is_read_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_faults", [])

    class CacheOfKernel:
        def _guard_against_spurious_io_errors(self) -> AbstractContextManager[None]:
            raise NotImplementedError

        def load_overload(self, error: Exception) -> None:
            with self._guard_against_spurious_io_errors():
                raise error

        def save_overload(self, error: Exception) -> None:
            with self._guard_against_spurious_io_errors():
                raise error

        def flush(self) -> None:
            raise PermissionError

    cache_of_kernel = CacheOfKernel()
    compiler._tolerate_cache_errors(cache_of_kernel)
    for error in (OSError(), EOFError(), ValueError(), AttributeError()):
        cache_of_kernel.load_overload(error)
    cache_of_kernel.save_overload(OSError())
    assert cache.cache_fault() == ""
    cache_of_kernel.save_overload(OSError(errno.ENOSPC, "", "any"))
    assert cache.cache_fault().startswith("No space left on device in ")
    assert cache.cache_fault().endswith(": free space there, or set NUMBA_CACHE_DIR to another folder")
    for error in (ValueError(), AttributeError(), EOFError()):
        with pytest.raises(type(error)):
            cache_of_kernel.save_overload(error)
    with pytest.raises(TypeError):
        cache_of_kernel.load_overload(TypeError())


def test_the_name_of_the_folder_depends_on_every_module_with_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache, "_SHOAL", tmp_path)
    texts = {"arrays.py": "LARGEST = 1\n", "streams/nearest.py": "\n", "kernels/containers.py": "\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    first = cache.kernel_folders.__wrapped__().own
    assert first is not None
    assert first.parent == tmp_path / "kernels" / "__pycache__"
    assert cache.kernel_folders.__wrapped__().own == first
    for name, text in texts.items():
        (tmp_path / name).write_text(text + "# changed\n")
        assert cache.kernel_folders.__wrapped__().own != first, name
        (tmp_path / name).write_text(text)
    assert cache.kernel_folders.__wrapped__().own == first


@pytest.mark.own_interpreter
def test_a_kernel_is_compiled_again_when_a_constant_of_another_module_changes(tmp_path: Path) -> None:
    # numba alone compares the file of the kernel only, and the constant is in another file.
    package = Path(jit.__file__).parents[1]
    shutil.copytree(package, tmp_path / "shoal", ignore=shutil.ignore_patterns("__pycache__"))
    arrays = tmp_path / "shoal" / "arrays.py"
    original = arrays.read_text()
    variables = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "0",
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(tmp_path),
    }
    printed = []
    for text in (original, original.replace("LARGEST = 1e150", "LARGEST = 10.0"), original):
        arrays.write_text(text)
        command = [sys.executable, "-c", LIMIT_PROGRAM]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.split())
    # Rows of the table (none where a coordinate exceeds the constant), and kernels read from the cache.
    assert printed == [["2", "0"], ["0", "0"], ["2", "1"]]


def test_the_cache_folder_of_the_user_is_the_second_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "arrays.py").write_text("")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__pycache__").write_text("not a folder")
    monkeypatch.setattr(cache, "_SHOAL", tmp_path)
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache.kernel_folders.__wrapped__().own is None, "a user without a home"
    for name, folder in (("HOME", tmp_path / "home" / ".cache"), ("XDG_CACHE_HOME", tmp_path / "user")):
        monkeypatch.setenv(name, str(tmp_path / "home" if name == "HOME" else folder))
        own = cache.kernel_folders.__wrapped__().own
        assert own is not None
        assert own.parent == folder / "numba"


def test_an_interrupt_reaches_the_caller_of_the_compiler_which_goes_on() -> None:
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def compile_kernel(_: object) -> None:
        began.set()
        may_end.wait(60)
        ended.set()

    def interrupt() -> None:
        began.wait(60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        compiler._run_interruptibly(compile_kernel, ())
    may_end.set()
    assert ended.wait(60)


def test_the_result_and_the_error_of_the_compiler_reach_the_caller() -> None:
    assert compiler._run_interruptibly(lambda signature: signature, (1, 2)) == (1, 2)
    with pytest.raises(ZeroDivisionError):
        compiler._run_interruptibly(lambda signature: 1 / signature, 0)
