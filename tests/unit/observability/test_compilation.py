"""The line on compilation, and the time that it takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from shoal.observability import CompilationNotice, compilation, stream_compile_s
from shoal.policy import Policy
from support.commands import run_command

pytestmark = pytest.mark.unit


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, **facts: object) -> None:
        self.lines.append(" ".join([text, *(f"{name}={value}" for name, value in facts.items())]))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What the compiler calls when it begins and ends; its clock shows 0, 7, 7, 9."""
    hooks: list[Callable[[], None]] = []

    @contextmanager
    def on_compilation(*given: Callable[[], None]) -> Iterator[None]:
        hooks.extend(given)
        yield

    times = iter((0.0, 7.0, 7.0, 9.0))
    monkeypatch.setattr(compilation, "on_compilation", on_compilation)
    monkeypatch.setattr(compilation, "time", SimpleNamespace(monotonic=lambda: next(times)))
    return hooks


def test_compilation_is_announced_once_and_its_time_is_added_up(compiler: list[Callable[[], None]]) -> None:
    log, announced = Log(), list[str]()
    with CompilationNotice(cast("Any", log), 35, announced.append) as notice:
        began, ended = compiler
        for _ in range(2):
            began()
            ended()
        assert announced == ["compiling kernels, once: about 35 s"]
    assert log.lines == ["compiling kernels, once: about 35 s"]
    assert announced == ["compiling kernels, once: about 35 s", ""]
    assert notice.seconds == 9.0


def test_a_long_compilation_is_logged_again_and_again(
    compiler: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(compilation, "REMINDER_S", 0.01)
    times = chain((0.0,), repeat(21.0))
    monkeypatch.setattr(compilation, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with CompilationNotice(cast("Any", log), 35):
        began, ended = compiler
        began()
        limit_s = time.monotonic() + 60
        while len(log.lines) < 3 and time.monotonic() < limit_s:
            time.sleep(0.01)
        ended()
    assert log.lines[:3] == ["compiling kernels, once: about 35 s", *["still compiling kernels seconds=21"] * 2]


def test_nothing_is_logged_if_the_cache_has_all_kernels(compiler: list[Callable[[], None]]) -> None:
    log = Log()
    with CompilationNotice(cast("Any", log), 35) as notice:
        assert len(compiler) == 2
    assert (log.lines, notice.seconds) == ([], 0.0)


def policy_file(folder: Path, rule: str, k: int, **more: Any) -> Path:
    path = folder / "policy.json"
    content = {
        "attributes": {"age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True}, **more},
        "subject": "every_record",
        "privacy": {"k": k},
        "stream": {"delta": 60, "rule": rule},
    }
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("rule", "k", "about_s"),
    [("nearest", 5, 10), ("auto", 5, 30), ("auto", 7, 35), ("greedy", 7, 30), ("block", 7, 35)],
)
def test_the_time_to_announce_depends_on_the_rule_and_on_protected_values(
    rule: str, k: int, about_s: int, tmp_path: Path
) -> None:
    path = policy_file(tmp_path, rule, k, more={"role": "confidential"})
    assert stream_compile_s(Policy.load(path)) == about_s
    document = json.loads(path.read_text())
    document["privacy"]["l"] = 2
    path.write_text(json.dumps(document))
    assert stream_compile_s(Policy.load(path)) == 50


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
