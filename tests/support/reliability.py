"""The nightly faults: each with its expected outcome, and the record of what happened, from which the page is written.

A test records its result after its checks have passed: into ``build/reliability``. Run as a program, this module runs
the nightly faults of a cluster one by one, and writes docs/reports/reliability.md. Rows of faults that were not run
stay as they are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reports" / "reliability.md"
RESULTS = ROOT / "build" / "reliability"

RECORDING = re.compile(r"^from support\.(reliability|storms) import .*\b(record|recorded_check|storm)$", re.MULTILINE)
"""How a test file imports what records a result; names are sorted, so it is the last one."""

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


GOES_ON = "no worker ends; the workers continue when another broker leads"
STATE_GOES_ON = "a killed worker is replaced; the other one takes its partitions meanwhile"


@dataclass(frozen=True, slots=True)
class Fault:
    what: str
    expected: str


FAULTS = {
    "output-leader": Fault("kill -9 of the leader of an output partition, three times", GOES_ON),
    "group-coordinator": Fault("kill -9 of the leader of the group's `__consumer_offsets`, three times", GOES_ON),
    "transaction-coordinator": Fault("kill -9 of the leader of a `__transaction_state`, three times", GOES_ON),
    "offline-partition": Fault(
        "kill -9 of the only broker of an input partition, and a start of the worker meanwhile",
        "the other partition goes on, and this one when its broker is back; the worker does not end",
    ),
    "stage-offline-partition": Fault(
        "the same for a stage of a Faust app, and for two partitions",
        "the other partition goes on, and these when their broker is back; the worker does not end",
    ),
    "two-of-three": Fault(
        "two of three brokers killed, and started again after 20 s",
        "no worker ends; the workers continue when two brokers run",
    ),
    "rolling-brokers": Fault("rolling restart of the brokers with SIGTERM", GOES_ON),
    "rolling-upgrade": Fault("rolling upgrade of the brokers by a minor version of Kafka, under load", GOES_ON),
    "lost-marker": Fault(
        "the leader of a partition fails, not as Kafka foresees, while it writes the end of a transaction",
        "the worker waits, and names the broker to restart; with this restart it continues",
    ),
    "failing-directory": Fault(
        "one of two log directories of the leader of an output partition fails (no space left)",
        "the broker ends or goes on with the other directory; no worker ends; the workers continue",
    ),
    "flapping-member": Fault(
        "a member joins the group and leaves it, again and again, under load",
        "no worker ends; the workers continue between the rebalances and after them",
    ),
    "dead-address": Fault(
        "the name in `bootstrap_servers` has two addresses, the first of which drops all packets",
        "a start takes at most five seconds longer",
    ),
    "other-protocol": Fault(
        "two consumers of another group with Kafka's new group protocol read the input beside the workers",
        "both groups read all records; no worker ends",
    ),
    "group-paused": Fault("the coordinator of the group paused until every worker has published again", GOES_ON),
    "transactions-paused": Fault(
        "the coordinator of transactions paused until every worker has published again", GOES_ON
    ),
    "paused-broker": Fault("the leader of an output partition paused for 20 s, then resumed", GOES_ON),
    "cut-worker": Fault(
        "network cut between the workers and all brokers for 20 s",
        "no worker ends; the workers continue when the network is back",
    ),
    "cut-one-broker": Fault(
        "network cut between the workers and one broker for 20 s, while it leads",
        "no worker ends; its partitions wait, and continue when the network is back",
    ),
    "cut-brokers": Fault(
        "network cut between one broker and the two others for 20 s", "no worker ends; the two others take over"
    ),
    "disk-full": Fault(
        "full disk of the leader of an output partition, later freed, and the broker started again",
        "the broker ends; no worker ends; the two others take over, one of them after a restart if its log asks for it",
    ),
    "unclean-output": Fault(
        "unclean election: the new leader of an output partition lacks its last transactions",
        "the worker refuses or continues, and says so; no record is twice. What the brokers have lost is lost",
    ),
    "unclean-offsets": Fault(
        "unclean election: the new leader of `__consumer_offsets` lacks the last commits",
        "a start after it is refused and says why: the output holds records after the commit. No record twice",
    ),
    "unclean-offsets-append-time": Fault(
        "the same unclean election of `__consumer_offsets`, while the brokers date the output (LogAppendTime)",
        "a start after it is refused and says why: the output holds records after the commit. No record twice",
    ),
    "unclean-offsets-copy": Fault(
        "the same unclean election of `__consumer_offsets`, with a copy of the progress",
        "a start after it continues from the copy; no record is lost or twice",
    ),
    "unclean-input": Fault(
        "unclean election: the new leader of an input partition lacks records that were read",
        "the worker refuses and says why; no record is published twice",
    ),
    "rolling-versions": Fault(
        "rolling restart of workers from an older commit to this one and back, under load",
        "both versions continue the progress of the other",
    ),
    "offsets-expired": Fault(
        "the offsets of the group expire while no worker runs",
        "a start is refused, as the output holds records; after an import of the last export the workers continue",
    ),
    "transactional-ids-expired": Fault(
        "the transactional ids expire while the workers have nothing to publish",
        "no worker ends; the workers continue with the next record",
    ),
    "append-time-clock": Fault(
        "topics with LogAppendTime, and the clock of the workers two hours ahead and back",
        "no worker ends; the workers continue",
    ),
    "compacted-input": Fault(
        "kill -9 of workers six times, over an input that is compacted meanwhile",
        "a held record that compaction removes is suppressed; each remaining record has one outcome",
    ),
    "kills-ordered": Fault("kill -9 of workers eight times, a restart of a broker, `release: ordered`", STATE_GOES_ON),
    "kills-per-subject": Fault("kill -9 of workers eight times, a restart of a broker, `per_subject`", STATE_GOES_ON),
    "kills-copy": Fault("kill -9 of workers eight times, a restart of a broker, a copy of the progress", STATE_GOES_ON),
    "kills-sealed": Fault(
        "kill -9 of workers eight times, a restart of a broker, encrypted progress, its key replaced meanwhile",
        STATE_GOES_ON,
    ),
    "kills-iterator": Fault(
        "kill -9 of Faust workers with an iterator eight times, and a restart of a broker",
        "the iterator repeats clusters that were not committed, and the same ones; no record is in two clusters",
    ),
    "hundred-kills": Fault(
        "kill -9 of workers 100 times and 11 restarts of brokers in one run, every second one with kill -9",
        f"{STATE_GOES_ON}, although the first and the last address in `bootstrap_servers` never answer",
    ),
}
"""Each nightly fault by its name. The words of `what` are the key of its row: they occur once."""


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


def files_of_faults() -> list[str]:
    files = sorted((ROOT / "tests" / "faults").glob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if RECORDING.search(path.read_text("utf-8"))]


def main() -> int:
    """Run the tests and write the page; the exit code is that of pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words of the names of tests, as for -k of pytest")
    parser.add_argument("--recorded", action="store_true", help="run nothing; print what was recorded before")
    arguments = parser.parse_args()
    code = 0
    if not arguments.recorded:
        shutil.rmtree(RESULTS, ignore_errors=True)
        chosen = ["-k", arguments.only] if arguments.only else []
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "nightly", *chosen, *files_of_faults()]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    results = recorded()
    PAGE.write_text(page([*printed(), *results]), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} new results, {len(printed())} in all")
    return code


if __name__ == "__main__":
    sys.exit(main())
