"""The line on compilation, and the time that it takes."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from shoal.kernels import cache
from shoal.kernels.jit import is_preparing
from shoal.observability import CompilationNotice, KernelCompiler, compilation
from shoal.policy import Policy
from support.commands import run_command

pytestmark = pytest.mark.unit


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, **facts: object) -> None:
        self.lines.append(" ".join([text, *(f"{name}={value}" for name, value in facts.items())]))

    warning = info


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What the compiler calls when it begins and ends; its clock shows 0, 7, 7, 9."""
    hooks: list[Callable[[], None]] = []

    @contextmanager
    def on_compilation(*given: Callable[[], None]) -> Iterator[None]:
        hooks.extend(given)
        yield

    times = iter((0.0, 7.0, 7.0, 9.0))
    monkeypatch.setattr("shoal.kernels.compiler.on_compilation", on_compilation)
    monkeypatch.setattr(compilation, "time", SimpleNamespace(monotonic=lambda: next(times)))
    return hooks


def test_compilation_is_announced_once_and_its_time_is_added_up(compiler: list[Callable[[], None]]) -> None:
    log = Log()
    with CompilationNotice(cast("Any", log), 35) as notice:
        began, ended = compiler
        for _ in range(2):
            began()
            ended()
    assert log.lines == ["compiling kernels, once: about 35 s"]
    assert notice.seconds == 9.0


