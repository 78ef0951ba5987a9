"""Break the code in the ways of mutants.toml, one at a time, and see whether a test fails.

Usage: ``python tests/mutants/run.py [ID | GROUP ...]`` with the Python of the virtual environment. Each mutant is
applied to a copy of the tree under build/, in which its tests run, the nearest first, then those of its group. Results
go to build/mutants.json as they come, and as a table to build/mutants.md. The exit code is 0 if exactly those mutants
survive that the list expects to.

A mutant is *killed* by a test that fails. An error outside of a test, or no end within `CPU_S`, is reported as such.
Recorded outputs (`RECORDED`) are not in the copy: they show that an output changed, not that it is wrong.

Why not mutmut or cosmic-ray: neither takes mutants that were chosen by hand, nor tests for each. mutmut puts the
mutants of a function behind a dispatcher in the module, which is no kernel any more; cosmic-ray changes the working
tree itself. Here the tests run on a plain copy, and without compilation, so that a changed kernel is what is executed.
The list is short, so that it can be judged by eye and carried along when the code moves.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
COPY = ROOT / "build" / "mutants"
RESULTS, TABLE = ROOT / "build" / "mutants.json", ROOT / "build" / "mutants.md"
COPIED = ("service", "tests", "benchmarks", "deploy", "docs", "pyproject.toml")
RECORDED = ("golden", "privacy.md")
"""Names that are not copied: the golden record of outputs, and the page of measured attacks (docs/reports)."""
CPU_S, WALL_S = 300, 1500
"""Limits of one run of pytest: processor time, and elapsed time, which depends on what else the machine does."""
SELECTED_TESTS = "not compiled_and_plain"
"""Leaves out tests that compile kernels themselves: a changed kernel takes minutes there."""
SEEDED = HAND_MADE = 4
"""Number in each of the first groups."""
SEEDED_GROUPS = 6
"""The groups after these have mutants that were chosen by hand only."""

Mutant = dict[str, Any]


def faults_of(mutants: list[Mutant], groups: dict[str, list[str]]) -> list[str]:
    """Say what is wrong with the list."""
    faults = []
    for one in mutants:
        path = ROOT / "service" / "shoal" / one["file"]
        found = path.read_text(encoding="utf-8").count(one["before"]) if path.is_file() else 0
        if found != 1:
            faults.append(f"{one['id']}: its snippet occurs {found} times in {one['file']}")
        if one["after"] == one["before"]:
            faults.append(f"{one['id']}: changes nothing")
        tests = [*one["tests"], *groups.get(one["group"], [])]
        faults += [f"{one['id']}: no {test}" for test in tests if not (ROOT / test.split("::")[0]).exists()]
    if len({one["id"] for one in mutants}) < len(mutants):
        faults.append("an id occurs twice")
    for group in list(groups)[:SEEDED_GROUPS]:
        origins = [one["origin"] for one in mutants if one["group"] == group]
        if (origins.count("seed"), origins.count("hand")) != (SEEDED, HAND_MADE):
            faults.append(f"{group}: not {SEEDED} mutants by the seed and {HAND_MADE} by hand")
    return faults


def make_copy() -> None:
    """Copy the tree into a folder of its own, without the recorded outputs."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "mutants", *RECORDED)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, COPY / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, COPY / name)


def run_tests(tests: list[str], limit_s: int = CPU_S) -> tuple[int | None, str]:
    """Run tests in the copy; return the exit code of pytest (None: no end) and what it printed."""
    environment = os.environ | {
        "PYTHONPATH": str(COPY / "service"),
        "NUMBA_DISABLE_JIT": "1",
        "HYPOTHESIS_PROFILE": "mutants",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "not nightly", "-k", SELECTED_TESTS]
    command += ["-p", "no:randomly", "-p", "no:cacheprovider", "--tb=no", *tests]
    process = subprocess.Popen(
        command,
        cwd=COPY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5)),  # noqa: PLW1509 - no threads
    )
    try:
        printed, _ = process.communicate(timeout=WALL_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return None if process.returncode in {-signal.SIGXCPU, -signal.SIGKILL} else process.returncode, printed


def judge(one: Mutant, broad: list[str]) -> Mutant:
    """Apply a mutant, run its tests stage by stage until one fails, and restore the copy."""
    original = ROOT / "service" / "shoal" / one["file"]
    mutated = COPY / "service" / "shoal" / one["file"]
    begun = time.monotonic()
    mutated.write_text(original.read_text(encoding="utf-8").replace(one["before"], one["after"]), encoding="utf-8")
    status, by = "survived", ""
    try:
        for tests in (one["tests"], [test for test in broad if test not in one["tests"]]):
            code, printed = run_tests(tests) if tests else (0, "")
            if code == 0:
                continue
            failed = re.search(r"^FAILED (\S+?)(?:\[.*)?(?: - .*)?$", printed, re.MULTILINE)
            broken = re.search(r"^ERROR (\S+)", printed, re.MULTILINE)
            by = failed.group(1) if failed else broken.group(1) if broken else " ".join(tests)
            status = "timeout" if code is None else "killed" if code == 1 and failed else "error"
            break
    finally:
        shutil.copy2(original, mutated)  # with its time, by which Python knows that what it compiled is stale
    seconds = round(time.monotonic() - begun, 1)
    return {
        "id": one["id"],
        "group": one["group"],
        "origin": one["origin"],
        "status": status,
        "by": by,
        "seconds": seconds,
    }


def table(mutants: list[Mutant], results: dict[str, Mutant]) -> str:
    rows = ["| id | what is wrong | found by |", "| --- | --- | --- |"]
    for one in mutants:
        if found := results.get(one["id"]):
            how = "" if found["status"] == "killed" else f"**{found['status']}** "
            rows.append(f"| {one['id']} | {one['reason']} | {how}{found['by'].replace('tests/', '', 1)} |")
    return "\n".join(rows) + "\n"


def main(chosen: set[str]) -> int:
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    groups, mutants = listed["groups"], listed["mutants"]
    if faults := faults_of(mutants, groups):
        print(*faults, sep="\n")
        return 2
    mutants = [one for one in mutants if not chosen or chosen & {one["id"], one["group"]}]
    make_copy()
    results = {} if not chosen or not RESULTS.is_file() else {one["id"]: one for one in json.loads(RESULTS.read_text())}
    for one in mutants:
        results[one["id"]] = judge(one, groups[one["group"]])
        RESULTS.write_text(json.dumps(list(results.values()), indent=1) + "\n", encoding="utf-8")
        print("{id:14} {status:9} {seconds:6} s  {by}".format(**results[one["id"]]), flush=True)
    killers = {results[one["id"]]["by"] for one in mutants if results[one["id"]]["status"] == "killed"}
    if killers and run_tests(sorted(killers), 5 * CPU_S)[0] != 0:
        print("a test that failed fails without a mutant, too: the results say nothing")
        return 2
    shutil.rmtree(COPY)
    TABLE.write_text(table(listed["mutants"], results), encoding="utf-8")
    survivors = {one["id"] for one in mutants if results[one["id"]]["status"] == "survived"}
    expected = {one["id"]: one["expected_survivor"] for one in mutants if "expected_survivor" in one}
    for one in mutants:
        if one["id"] in survivors:
            print(f"survived: {one['id']}: {one['reason']} (expected: {expected.get(one['id'], 'no')})")
    for name in expected.keys() - survivors:
        print(f"no survivor any more: {name}")
    print(f"{len(mutants)} mutants, {len(survivors)} survived")
    return int(survivors != expected.keys())


if __name__ == "__main__":
    raise SystemExit(main(set(sys.argv[1:])))
