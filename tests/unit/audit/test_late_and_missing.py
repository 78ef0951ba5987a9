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
from support.judged_runs import write_lines
from support.making import SUBJECT, policy_of, quasi, unchanged_field

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
    first: int = 0

    def __post_init__(self) -> None:
        chance = random.Random(1)
        self.records = [{"who": f"u{n}", "x": chance.randint(0, 1000), "c": f"v{n:03}"} for n in range(200)]
        self.recompose()

    def recompose(self) -> None:
        """Make lines and rows of the records and clusters."""
        self.lines = [json.dumps(record) for record in self.records]
        if self.is_topic:
            messages = enumerate(self.lines)
            self.lines = [
                json.dumps({"partition": 0, "offset": self.first + n, "value": line, "timestamp": 1000 * n})
                for n, line in messages
            ]
        found = []
        for members in self.clusters:
            mean = mean_of([self.records[n]["x"] for n in members])
            texts = sorted(f'{{"x":{mean},"c":"{self.records[n]["c"]}"}}' for n in members)
            found += list(zip(sorted(members), texts, strict=True))
        self.rows = sorted(found) if self.stream.get("release") == "ordered" else found

    @property
    def rest(self) -> list[int]:
        """The records that are in no cluster."""
        released = {n for members in self.clusters for n in members}
        return [n for n in range(200) if n not in released]

    def policy(self) -> Policy:
        attributes = {"who": SUBJECT, "x": quasi(0, 1000, resolution=1), "c": unchanged_field("string")}
        options = {"privacy": {"k": 5}, "stream": {"delta": self.delta} | self.stream, "attributes": attributes}
        return policy_of(**(options | self.more))

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
        clusters = [
            {"partition": 0, "cluster": number, "offsets": [self.first + n for n in members]}
            for number, members in enumerate(self.clusters)
        ]
        reference = {"topic": "in", "partition": 0, "reason": reason}
        references = [reference | {"offset": self.first + n} for n in self.rest] if reason else []
        write_lines(paths["out"], texts)
        write_lines(paths["evidence"], clusters)
        write_lines(paths["quarantine"], references)
        write_lines(paths["summary"], [summary])
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


def test_early_decisions_are_counted_if_it_is_known_which_records_they_suppressed(tmp_path: Path) -> None:
    # The end suppresses the last four; a time limit has suppressed at most four of the six before them at once.
    made = Composed(tmp_path, BLOCKS[:-2], stream={"max_delay_s": 5})
    stated = {"records_in": 200, "released": 190, "quarantined": 0, "held": 0}
    for suppressed, code, decisions in ((10, 0, 2), (9, 1, None)):
        verdict = made.verify(summary=stated | {"suppressed": suppressed})
        assert (verdict.exit_code, verdict.as_dict()["early_decisions"]) == (code, decisions)


# ---------------------------------------------------------------- sizes

KAFKA = {"bootstrap_servers": "localhost:9", "input": "a", "output": "b", "group": "g"}
FAR = [[0, 45, 90, 135, 180]]


@pytest.mark.parametrize("is_topic", [False, True])
def test_records_above_the_limit_are_explained(tmp_path: Path, is_topic: bool) -> None:  # noqa: FBT001
    made = Composed(tmp_path, [], is_topic, more={"kafka": KAFKA | {"max_record_bytes": 100}})
    for n, record in enumerate(made.records):
        record["c"] = f"{n:03}" + "a" * 67
    made.recompose()
    verdict = made.verify("too_large", summary={"released": 0})
    assert verdict.exit_code == 0, verdict.text()
    assert (verdict.claimed, verdict.undecided) == ((), ())


def with_long_ones_between(folder: Path, clusters: list[list[int]]) -> Composed:
    """Return a topic in which every record with an odd number is above the limit of the policy."""
    more = {"kafka": KAFKA | {"max_record_bytes": 100}}
    made = Composed(folder, clusters, is_topic=True, more=more)
    for n, record in enumerate(made.records):
        record["c"] = f"{n:03}" + "a" * (100 if n % 2 else 1)
    made.recompose()
    return made


def test_without_a_quarantine_records_above_the_limit_are_no_arrivals(tmp_path: Path) -> None:
    # The last 20 records of an even number may be held: fewer than 20 of these follow each of them.
    decided = [list(range(start, start + 10, 2)) for start in range(0, 160, 10)]
    verdict = with_long_ones_between(tmp_path, decided).verify()
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["held"] == 20
    # Members 18 apart; with those between them they would be 36 apart.
    spread = [list(range(start, start + 38, 2)) for start in range(0, 200, 38)][:5]
    made = with_long_ones_between(tmp_path, spread)
    made.lines = [json.dumps(json.loads(line) | {"timestamp": 1000}) for line in made.lines]
    verdict = made.verify()
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 18


def test_records_that_are_too_large_do_not_count_for_the_quota(tmp_path: Path) -> None:
    more = {"kafka": KAFKA | {"max_record_bytes": 100}, "privacy": {"k": 5, "per_subject": {"max": 1, "window": 1000}}}
    made = Composed(tmp_path, [list(range(n, n + 10, 2)) for n in range(1, 200, 10)], is_topic=True, more=more)
    for n, record in enumerate(made.records):
        record |= {"who": f"u{n // 2}", "c": f"{n:03}" + "a" * (100 if n % 2 == 0 else 1)}
    made.recompose()
    verdict = made.verify("too_large")
    assert verdict.exit_code == 0, verdict.text()
    assert (verdict.claimed, verdict["delay"].worst) == ((), 4)