def test_compilation_that_is_not_kept_is_announced_as_such(
    compiler: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(compilation, "has_writable_cache", lambda: False)
    with CompilationNotice(cast("Any", log), 35):
        compiler[0]()
    assert log.lines == ["compiling kernels, about 35 s in each process: no cache is writable, set NUMBA_CACHE_DIR"]


def test_nothing_is_logged_if_the_cache_has_all_kernels(compiler: list[Callable[[], None]]) -> None:
    log = Log()
    with CompilationNotice(cast("Any", log), 35) as notice:
        assert len(compiler) == 2
    assert (log.lines, notice.seconds) == ([], 0.0)


def policy_file(folder: Path, rule: str, k: int, delta: int = 60, **more: Any) -> Path:
    path = folder / "policy.json"
    content = {
        "attributes": {"age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}, **more},
        "subject": "every_record",
        "privacy": {"k": k},
        "stream": {"delta": delta, "rule": rule},
    }
    path.write_text(json.dumps(content))
    return path


class Clock:
    """A processor whose time is set by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept = 0

    def process_time(self) -> float:
        return self.now_s

    def sleep(self, _: float) -> None:
        self.slept += 1

    def monotonic(self) -> float:
        return 4.0 * self.slept


class Child:
    """A compiling process whose exit code is set by the test."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.stdin = io.BytesIO()
        self.was_killed = False

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.was_killed = True

    def wait(self) -> None:
        pass


class Scene(NamedTuple):
    """A process that interprets its kernels, and the one that compiles them for it."""

    clock: Clock
    child: Child
    compiled: list[str]
    log: Log
    policy: Policy


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(Clock(), Child(), [], Log(), Policy.load(policy_file(tmp_path, "nearest", 3)))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    cache.kernel_folders.cache_clear()
    monkeypatch.setattr(compilation, "time", made.clock)
    monkeypatch.setattr(compilation, "is_final", lambda: bool(made.compiled))
    monkeypatch.setattr(compilation, "POLL_S", 0.0)
    monkeypatch.setattr(compilation, "use_compiled", lambda: made.compiled.append("process"))
    monkeypatch.setattr(compilation, "precompile", lambda policy: made.compiled.append(policy.fingerprint))
    monkeypatch.setattr(compilation, "with_compiled", nullcontext)
    monkeypatch.setattr(compilation, "_start_child", lambda _: made.child)
    yield made
    cache.kernel_folders.cache_clear()


def advance_until_loaded(compiler: KernelCompiler) -> None:
    limit_s = time.monotonic() + 60
    while not compiler._is_over and time.monotonic() < limit_s:
        compiler.advance()
    assert compiler._is_over


BESIDE = "a faster form of the kernels is being compiled beside the work"


def test_a_short_run_neither_compiles_nor_loads(scene: Scene) -> None:
    with KernelCompiler(scene.policy, cast("Any", scene.log)) as compiler:
        scene.clock.now_s = 0.99
        compiler.advance()
    assert (scene.log.lines, scene.compiled, scene.child.was_killed) == ([], [], False)


def test_a_longer_run_changes_to_what_its_child_has_compiled(scene: Scene) -> None:
    with KernelCompiler(scene.policy, cast("Any", scene.log)) as compiler:
        scene.clock.now_s = 1.0
        for _ in range(3):
            compiler.advance()
        assert (scene.log.lines, scene.compiled) == ([BESIDE], [])
        scene.child.code = 0
        advance_until_loaded(compiler)
        assert scene.compiled == [scene.policy.fingerprint, "process"]
    assert (scene.child.was_killed, scene.child.stdin.closed) == (False, True)


def test_what_was_compiled_before_is_only_loaded(scene: Scene) -> None:
    cache.mark_compiled(scene.policy.fingerprint)
    with KernelCompiler(scene.policy, cast("Any", scene.log), patience_s=0.0) as compiler:
        advance_until_loaded(compiler)
    assert (scene.log.lines, scene.compiled) == ([], [scene.policy.fingerprint, "process"])


def test_a_command_loads_early_and_at_once_what_was_compiled_before(scene: Scene) -> None:
    cache.mark_compiled(scene.policy.fingerprint)
    with KernelCompiler(scene.policy, cast("Any", scene.log)) as compiler:
        scene.clock.now_s = 0.19
        compiler.advance()
        assert scene.compiled == []
        scene.clock.now_s = 0.2
        compiler.advance()
        assert scene.compiled == [scene.policy.fingerprint, "process"]
    assert scene.log.lines == []


def test_a_run_that_ends_first_ends_its_child(scene: Scene) -> None:
    with KernelCompiler(scene.policy, cast("Any", scene.log), patience_s=0.0) as compiler:
        compiler.advance()
    assert (scene.child.was_killed, scene.child.stdin.closed) == (True, True)
    assert scene.compiled == []


def test_records_are_processed_without_the_compiler_if_it_fails(scene: Scene) -> None:
    with KernelCompiler(scene.policy, cast("Any", scene.log), patience_s=0.0) as compiler:
        compiler.advance()
        scene.child.code = -9
        advance_until_loaded(compiler)
    assert scene.log.lines[1:] == ["kernels were not compiled, and records are processed more slowly exit_code=-9"]
    assert scene.compiled == []


def test_a_full_cache_is_named_and_a_thread_compiles(scene: Scene) -> None:
    with KernelCompiler(scene.policy, cast("Any", scene.log), patience_s=0.0) as compiler:
        compiler.advance()
        scene.child.code = 74
        advance_until_loaded(compiler)
    (line,) = scene.log.lines[1:]
    assert line.startswith("the cache of kernels could not be written: each process compiles them anew, in a thread")
    assert "free space there, or set NUMBA_CACHE_DIR" in line
    assert scene.compiled == [scene.policy.fingerprint, "process"]


def test_records_are_processed_without_the_compiler_if_it_cannot_be_started(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: Policy) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(compilation, "_start_child", start)
    with KernelCompiler(scene.policy, cast("Any", scene.log), patience_s=0.0) as compiler:
        compiler.advance(1_001)
        assert not is_preparing()
    said = "kernels were not compiled, and records are processed more slowly"
    assert scene.log.lines[1:] == [f"{said} reason=Resource temporarily unavailable"]


def test_a_form_that_cannot_be_loaded_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mark_compiled(scene.policy.fingerprint)
    monkeypatch.setattr(compilation.KernelCompiler, "_run", lambda _: None)
    with KernelCompiler(scene.policy, cast("Any", scene.log), patience_s=0.0) as compiler:
        advance_until_loaded(compiler)
    assert scene.log.lines == ["kernels were not compiled, and records are processed more slowly"]


def test_a_wait_for_the_compiler_is_told_every_ten_seconds(scene: Scene) -> None:
    class SlowChild(Child):
        def poll(self) -> int | None:
            return None if scene.clock.slept < 7 else 1

    compilation_child = SlowChild()
    with KernelCompiler(scene.policy, cast("Any", scene.log)) as compiler:
        compiler._child = cast("Any", compilation_child)
        compiler.advance(1_001)
    waits = [line for line in scene.log.lines if line == "records wait for the faster form of the kernels held=1001"]
    assert len(waits) == 2


@pytest.mark.parametrize("has_cache", [True, False])
@pytest.mark.parametrize("has_memory", [True, False])
def test_without_a_cache_a_thread_compiles_and_without_memory_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, has_memory: bool, has_cache: bool
) -> None:
    monkeypatch.setattr(compilation, "has_writable_cache", lambda: has_cache)
    monkeypatch.setattr(compilation, "_has_memory", lambda: has_memory)
    scene.child.code = 0
    with KernelCompiler(scene.policy, cast("Any", scene.log), patience_s=0.0) as compiler:
        advance_until_loaded(compiler)
        assert not is_preparing()
    assert scene.compiled == ([scene.policy.fingerprint, "process"] if has_memory else [])
    (line,) = scene.log.lines
    expected = "beside the work" if has_cache else "in a thread of this process"
    assert (expected if has_memory else "memory is short") in line


def test_decisions_on_many_held_records_wait_for_the_compiler(scene: Scene) -> None:
    with KernelCompiler(scene.policy, cast("Any", scene.log)) as compiler:
        compiler.advance(1_000)
        assert (scene.log.lines, is_preparing()) == ([], False)
        scene.child.code = 0
        compiler.advance(1_001)
        assert scene.compiled == [scene.policy.fingerprint, "process"]
        assert not is_preparing()
    assert scene.clock.slept > 0


@pytest.mark.parametrize("own", ["/", "/system.slice/shoal@1.service"], ids=["container", "unit"])
def test_the_limit_of_the_container_or_unit_counts_as_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str
) -> None:
    group = tmp_path / own.strip("/")
    group.mkdir(parents=True, exist_ok=True)
    (tmp_path / "own").write_text(f"0::{own}\n")
    monkeypatch.setattr(compilation, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(compilation, "_OWN_GROUP", tmp_path / "own")
    assert compilation._has_memory(), "no limit"
    (group / "memory.current").write_text("350000000\n")
    (group / "memory.stat").write_text("anon 300000000\ninactive_file 50000000\n")
    for limit, has_memory in (("max", True), ("705000000", True), ("695000000", False)):
        (group / "memory.max").write_text(f"{limit}\n")
        assert compilation._has_memory() == has_memory


def test_a_container_that_does_not_see_its_group_by_its_name_has_the_limit_of_the_only_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own").write_text("1:name=systemd:/a\n0::/docker/0123\n")
    monkeypatch.setattr(compilation, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(compilation, "_OWN_GROUP", tmp_path / "own")
    assert compilation._control_group() == tmp_path
    monkeypatch.setattr(compilation, "_OWN_GROUP", tmp_path / "none")
    assert compilation._control_group() == tmp_path


@pytest.mark.own_interpreter
def test_a_child_compiles_into_the_cache_and_ends_with_its_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # the form does not matter here, and nothing is compiled
    cache.kernel_folders.cache_clear()
    policy = Policy.load(policy_file(tmp_path, "nearest", 3))
    child = compilation._start_child(policy)
    try:
        assert child.wait(60) == 0
        assert cache.was_compiled(policy.fingerprint)
        other = compilation._start_child(Policy.load(policy_file(tmp_path, "block", 4_000, 8_000)))
        assert other.stdin is not None
        time.sleep(0.5)
        other.stdin.close()
        assert other.wait(60) == 1
    finally:
        child.kill()
        compilation._close_input(child)
        cache.kernel_folders.cache_clear()


def test_kernels_of_a_policy_are_compiled_by_one_process_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "kernel_folders", lambda: cache.Folders(tmp_path, None))
    began = threading.Event()

    def compile_second() -> None:
        with cache.compiling_alone("policy"):
            began.set()

    second = threading.Thread(target=compile_second)
    with cache.compiling_alone("policy"), cache.compiling_alone("another policy"):
        second.start()
        assert not began.wait(0.2)
    assert began.wait(10)
    second.join()


@pytest.mark.usefixtures("scene")
def test_a_marker_holds_for_this_processor_and_these_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not cache.was_compiled("a")
    cache.mark_compiled("a")
    assert (cache.was_compiled("a"), cache.was_compiled("b")) == (True, False)
    monkeypatch.setattr(cache, "_platform", lambda: "another")
    assert not cache.was_compiled("a")
    cache.mark_compiled(cache.EVERYTHING)
    assert cache.was_compiled("b")


@pytest.mark.parametrize("chosen", ["", "generic"])
def test_a_marker_of_code_for_every_processor_holds_on_each(
    chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "_PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setenv("NUMBA_CPU_NAME", chosen)
    found = set()
    for name in ("old", "new"):
        (tmp_path / "cpuinfo").write_text(f"model name : {name}\n")
        found.add(cache._platform.__wrapped__())
    assert len(found) == (1 if chosen else 2)


@pytest.mark.parametrize(("has_stream", "what"), [(True, "rule nearest"), (False, "tables")])
def test_warm_says_when_the_kernels_of_a_policy_are_ready(tmp_path: Path, *, has_stream: bool, what: str) -> None:
    path = policy_file(tmp_path, "nearest", 3)
    if not has_stream:
        path.write_text(
            json.dumps({name: part for name, part in json.loads(path.read_text()).items() if name != "stream"})
        )
    done = run_command("warm", str(path), "--log", "json")
    assert (done.returncode, done.stdout) == (0, b"")
    assert json.loads(done.stderr.splitlines()[-1])["kernels_of"] == what


def test_warm_without_a_policy_names_every_rule_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("shoal.cli.warm.precompile", lambda policy: compiled.append(policy.stream.rule))
    monkeypatch.setattr("shoal.cli.warm.precompile_table", lambda policy: compiled.append(f"k={policy.k}"))
    done = run_command("warm", "--log", "json")
    assert done.returncode == 0
    assert compiled == [*["nearest"] * 4, *["greedy"] * 4, *["awo"] * 4, *["block"] * 4, "k=5"]
    told = [json.loads(line)["kernels_of"] for line in done.stderr.splitlines()]
    assert told == ["rule nearest", "rule greedy", "rule awo", "rule block", "tables"]


@pytest.mark.parametrize(
    ("ill", "more"),
    [
        ({}, {"privacy": {"k": 3, "t": 0.4, "min_population": 210, "per_subject": {"max": 1, "window": 9}}}),
        ({"protect": False}, {"privacy": {"k": 2, "max_share": 0.5}, "steering": {"dependence": 0.5}}),
        ({"scale": "ordinal", "order": ["a", "b"]}, {"privacy": {"k": 5, "l": 3, "t": 0.01}}),
        ({"reference": "shares.csv"}, {"privacy": {"k": 5, "t": 0.05}}),
        ({}, {"privacy": {"k": 5, "l": {"recursive": [2, 3]}, "max_value_share": 0.3}}),
    ],
)
def test_kernels_of_tables_are_compiled_whatever_the_policy(
    ill: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    """Artificial records need not have the values of a reference or an order."""
    (tmp_path / "shares.csv").write_text("value,share\nA,0.9\nB,0.1\n")
    attributes = {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "integer": True},
        "pay": {"role": "quasi_identifier", "bounds": [-5, 1000], "resolution": 10},
        "ill": {"role": "confidential", "type": "string", "protect": True, **ill},
        "cost": {"role": "confidential", "type": "number"},
        "smokes": {"role": "other", "type": "boolean", "publish_unchanged": True},
    }
    (tmp_path / "p.json").write_text(json.dumps({"attributes": attributes} | more))
    done = run_command("warm", str(tmp_path / "p.json"))
    assert done.returncode == 0, done.stderr


def test_warm_refuses_to_compile_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cli.warm.has_cache", lambda: False)
    refused = run_command("warm", str(policy_file(tmp_path, "nearest", 3)))
    assert refused.returncode == 2
    assert b"NUMBA_CACHE_DIR" in refused.stderr
