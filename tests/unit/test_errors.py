"""Errors and log lines reveal no attribute value: rules for the source, and what is printed of an exception."""

from __future__ import annotations

import ast
import asyncio
import errno
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shoal
from shoal import StreamAggregator
from shoal.errors import InputError, ParameterError, ShoalError
from shoal.observability import (
    install_exception_hooks,
    install_loop_exception_handler,
    logger,
    set_up_logs,
)
from support.house import tree
from support.kafka_broker import wait_until

pytestmark = pytest.mark.unit

SOURCE = Path(shoal.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
CANARY = "xq7canary9z"

SAFE_ATTRIBUTES = {
    "errno",
    "lineno",
    "strerror",
    "filename",
    "code",
    "exit_code",
    "retriable",
    "__traceback__",
    "__cause__",
}
"""Attributes of an exception from outside Shoal that hold no text made of a value."""
SAFE_CALLS = {
    *("error_code", "raise_location", "broker_error", "to_shoal_error", "unfit_setting", "isinstance", "type"),
    "is_out_of_descriptors",  # it reads errno
}
SAFE_CALLS_WITH_SHOAL_ERRORS = {"str", "stop_app", "_refused_offset"}
EXCEPTIONS = {
    ("frames/__init__.py", "ModuleNotFoundError"): "only the name of the module is read",
    ("kernels/compiler.py", "BaseException"): "it is raised again as it is, in the main thread",
    ("policy/document.py", "YAMLError"): "only the line of the mark is read",
    ("policy/schema.py", "ValidationError"): "only its details without inputs and contexts are read",
}


@cache
def shoal_error_names() -> set[str]:
    """Names of all classes of the package that descend from `ShoalError`."""
    nodes = [node for path in MODULES for node in ast.walk(tree(path))]
    bases = {node.name: {ast.unparse(base) for base in node.bases} for node in nodes if isinstance(node, ast.ClassDef)}
    found = {"ShoalError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def is_safe_use(use: ast.Name, above: dict[ast.AST, ast.AST], *, is_shoal_error: bool) -> bool:
    """Return whether this use of a caught exception reveals nothing of its text."""
    parent = above[use]
    if isinstance(parent, ast.Raise):
        return parent.exc is use and parent.cause is None
    if isinstance(parent, ast.Attribute):
        return is_shoal_error or parent.attr in SAFE_ATTRIBUTES
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id in SAFE_CALLS or (is_shoal_error and parent.func.id in SAFE_CALLS_WITH_SHOAL_ERRORS)
    if isinstance(parent, ast.BoolOp):
        call = above[parent]
        return isinstance(call, ast.Call) and ast.unparse(call.func) in SAFE_CALLS
    return is_shoal_error and not isinstance(parent, ast.FormattedValue)


def unsafe_uses(path: Path) -> Iterator[str]:
    handlers = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ExceptHandler) and node.name]
    above = parents(tree(path)) if handlers else {}
    for handler in handlers:
        caught = ast.unparse(handler.type).rpartition(".")[2] if handler.type else ""
        if (name_of(path), caught) in EXCEPTIONS:
            continue
        for use in ast.walk(handler):
            if not isinstance(use, ast.Name) or use.id != handler.name:
                continue
            if not is_safe_use(use, above, is_shoal_error=caught in shoal_error_names()):
                yield f"{name_of(path)}:{use.lineno}: {caught} is used as {ast.unparse(above[use])}"


def chained_or_logged(path: Path) -> Iterator[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    nodes = list(ast.walk(tree(path)))
    for node in nodes:
        if isinstance(node, ast.Raise) and node.cause is not None and ast.unparse(node.cause) != "None":
            yield f"{name_of(path)}:{node.lineno}: chained"
        if (isinstance(node, ast.keyword) and node.arg in {"exc_info", "stack_info"}) or (
            isinstance(node, ast.Attribute) and node.attr in {"print_exc", "format_exc", "format_exception"}
        ):
            yield f"{name_of(path)}:{node.lineno}: a traceback is logged"
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler)]
    for node in (node for handler in handlers for node in ast.walk(handler)):
        if isinstance(node, ast.Raise) and node.exc and not node.cause and "raise final" not in lines[node.lineno - 1]:
            yield f"{name_of(path)}:{node.lineno}: raised without 'from None'"


