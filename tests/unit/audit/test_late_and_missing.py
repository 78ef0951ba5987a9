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


@pytest.mark.parametrize("stream", [{"max_delay_s": 5}, {"rule": "block"}])
def test_a_record_older_than_a_decided_cluster_is_not_held(tmp_path: Path, stream: dict[str, Any]) -> None:
    made = Composed(tmp_path, [*BLOCKS[:36], [181, 182, 183, 184, 185, 186], list(range(187, 196))], stream=stream)
    for verdict in (made.verify(""), Composed(tmp_path, made.clusters, is_topic=True).verify("")):
        assert broken(verdict) == {"complete"}
        assert (verdict["complete"].places, verdict.counts["held"]) == ((180,), 4)


def test_early_decisions_are_counted_if_it_is_known_which_records_they_suppressed(tmp_path: Path) -> None:
    # The end suppresses the last four; a time limit has suppressed at most four of the six before them at once.
    made = Composed(tmp_path, BLOCKS[:-2], stream={"max_delay_s": 5})
    stated = {"records_in": 200, "released": 190, "quarantined": 0, "held": 0}
    for suppressed, code, decisions in ((10, 0, 2), (9, 1, None)):
        verdict = made.verify(summary=stated | {"suppressed": suppressed})
        assert (verdict.exit_code, verdict.as_dict()["early_decisions"]) == (code, decisions)


# ---------------------------------------------------------------- the order of decisions


def test_clusters_out_of_the_order_of_their_oldest_records_are_broken(tmp_path: Path) -> None:
    swapped = [block for pair in range(0, 40, 2) for block in (BLOCKS[pair + 1], BLOCKS[pair])]
    for is_topic in (False, True):
        assert Composed(tmp_path, BLOCKS, is_topic).verify().exit_code == 0
        verdict = Composed(tmp_path, swapped, is_topic).verify()
        assert broken(verdict) == {"oldest_first"}
        assert verdict["oldest_first"].failed == 20


def test_without_evidence_another_order_of_clusters_is_undecided_in_a_file_and_allowed_in_a_topic(
    tmp_path: Path,
) -> None:
    turned = [block for start in range(0, 40, 4) for block in BLOCKS[start : start + 4][::-1]]
    for is_topic, code in ((False, 2), (True, 0)):
        assert Composed(tmp_path, BLOCKS, is_topic).verify(evidence=False).exit_code == 0
        verdict = Composed(tmp_path, turned, is_topic).verify(evidence=False)
        assert verdict.exit_code == code
        assert any("--evidence" in text for text in verdict.undecided) is (code == 2)


# ---------------------------------------------------------------- sizes

KAFKA = {"bootstrap_servers": "localhost:9", "input": "a", "output": "b", "group": "g"}
FAR = [[0, 45, 90, 135, 180]]


def with_long_fields(folder: Path, clusters: list[list[int]], limit: int, *, is_topic: bool, **more: Any) -> Composed:
    """Return a release of records whose messages have 91 to 94 bytes."""
    made = Composed(folder, clusters, is_topic, more={"kafka": KAFKA | {"max_record_bytes": limit}}, **more)
    for n, record in enumerate(made.records):
        record["c"] = f"{n:03}" + "a" * 57
    made.recompose()
    return made


def test_records_above_the_limit_are_explained(tmp_path: Path) -> None:
    for is_topic in (False, True):
        made = with_long_fields(tmp_path, [], 100, is_topic=is_topic)
        for record in made.records:
            record["who"] += "u" * 10
        made.recompose()
        verdict = made.verify("too_large", summary={"released": 0})
        assert verdict.exit_code == 0, verdict.text()
        assert (verdict.claimed, verdict.undecided) == ((), ())


@pytest.mark.parametrize("clusters", [BLOCKS, BLOCKS[::4], FAR])
def test_released_records_above_the_limit_show_another_limit(tmp_path: Path, clusters: list[list[int]]) -> None:
    for is_topic, code in ((False, 1), (True, 2)):
        made = with_long_fields(tmp_path, clusters, 100, is_topic=is_topic)
        for record in made.records:
            record["who"] += "u" * 10
        made.recompose()
        for reason in (None, "too_large"):
            verdict = made.verify(reason)
            assert verdict.exit_code == code
            assert broken(verdict) == (set() if is_topic else {"existing"})
            assert any("max_record_bytes: set it" in question for question in verdict.undecided) == is_topic


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


def test_a_restart_may_lose_a_window_whose_start_the_original_lacks(tmp_path: Path) -> None:
    quota = {"privacy": {"k": 5, "per_subject": {"max": 3, "window": 250}}}
    for first, code in ((0, 2), (10, 0), (250, 2)):
        # Records 1 to 15 were held with k subjects when the cluster was decided, so no flush has suppressed them.
        verdict = Composed(tmp_path, [[0, 4, 8, 12, 16]], is_topic=True, more=quota, first=first).verify("suppressed")
        assert verdict.exit_code == code, verdict.text()
        assert any("start of a quota window" in text for text in verdict.claimed) == (code == 0)
        assert any("start of their quota window" in text for text in verdict.undecided) == (code == 2)


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
    assert not any("may still be held" in text for text in made.verify("").warnings)
    made = Composed(tmp_path, BLOCKS[:19], is_topic=True, delta=105)
    verdict = made.verify("")
    assert verdict.exit_code == 0
    assert [text for text in verdict.warnings if "held" in text] == [
        "105 records may still be held, more than half: verify again"
    ]


# ---------------------------------------------------------------- the order of lines, and the last one


def test_only_a_file_that_can_be_followed_may_lack_its_last_line_end(tmp_path: Path) -> None:
    clusters = [[1, 2, 3, 4, 5, 6], *(list(range(start, start + 5)) for start in range(7, 192, 5)), [*range(192, 200)]]
    made = Composed(tmp_path, clusters, is_topic=True)
    made.lines.reverse()
    for end in ("\n", ""):
        assert broken(made.verify("", end=end)) == {"complete"}
        assert made.verify(end=end).exit_code == 2
    dropped = Composed(tmp_path, [*BLOCKS[:39], [*range(195, 199)]], delta=200, more={"privacy": {"k": 4}})
    assert dropped.verify(end="").counts["claimed"] == 1
    dropped.stream = {"release": "ordered"}
    dropped.recompose()
    assert dropped.verify(end="").counts["claimed"] == 0


def test_measures_do_not_depend_on_the_order_of_the_lines(tmp_path: Path) -> None:
    made = Composed(tmp_path, BLOCKS, is_topic=True)
    expected = made.verify().measures
    made.lines = [*made.lines[:50], *made.lines[51:], made.lines[50]]
    assert made.verify().measures == expected


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
