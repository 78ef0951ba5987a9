"""What every test lives in: hypothesis profiles, markers by folder, the data folder, no skips in CI."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from dataclasses import asdict
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from shoal.kernels.jit import use_compiled
from support.by_night import IS_NIGHT

if TYPE_CHECKING:
    from support.attack_results import Row
    from support.running import Stage

ROOT = Path(__file__).resolve().parents[1]
MARKERS = {"properties": "property", "deploy": "deploy_tools"}
"""Markers that are not called like their folder."""

WAITING = {"integration", "faults"}
"""Markers of tests that mostly wait."""

ATTACK = "attack"
"""Under this name a report carries the result of an attack."""
reached: list[Row] = []
"""Results of attacks of this run, from all processes."""

CI = os.environ.get("CI", "").lower() in {"1", "true"}

# Kernels compile within the first example and the machine is shared: no deadlines, and no limit of the time that the
# first examples take to draw. The nightly run draws more examples.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", untimed, max_examples=25)
settings.register_profile("ci", untimed, max_examples=25, derandomize=True)
settings.register_profile("nightly", untimed, max_examples=500)
# For mutants: the same examples for each, none kept for the next, and none made smaller.
settings.register_profile(
    "mutants",
    settings.get_profile("ci"),
    max_examples=100,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if CI else "dev"))


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs this in the background has SIGINT ignored, and so would all processes that are started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Kernels are compiled, unless ``NUMBA_DISABLE_JIT=1``; several processes do not compile the same one."""
    use_compiled()
    if hasattr(config, "workerinput"):
        from support.compile_once import compile_once

        compile_once()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share something expensive run in one process."""
    from support.distribution import Distribution

    return Distribution(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, nor among what is collected by then: hardly any of it is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its folder, so that `-m integration` means the folder `integration`.

    With the profile `nightly` each property is a nightly test too: what the day draws few examples of is drawn then.
    """
    known = {line.split(":")[0] for line in config.getini("markers")}
    markers: dict[Path, list[str]] = {}
    for item in items:
        if item.path not in markers:
            folders = item.path.relative_to(ROOT).parts[1:-1] if item.path.is_relative_to(ROOT / "tests") else ()
            markers[item.path] = [name for name in (MARKERS.get(one, one) for one in folders) if name in known]
        for marker in markers[item.path]:
            item.add_marker(marker)
        if IS_NIGHT and isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker("nightly")
    if hasattr(config, "workerinput"):
        from support.distribution import mixed

        waits = [not WAITING.isdisjoint(markers[item.path]) for item in items]
        items[:] = mixed(list(compress(items, waits)), list(compress(items, (not one for one in waits))))


@pytest.fixture(autouse=True)
def _nothing_is_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a client or a process open, and not the later test during which it is collected."""
    yield
    if "bootstrap" in request.fixturenames or any(map(request.node.get_closest_marker, ("integration", "faults"))):
        gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run a test marked `untraced` without the tracer of coverage.

    The marker `no_cover` of pytest-cov 7 has no effect under pytest-xdist: a second tracer of the process goes on.
    """
    if item.get_closest_marker("untraced") is None:
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that does not run in CI is a failure: green must mean that it ran. And a report carries its attacks."""
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    results = sys.modules.get("support.attack_results")  # not imported: this process has attacked nothing
    for row in results.entered() if results and report.when == "teardown" else ():
        report.user_properties.append((ATTACK, asdict(row)))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a file that is skipped as a whole."""
    report = yield
    if CI and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect what attacks have reached, from every process that runs tests."""
    found: list[Any] = [row for name, row in report.user_properties if name == ATTACK]
    if found:
        from support.attack_results import Row

        reached.extend(Row(**row) for row in found)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Two attacks under one name are a failure, also where two processes found them."""
    if reached and not hasattr(session.config, "workerinput"):
        from support.attack_results import contradicting

        if contradicting(reached):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how far attackers came, each against its bound."""
    rows = [row for row in reached if row.success]
    if rows:
        from support.attack_results import contradicting

        terminalreporter.section("attacks")
        for row in contradicting(reached):
            terminalreporter.write_line(f"FAILED {row.attack} {row.name}: two attacks under one name", red=True)
    for row in sorted(rows, key=lambda row: (int(row.attack[1:]), row.name)):
        terminalreporter.write_line(f"{row.attack:4} {row.success:>15} <= {row.bound:17} {row.rule:8}{row.name}")


@pytest.fixture(scope="session")
def kernels() -> None:
    """Compile what workers need: after a fresh checkout that takes a minute, in which one would lose its partitions."""
    from support.forked import start_server
    from support.kernels import compile_kernels

    compile_kernels()
    start_server()


@pytest.fixture(scope="session")
def bootstrap(kernels: None) -> Iterator[str]:  # noqa: ARG001 - must be before it
    """Address of a real broker."""
    from support.kafka_broker import broker

    # What is imported by now stays: a collection after each test need not look at it.
    gc.collect()
    gc.freeze()
    with broker() as address:
        yield address


@pytest.fixture
async def stage(bootstrap: str, tmp_path: Path) -> Stage:
    """Topics, a group and a policy of a test's own."""
    from support.running import Stage

    return await Stage.create(bootstrap, tmp_path)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the published data sets."""
    from support.published_data import data_folder

    return data_folder()