def test_the_text_of_a_caught_exception_is_never_used() -> None:
    assert [use for path in MODULES for use in unsafe_uses(path)] == []
    for name, caught in EXCEPTIONS:
        assert f"except {caught} as" in (SOURCE / name).read_text(), "an exemption that nothing needs"


def test_no_error_is_chained_and_no_traceback_is_logged() -> None:
    assert [fault for path in MODULES for fault in chained_or_logged(path)] == []


# ---------------------------------------------------------------- errors of Shoal


def test_a_shoal_error_has_no_context() -> None:
    def convert(text: str) -> None:
        try:
            float(text)
        except ValueError:
            raise InputError("line 3: no number; correct it")  # noqa: B904 - the rule is about this mistake

    with pytest.raises(InputError) as caught:
        convert(CANARY)
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    assert CANARY not in "".join(traceback.format_exception(error))
    assert CANARY not in repr(error) + str(vars(error)) + str(error.args)


WRONG_TYPES: list[Any] = ["x", None, [1], {}, float("nan"), b"x", object(), np.array([1, 2]), 10**400, 1j, len]


@pytest.mark.parametrize("name", ["k", "delta", "rule", "position", "weights", "max_share"])
def test_a_parameter_of_the_wrong_type_is_refused_by_name(name: str) -> None:
    for wrong in WRONG_TYPES:
        if name == "weights" and (wrong is None or isinstance(wrong, list | np.ndarray)):
            continue  # None is valid, and a list can be
        with pytest.raises(ParameterError, match=rf"\b{name}\b"):
            StreamAggregator(**{"k": 2, "delta": 5, name: wrong})


# ---------------------------------------------------------------- uncaught exceptions


@pytest.fixture
def restored_hooks(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    quiet = {name: logging.getLogger(name).level for name in ("aiokafka", "aiohttp", "asyncio", "numba", "kafka")}
    yield capsys
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    root.handlers = handlers
    root.setLevel(level)
    for name, before in quiet.items():
        logging.getLogger(name).setLevel(before)


def install_hooks() -> None:
    """Called by the test itself, because its standard error is not that of the fixture."""
    set_up_logs("json")
    install_exception_hooks()


def fail() -> None:
    raise ValueError(CANARY)


def logged_lines(restored_hooks: pytest.CaptureFixture[str], count: int = 1) -> list[dict[str, Any]]:
    out, err = restored_hooks.readouterr()
    assert CANARY not in out + err
    lines = [json.loads(line) for line in err.splitlines()]
    assert len(lines) == count
    return lines


def fail_in_a_thread() -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def fail_in_the_process() -> None:
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)


def fail_in_a_destructor() -> None:
    class Failing:
        def __del__(self) -> None:
            fail()

    Failing()
    gc.collect()


@pytest.mark.parametrize("fail_somewhere", [fail_in_a_thread, fail_in_the_process, fail_in_a_destructor])
def test_an_uncaught_exception_is_logged_by_location_without_its_text(
    restored_hooks: pytest.CaptureFixture[str], fail_somewhere: Callable[[], None]
) -> None:
    install_hooks()
    fail_somewhere()
    (line,) = logged_lines(restored_hooks)
    assert (line["event"], line["code"]) == ("unexpected", "ValueError")
    assert line["location"].startswith("ValueError at test_errors.py:")


