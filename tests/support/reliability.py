"""The nightly faults: each with its expected outcome, and the record of what happened, from which the page is written.

A test records its result after its checks have passed: into ``build/reliability``, from where ``make reliability``
writes docs/reports/reliability.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from support.reliability_faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reports" / "reliability.md"
RESULTS = ROOT / "build" / "reliability"

HEAD = """# Faults and their outcomes

Written by `make reliability`, which runs the tests named here; do not edit. A row is recorded only after all checks of
its test have passed. Each test runs Shoal's workers as processes, and an Apache Kafka of three brokers that are
controllers as well: three replicas of each topic, two of which must be in sync. What is expected of a fault was written
before its first run, and is what its test checks.

After each fault, the topics are judged from outside: all records are read from the input, and `shoal verify` judges
the release. **Twice** is the number of records that are published or referenced again. **Lost** is the number of
records without an outcome. **Under k** is the number of clusters with too few subjects or unequal members.
**Canaries** counts places with a value that must not be published: topics (aborted transactions too), logs, offset
metadata. **Accusations** counts log lines that blame another producer, of which there is none. **Gone** is the number
of workers that ended without being killed, and without a refusal that is expected. A dash means that the check does not
apply: the brokers have lost records, or none could be published any more.

| fault | expected | what happened | records | twice | lost | under k | canaries | accusations | gone | test |
|---|---|---|---|---|---|---|---|---|---|---|
"""
COUNTS = ("records", "twice", "lost", "under_k", "canaries", "accusations", "gone")


@dataclass(frozen=True, slots=True)
class Result:
    """What happened under a fault. A count of -1 does not apply."""

    fault: str
    happened: str
    records: int
    twice: int
    lost: int
    under_k: int
    canaries: int
    accusations: int
    gone: int
    test: str


def record(
    fault: str,
    happened: str,
    *,
    records: int,
    twice: int,
    lost: int,
    under_k: int,
    canaries: int,
    accusations: int,
    gone: int,
) -> Result:
    """Record the result of a fault of the list, by its name; called after all checks have passed."""
    assert fault in FAULTS, f"{fault} is not in the list of faults"
    assert not any(char in happened for char in "|\n"), "a bar or a line end in a cell"
    test = os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0].split("[")[0]
    result = Result(fault, happened, records, twice, lost, under_k, canaries, accusations, gone, test)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{fault}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
    print(result)
    return result


def recorded() -> list[Result]:
    """Return the results that tests have recorded since the folder was removed."""
    return [Result(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(RESULTS.glob("*.json"))]


def printed() -> list[Result]:
    """Return the rows of the page; none before it was written."""
    what = {fault.what: name for name, fault in FAULTS.items()}
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.is_file() else ():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if len(cells) == 11 and cells[0] in what:
            counts = {
                name: -1 if cell == "–" else int(cell.replace(",", ""))
                for name, cell in zip(COUNTS, cells[3:10], strict=True)
            }
            found.append(Result(what[cells[0]], cells[2], **counts, test=cells[10].strip("`")))
    return found


def page(results: Sequence[Result]) -> str:
    """Return the text of the page: one row for each fault of the list that has a result, the last one if it has two."""
    by_fault = {result.fault: result for result in results}
    rows = []
    for name, fault in FAULTS.items():
        if (result := by_fault.get(name)) is not None:
            found = [getattr(result, count) for count in COUNTS]
            counts = ["–" if count < 0 else f"{count:,}" for count in found]
            cells = [fault.what, fault.expected, result.happened, *counts, f"`{result.test}`"]
            rows.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(rows)
