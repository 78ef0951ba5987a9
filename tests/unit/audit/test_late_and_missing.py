"""Late, missing and disordered records of composed releases: no file that the released party writes excuses them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import broken
from shoal.audit import Verdict, verify
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit

BLOCKS = [list(range(start, start + 5)) for start in range(0, 200, 5)]
"""200 records in clusters of five neighbours, which are sound for a delay of 20."""

Row = tuple[int, str]


def mean_of(values: Sequence[int]) -> int:
    return round(sum(values) / len(values))


@dataclass
class Composed:
    """Files of 200 records of 200 subjects in given clusters, whatever these are."""

    folder: Path
    clusters: list[list[int]]
    is_topic: bool = False
    delta: int = 20
    stream: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(1)
        self.records = [{"who": f"u{n}", "x": chance.randint(0, 1000), "c": f"v{n:03}"} for n in range(200)]
        self.recompose()

    def recompose(self) -> None:
        """Make lines and rows of the records and clusters."""
        self.lines = [json.dumps(record) for record in self.records]
        if self.is_topic:
            messages = ({"partition": 0, "offset": n, "value": line} for n, line in enumerate(self.lines))
            self.lines = [json.dumps(message | {"timestamp": 1000 * message["offset"]}) for message in messages]
        found = []
        for members in self.clusters:
            mean = mean_of([self.records[n]["x"] for n in members])
            texts = sorted(f'{{"x":{mean},"c":"{self.records[n]["c"]}"}}' for n in members)
            found += list(zip(sorted(members), texts, strict=True))
        self.rows = sorted(found) if self.stream.get("release") == "ordered" else found
        self.numbers = list(range(len(self.clusters)))

    @property
    def rest(self) -> list[int]:
        """The records that are in no cluster."""
        released = {n for members in self.clusters for n in members}
        return [n for n in range(200) if n not in released]

    def policy(self) -> Policy:
        document = {
            "attributes": {
                "who": {"role": "identifier", "subject": True},
                "x": {"role": "quasi_identifier", "bounds": [0, 1000], "resolution": 1},
                "c": {"role": "confidential", "type": "string"},
            },
            "privacy": {"k": 5},
            "stream": {"delta": self.delta} | self.stream,
        }
        return Policy.from_document(Document.model_validate(document | self.more))

    def verify(
        self,
        reason: str | None = None,
        *,
        evidence: bool = True,
        summary: dict[str, Any] | None = None,
        end: str = "\n",
        **options: Any,
    ) -> Verdict:
        """Judge the files; ``reason``: of a quarantine with all records that are in no cluster, or "" for an empty one.

        ``end``: what follows the last line of the original.
        """
        paths = {name: self.folder / f"{name}.jsonl" for name in ("in", "out", "evidence", "quarantine", "summary")}
        paths["in"].write_text("\n".join(self.lines) + end)
        texts = [text for _, text in self.rows]
        if self.is_topic:
            texts = [json.dumps({"partition": 0, "value": text}) for text in texts]
        named = zip(self.numbers, self.clusters, strict=True)
        clusters = [json.dumps({"partition": 0, "cluster": number, "offsets": members}) for number, members in named]
        reference = {"topic": "in", "partition": 0, "reason": reason}
        references = [json.dumps(reference | {"offset": n}) for n in self.rest] if reason else []
        for name, found in (("out", texts), ("evidence", clusters), ("quarantine", references)):
            paths[name].write_text("".join(f"{line}\n" for line in found))
        paths["summary"].write_text(json.dumps(summary))
        return verify(
            self.policy(),
            paths["in"],
            paths["out"],
            paths["evidence"] if evidence else None,
            None if summary is None else paths["summary"],
            quarantine=None if reason is None else paths["quarantine"],
            **options,
        )


# ---------------------------------------------------------------- records that no engine can still hold


@pytest.mark.parametrize("stream", [{"max_delay_s": 5}, {"rule": "block"}])
def test_a_record_older_than_a_decided_cluster_is_not_held(tmp_path: Path, stream: dict[str, Any]) -> None:
    made = Composed(tmp_path, [*BLOCKS[:36], [181, 182, 183, 184, 185, 186], list(range(187, 196))], stream=stream)
    for verdict in (made.verify(""), Composed(tmp_path, made.clusters, is_topic=True).verify("")):
        assert broken(verdict) == {"complete"}
        assert (verdict["complete"].places, verdict.counts["held"]) == ((180,), 4)


def test_a_quarter_of_the_clusters_does_not_leave_the_rest_held(tmp_path: Path) -> None:
    for is_topic, stream in ((False, {"max_delay_s": 5}), (True, {})):
        made = Composed(tmp_path, BLOCKS[::4], is_topic, delta=199, stream=stream)
        assert made.verify().exit_code == 2
        verdict = made.verify("")
        assert broken(verdict) == {"complete"}
        assert (verdict["complete"].failed, verdict.counts["held"]) == (135, 15)


def test_an_ordered_release_holds_no_record_older_than_a_decided_cluster(tmp_path: Path) -> None:
    clusters = [*BLOCKS[:36], [181, 182, 183, 184, 185, 186], list(range(187, 200))]
    made = Composed(tmp_path, clusters, is_topic=True, stream={"release": "ordered"})
    assert broken(made.verify("")) == {"complete"}


# ---------------------------------------------------------------- the order of decisions


def test_clusters_out_of_the_order_of_their_oldest_records_are_broken(tmp_path: Path) -> None:
    swapped = [block for pair in range(0, 40, 2) for block in (BLOCKS[pair + 1], BLOCKS[pair])]
    for is_topic in (False, True):
        assert Composed(tmp_path, BLOCKS, is_topic).verify().exit_code == 0
        verdict = Composed(tmp_path, swapped, is_topic).verify()
        assert broken(verdict) == {"oldest_first"}
        assert verdict["oldest_first"].failed == 20


def test_without_evidence_an_order_that_no_transactions_explain_is_undecided(tmp_path: Path) -> None:
    for is_topic in (False, True):
        assert Composed(tmp_path, BLOCKS, is_topic).verify(evidence=False).exit_code == 0
        turned = [block for start in range(0, 40, 4) for block in BLOCKS[start : start + 4][::-1]]
        verdict = Composed(tmp_path, turned, is_topic).verify(evidence=False)
        assert verdict.exit_code == 2
        assert any("--evidence" in text for text in verdict.undecided)