@pytest.mark.parametrize(
    ("template", "arguments", "expected"),
    [
        ('Unable connect to "%s:%s": %s', (CANARY, CANARY, CANARY), "Unable connect to"),
        ("group %s: coordinator (node %s) is dead", (CANARY, CANARY), "group: coordinator (node) is dead"),
        ("Sending to node %s [%s] -- marking %5.2f%%", (CANARY, CANARY, 1.5), "Sending to node -- marking %%"),
        ("failed due to group error (%s), will rejoin", (CANARY,), "failed due to group error, will rejoin"),
        ("%s: %r", (CANARY, CANARY), "message"),
        ('Unable connect to "%s:%s": %s', (CANARY, 9092, OSError(CANARY)), 'Unable connect to "9092": OSError'),
        ("Error fetching metadata for topic %s: %s", (CANARY, OSError), "Error fetching metadata for topic: OSError"),
        ("100 %% of %s at node %s [%s]", (CANARY, 3, 4), "100 %% of at node 3 [4]"),
        ("width %*d", (5, 7), "width"),
        ("node %(node)s", ({"node": 1},), "node"),
    ],
    ids=range(10),
)
def test_a_line_of_a_client_library_keeps_numbers_and_classes_of_exceptions_alone(
    restored_hooks: pytest.CaptureFixture[str], template: str, arguments: tuple[object, ...], expected: str
) -> None:
    install_hooks()
    logging.getLogger("aiokafka.test").warning(template, *arguments)
    (line,) = logged_lines(restored_hooks)
    assert (line["event"], line["logger"], line["client"]) == (expected, "aiokafka.test", "aiokafka.test")


def test_a_line_names_its_logger_and_a_rebalance_is_no_warning(restored_hooks: pytest.CaptureFixture[str]) -> None:
    install_hooks()
    logging.getLogger("aiokafka.test").warning("Heartbeat failed for group %s because it is rebalancing", "g")
    logger("kafka").warning("consumer loop ended")
    (line,) = logged_lines(restored_hooks)
    assert (line["event"], line["logger"]) == ("consumer loop ended", "shoal.kafka")


async def test_an_exception_that_no_task_retrieves_is_logged_by_location(
    restored_hooks: pytest.CaptureFixture[str],
) -> None:
    install_hooks()
    loop = asyncio.get_running_loop()
    install_loop_exception_handler(loop)
    loop.call_soon(fail)
    await asyncio.sleep(0)

    async def failing() -> None:
        fail()

    task = asyncio.create_task(failing(), name=CANARY)
    await asyncio.wait({task})
    del task
    gc.collect()
    await asyncio.sleep(0)
    lines = logged_lines(restored_hooks, 2)
    assert {line["location"].partition(":")[0] for line in lines} == {"ValueError at test_errors.py"}
    assert [line["during"] for line in lines] == ["Exception in callback", "Task exception was never retrieved"]
    for _ in range(2):
        loop.call_exception_handler({"message": CANARY, "exception": OSError(errno.EMFILE, CANARY)})
    (line,) = logged_lines(restored_hooks)
    assert line["event"] == "no file descriptor is left"
    assert line["remedy"].startswith("raise the limit of open files, which is ")


# ---------------------------------------------------------------- the command


COMMAND = Path(sys.executable).with_name("shoal")


WATCH_IMPORTS = """
import pathlib, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "shoal":
            pathlib.Path(__file__).with_name("loading").touch()

sys.meta_path.insert(0, Finder())
"""
"""A sitecustomize module that makes a file when the process begins to load the package."""


def start_check(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [COMMAND, "check", folder / "policy.yaml"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("after_s", [0, 0.3, 0.8])
async def test_an_interrupt_while_the_package_loads_ends_without_a_traceback(tmp_path: Path, after_s: float) -> None:
    (tmp_path / "policy.yaml").write_text("attributes: {}\n")
    (tmp_path / "sitecustomize.py").write_text(WATCH_IMPORTS)
    with start_check(tmp_path) as process:
        await wait_until((tmp_path / "loading").exists, 30, "the import of the package")
        await asyncio.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode in {-signal.SIGINT, 130, 2}  # 2: the command was faster and has reported the policy
    assert b"Traceback" not in stderr


def test_every_error_class_has_its_own_code() -> None:
    def below(kind: type[ShoalError]) -> Iterator[type[ShoalError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    codes = [kind.code for kind in below(ShoalError) if kind.__module__ == "shoal.errors"]
    assert len(set(codes)) == len(codes)
