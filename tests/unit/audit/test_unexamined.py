"""The verdict lists as not examined what the given files cannot show, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from support.judged_runs import write_lines
from support.making import SUBJECT, policy_of, quasi

pytestmark = pytest.mark.unit

TIMES = "when anything was released, and delays in seconds"
ABORTED = "aborted messages, which a read_uncommitted reader can see"
OTHERS = "earlier or other releases of the same records"
TRANSACTIONS = "whether each cluster was published in one transaction"
SUMMARY = "mse and mae in the summary, and its clipped values, displacement, excess span, delay and speed"


def unexamined(
    folder: Path, *, stream: dict[str, Any] | None, envelope: dict[str, Any] | None, summary: bool = False
) -> tuple[str, ...]:
    """Judge one cluster of two records; ``envelope``: fields beside the rows of an export, None for plain files."""
    policy = policy_of(
        {"who": SUBJECT, "x": quasi(0, 9, resolution=1)}, stream=None if stream is None else {"delta": 2} | stream
    )
    lines: list[Any] = [{"who": who, "x": 5} for who in ("a", "b")]
    rows: list[Any] = ['{"x":5}'] * 2
    if envelope is not None:
        lines = [{"partition": 0, "offset": n, "value": json.dumps(line)} for n, line in enumerate(lines)]
        rows = [{"partition": 0, "value": row} | envelope for row in rows]
    contents = {"in": lines, "out": rows, "evidence": [{"partition": 0, "cluster": 0, "offsets": [0, 1]}]}
    original, released, evidence = (write_lines(folder / f"{name}.jsonl", found) for name, found in contents.items())
    verdict = verify(policy, original, released, evidence, {"released": 2} if summary else None)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.as_dict()["not_examined"] == list(verdict.not_examined)
    return verdict.not_examined


@pytest.mark.parametrize(
    ("envelope", "question"),
    [
        ({}, "keys, headers and timestamps of released messages"),
        ({"key": None}, "headers and timestamps of released messages"),
        ({"headers": []}, "keys and timestamps of released messages"),
        ({"key": None, "headers": None}, "timestamps of released messages"),
    ],
)
def test_keys_and_headers_that_an_export_has_are_examined(
    tmp_path: Path, envelope: dict[str, Any], question: str
) -> None:
    found = unexamined(tmp_path, stream={}, envelope=envelope)
    assert found == (TRANSACTIONS, question, TIMES, ABORTED, OTHERS)


def test_an_ordered_release_promises_no_transaction_for_a_cluster(tmp_path: Path) -> None:
    found = unexamined(tmp_path, stream={"release": "ordered"}, envelope={})
    assert found == ("keys, headers and timestamps of released messages", TIMES, ABORTED, OTHERS)


def test_files_have_no_messages_and_tables_no_times(tmp_path: Path) -> None:
    assert unexamined(tmp_path, stream={}, envelope=None) == (TIMES, OTHERS)
    assert unexamined(tmp_path, stream=None, envelope=None) == (OTHERS,)
    assert unexamined(tmp_path, stream=None, envelope=None, summary=True) == (SUMMARY, OTHERS)
