"""Errors tell no more than they may: what the source must look like, and what an error of ours leads to."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import logging
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shoal
from shoal import StreamAggregator
from shoal.clustering.stream.clusterer import StreamClusterer
from shoal.errors import InputError, ParameterError, ShoalError
from shoal.observability import (
    error_code,
    install_exception_hooks,
    install_loop_exception_handler,
    logger,
    raise_location,
    set_up_logs,
)

pytestmark = pytest.mark.unit

SOURCE = Path(shoal.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
CANARY = "xq7canary9z"

HARMLESS = {"errno", "strerror", "filename", "code", "exit_code", "retriable", "__traceback__", "__cause__"}
"""What may be asked of somebody else's exception: no text that it made of a value."""
TAKERS = {"error_code", "raise_location", "broker_error", "to_shoal_error", "isinstance", "type"}
TAKERS_OF_OURS = {"str", "stop_app"}
PROVEN = {
    ("policy/loader.py", "TOMLDecodeError"): "only the digits of a line number are taken out of the text",
    ("policy/loader.py", "YAMLError"): "only the line of the mark is asked for",
    ("policy/loader.py", "ValidationError"): "asked for its details without inputs and contexts",
    ("settings.py", "ValidationError"): "asked for its details without inputs and contexts",
}


def errors_of_ours() -> set[str]:
    """Names of all classes of the package that descend from `ShoalError`."""
    nodes = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    bases = {node.name: {ast.unparse(base) for base in node.bases} for node in nodes if isinstance(node, ast.ClassDef)}
    found = {"ShoalError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


OURS = errors_of_ours()


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def is_harmless(use: ast.Name, above: dict[ast.AST, ast.AST], *, ours: bool) -> bool:
    """Whether a caught exception is asked only what it may be asked."""
    parent = above[use]
    if isinstance(parent, ast.Raise):
        return parent.exc is use and parent.cause is None
    if isinstance(parent, ast.Attribute):
        return ours or parent.attr in HARMLESS
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id in TAKERS or (ours and parent.func.id in TAKERS_OF_OURS)
    return ours and not isinstance(parent, ast.FormattedValue)


def loose_uses(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    above = parents(tree)
    for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name):
        caught = ast.unparse(handler.type).rpartition(".")[2] if handler.type else ""
        if (name_of(path), caught) in PROVEN:
            continue
        for use in ast.walk(handler):
            if not isinstance(use, ast.Name) or use.id != handler.name:
                continue
            if not is_harmless(use, above, ours=caught in OURS):
                yield f"{name_of(path)}:{use.lineno}: {caught} is used as {ast.unparse(above[use])}"


def chained_or_logged(path: Path) -> Iterator[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    tree = ast.parse("\n".join(lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.cause is not None and ast.unparse(node.cause) != "None":
            yield f"{name_of(path)}:{node.lineno}: chained"
        if (isinstance(node, ast.keyword) and node.arg in {"exc_info", "stack_info"}) or (
            isinstance(node, ast.Attribute) and node.attr in {"print_exc", "format_exc", "format_exception"}
        ):
            yield f"{name_of(path)}:{node.lineno}: a traceback is logged"
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    for node in (node for handler in handlers for node in ast.walk(handler)):
        if isinstance(node, ast.Raise) and node.exc and not node.cause and "raise final" not in lines[node.lineno - 1]:
            yield f"{name_of(path)}:{node.lineno}: raised without 'from None'"


def test_a_caught_exception_is_never_quoted() -> None:
    assert [use for path in MODULES for use in loose_uses(path)] == []


def test_no_error_is_chained_and_no_traceback_is_logged() -> None:
    assert [fault for path in MODULES for fault in chained_or_logged(path)] == []


def test_every_exception_that_may_be_asked_for_more_is_still_there() -> None:
    for name, caught in PROVEN:
        assert f"except {caught} as" in (SOURCE / name).read_text().replace("tomllib.", "")


# ---------------------------------------------------------------- errors of ours


def test_an_error_of_ours_leads_to_nothing_that_it_came_from() -> None:
    def convert(text: str) -> None:
        try:
            float(text)
        except ValueError:
            raise InputError("line 3: no number; mend it")  # noqa: B904 - as if somebody had forgotten it

    with pytest.raises(InputError) as caught:
        convert(CANARY)
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    assert CANARY not in "".join(traceback.format_exception(error))
    assert CANARY not in repr(error) + str(vars(error)) + str(error.args)


def test_a_file_of_the_interpreter_prints_no_context_either(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from shoal.errors import InputError\n"
        "def convert(text):\n    try:\n        float(text)\n"
        "    except ValueError:\n        raise InputError('line 3')\n"
        "import sys\nconvert(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, script, CANARY], capture_output=True, check=False)
    assert b"line 3" in done.stderr
    assert CANARY.encode() not in done.stderr


WRONG_KINDS: list[Any] = ["x", None, [1], {}, float("nan"), b"x", object(), np.array([1, 2]), 10**400, 1j, len]


@pytest.mark.parametrize("name", ["k", "delta", "rule", "position", "weights", "max_share"])
def test_a_parameter_of_the_wrong_kind_is_named(name: str) -> None:
    for wrong in WRONG_KINDS:
        if name == "weights" and (wrong is None or isinstance(wrong, list | np.ndarray)):
            continue  # none, and one or two good ones
        with pytest.raises(ParameterError, match=rf"\b{name}\b"):
            StreamAggregator(**{"k": 2, "delta": 5, name: wrong})


@pytest.mark.parametrize("wrong", WRONG_KINDS, ids=lambda wrong: type(wrong).__name__)
def test_a_reach_or_a_dimension_of_the_wrong_kind_is_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError):
        StreamClusterer(2, 5, 1, reach=wrong) if not isinstance(wrong, list) else StreamClusterer(2, 5, wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what nobody catches


@pytest.fixture
def guarded(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
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


def listen() -> None:
    """From the test itself: its standard error is not that of the fixture."""
    set_up_logs("json")
    install_exception_hooks()


def fail() -> None:
    raise ValueError(CANARY)


def told(guarded: pytest.CaptureFixture[str], count: int = 1) -> list[dict[str, Any]]:
    out, err = guarded.readouterr()
    assert CANARY not in out + err
    lines = [json.loads(line) for line in err.splitlines()]
    assert len(lines) == count
    return lines


def test_what_ends_a_thread_is_told_by_its_place(guarded: pytest.CaptureFixture[str]) -> None:
    listen()
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    (line,) = told(guarded)
    assert line["code"] == "ValueError"
    assert line["location"].startswith("ValueError at test_error_border.py:")


@pytest.mark.parametrize(
    ("template", "told_as"),
    [
        ('Unable connect to "%s:%s": %s', "Unable connect to"),
        (
            "Heartbeat failed for group %s: coordinator (node %s) is dead",
            "Heartbeat failed for group: coordinator (node) is dead",
        ),
        ("Heartbeat send request failed: %s. Will retry.", "Heartbeat send request failed. Will retry."),
        ("Error sending %s to node %s [%s] -- marking %5.2f%%", "Error sending to node -- marking %%"),
        (
            "OffsetCommit failed due to group error (%s), will rejoin",
            "OffsetCommit failed due to group error, will rejoin",
        ),
        ("%s: %r", "message"),
    ],
)
def test_a_line_of_a_client_has_neither_its_arguments_nor_their_placeholders(
    guarded: pytest.CaptureFixture[str], template: str, told_as: str
) -> None:
    listen()
    arguments = tuple(1.5 if "." in kind else CANARY for kind in re.findall(r"%[\d.]*[srf]", template))
    logging.getLogger("aiokafka.test").warning(template, *arguments)
    (line,) = told(guarded)
    assert (line["event"], line["logger"], line["client"]) == (told_as, "aiokafka.test", "aiokafka.test")


def test_a_line_names_its_logger(guarded: pytest.CaptureFixture[str]) -> None:
    listen()
    logger("kafka").warning("session ended")
    (line,) = told(guarded)
    assert (line["event"], line["logger"]) == ("session ended", "shoal.kafka")


def test_what_ends_the_process_is_told_by_its_place(guarded: pytest.CaptureFixture[str]) -> None:
    listen()
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    assert told(guarded)[0]["event"] == "unexpected"


def test_what_a_destructor_raises_is_told_by_its_place(guarded: pytest.CaptureFixture[str]) -> None:
    listen()

    class Doomed:
        def __del__(self) -> None:
            fail()

    Doomed()
    gc.collect()
    assert told(guarded)[0]["event"] == "unexpected"


async def test_what_a_loop_loses_is_told_by_its_place(guarded: pytest.CaptureFixture[str]) -> None:
    listen()
    loop = asyncio.get_running_loop()
    install_loop_exception_handler(loop)
    loop.call_soon(fail)
    await asyncio.sleep(0)

    async def lost() -> None:
        fail()

    task = asyncio.create_task(lost(), name=CANARY)
    await asyncio.wait({task})
    del task
    gc.collect()
    await asyncio.sleep(0)
    assert {line["location"].partition(":")[0] for line in told(guarded, 2)} == {"ValueError at test_error_border.py"}


def test_an_exception_s_name_and_place_hold_nothing_of_it() -> None:
    assert error_code(InputError(CANARY)) == "input"
    assert raise_location(ValueError(CANARY)) == "ValueError"


def test_all_errors_have_a_code_of_their_own() -> None:
    def below(kind: type[ShoalError]) -> Iterator[type[ShoalError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    codes = [kind.code for kind in below(ShoalError) if kind.__module__ == "shoal.errors"]
    assert len(set(codes)) == len(codes)


# ---------------------------------------------------------------- the command


COMMAND = Path(sys.executable).with_name("shoal")


def test_a_complaint_is_json_where_the_log_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [COMMAND, "check", tmp_path / "absent.yaml", "--log", "json"], capture_output=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    complaint = json.loads(line)
    assert (complaint["level"], complaint["code"], complaint["event"]) == ("error", "input", "stopped")
    assert complaint["reason"].endswith("absent.yaml: cannot be read: No such file or directory")


@pytest.mark.parametrize("after_s", [0.1, 0.25, 0.4, 0.6, 0.9])
def test_an_early_interrupt_ends_without_a_traceback(tmp_path: Path, after_s: float) -> None:
    (tmp_path / "policy.yaml").write_text("attributes: {}\n")
    with subprocess.Popen(
        [COMMAND, "check", tmp_path / "policy.yaml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode in {-signal.SIGINT, 130, 2}  # 2: it was faster, and had said what is wrong
    assert b"Traceback" not in said