def test_a_long_key_is_compared_with_its_own_length(tmp_path: Path) -> None:
    keyed_subject = SUBJECT | {"from": "key"}
    attributes = {"who": keyed_subject, "x": quasi(0, 1000, resolution=1)}
    more = {"attributes": attributes, "kafka": KAFKA | {"max_record_bytes": 1000}}
    made = Composed(tmp_path, [], is_topic=True, more=more)
    lines = [json.loads(line) for line in made.lines]
    for key_length, code in ((254, 2), (1000, 2), (1001, 0)):
        keyed = {"key": "k" * key_length, "value": '{"x":5}'}
        made.lines = [json.dumps(line | keyed) for line in lines]
        assert made.verify("too_large", is_export=True).exit_code == code


# ---------------------------------------------------------------- arrivals that are not sure


@pytest.mark.parametrize("stream", [{}, {"release": "ordered"}])
def test_a_part_of_a_topic_does_not_hide_late_records(tmp_path: Path, stream: dict[str, Any]) -> None:
    made = Composed(tmp_path, FAR, is_topic=True, stream=stream)
    made.rows = made.rows[:1] if stream else made.rows
    verdict = made.verify(partial=True)
    assert verdict.exit_code == 2
    assert (verdict["delay"].status, verdict["delay"].failed) == ("not examined", 0)
    made.lines = [json.dumps(json.loads(line) | {"timestamp": 10**6 - n}) for n, line in enumerate(made.lines)]
    assert broken(made.verify(partial=True)) == {"delay"}
    assert Composed(tmp_path, BLOCKS, is_topic=True).verify(partial=True).exit_code == 0


def judged_with_claims_of_the_clock(folder: Path, clusters: list[list[int]], delta: int) -> Verdict:
    """Judge a topic in which all records besides the released ones are dated far ahead, and listed as invalid."""
    made = Composed(folder, clusters, is_topic=True, delta=delta)
    ahead = set(made.rest)
    lines = [json.loads(line) for line in made.lines]
    made.lines = [json.dumps(line | {"timestamp": n + 10**8 * (n in ahead)}) for n, line in enumerate(lines)]
    return made.verify("invalid")


def test_claims_of_the_clock_do_not_make_the_delay_hold(tmp_path: Path) -> None:
    # Members are 4 to 8 of the released records apart, and 44 to 88 of all records; most records are claims.
    old = list(range(0, 200, 11))
    verdict = judged_with_claims_of_the_clock(tmp_path, [old[0:5], old[5:10], [*old[10:19], 199]], 20)
    assert (verdict["delay"].status, verdict["delay"].failed) == ("not examined", 0)
    assert (verdict.counts["claimed"], verdict.exit_code) == (180, 2)
    # Members are 16 of the released records apart, and 19 or 20 of all records; every fifth record is a claim.
    old = [n for n in range(200) if n % 5]
    clusters = [[old[block + n + 4 * member] for member in range(5)] for block in range(0, 160, 20) for n in range(4)]
    for delta, status in ((18, "not examined"), (20, "holds")):
        verdict = judged_with_claims_of_the_clock(tmp_path, clusters, delta)
        assert (verdict["delay"].status, verdict["delay"].failed) == (status, 0)
        assert (verdict.counts["claimed"], verdict.exit_code) == (40, 0)


# ---------------------------------------------------------------- claims


def test_claims_name_their_cause_and_the_fewest_flushes(tmp_path: Path) -> None:
    verdict = Composed(tmp_path, BLOCKS[:1], is_topic=True).verify("suppressed")
    assert verdict.exit_code == 0
    assert "\n".join(verdict.claimed) == (
        "191 records suppressed because of a flush or the size of the offset metadata, as the quarantine states: the "
        "files show that this is possible, and not that it is so (needs at least 48 such decisions)"
    )
    made = Composed(tmp_path, BLOCKS[:1], stream={"max_delay_s": 5})
    counts = {"records_in": 200, "released": 5, "suppressed": 195, "quarantined": 0, "held": 0}
    assert "\n".join(made.verify(summary=counts).claimed) == (
        "191 records suppressed because of a time limit, as the summary states: the files show that this is possible, "
        "and not that it is so (needs at least 48 such decisions)"
    )


def test_many_held_records_are_a_warning(tmp_path: Path) -> None:
    made = Composed(tmp_path, BLOCKS[:20], is_topic=True, delta=100)
    assert not any("may still be held" in one.text for one in made.verify("").warnings)
    made = Composed(tmp_path, BLOCKS[:19], is_topic=True, delta=105)
    verdict = made.verify("")
    assert verdict.exit_code == 0
    assert [one.line() for one in verdict.warnings if one.code == "held"] == [
        "105 records may still be held, more than half; verify again"
    ]


def test_a_quota_is_counted_in_the_order_of_offsets(tmp_path: Path) -> None:
    quota = {"privacy": {"k": 5, "per_subject": {"max": 1, "window": 1000}}}
    for clusters, claims in ((BLOCKS[:20], 0), (BLOCKS[20:], 100)):
        made = Composed(tmp_path, clusters, is_topic=True, more=quota)
        for n, record in enumerate(made.records):
            record["who"] = f"u{n % 100}"
        made.recompose()
        for _ in range(2):
            assert made.verify("suppressed").counts["claimed"] == claims
            made.lines.reverse()
