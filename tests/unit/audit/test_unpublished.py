"""Records that were not published, and the delay of those that were, in releases of Shoal itself."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from oracle.naive_release import broken
from shoal.audit import Verdict
from shoal.errors import ConfigError
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from support.judged_runs import judged, released, write_lines
from support.making import SUBJECT, policy_of, quasi

pytestmark = pytest.mark.unit


def settings(delta: int | None = 20, k: int = 3, **more: Any) -> Policy:
    stream = {"delta": delta, "rule": "nearest"} | more.pop("stream", {})
    attributes = {"who": SUBJECT, "x": quasi(0, 1000, integer=True), "n": {"role": "confidential"}}
    return policy_of(attributes, privacy={"k": k} | more, stream=None if delta is None else stream)


def without_policy(line: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(line).items() if name != "policy"}


class World:
    """The files of one run."""

    def __init__(self, folder: Path, policy: Policy, people: Sequence[object], *, every: int = 1) -> None:
        """Release random records of these people; of ``every`` lines one is a record, and the others do not fit."""
        chance = random.Random(3)
        lines: list[dict[str, Any]] = []
        for number, who in enumerate(people):
            lines += [{"who": who, "x": chance.randint(0, 1000), "n": number}, *[{}] * (every - 1)]
        self.policy = policy
        self.paths = released(folder, policy, "".join(f"{json.dumps(line)}\n" for line in lines))
        # Tests also judge by other policies.
        self.write("evidence", list(map(without_policy, self.read("evidence"))))
        self.write("summary", [without_policy(self.paths["summary"].read_text())])

    def read(self, name: str) -> list[str]:
        return self.paths[name].read_text().splitlines()

    def write(self, name: str, lines: Sequence[object]) -> None:
        write_lines(self.paths[name], lines)

    def verify(self, *given: str, policy: Policy | None = None, **options: Any) -> Verdict:
        return judged(policy or self.policy, self.paths, "evidence", *given, **options)

    def keep_clusters(self, kept: int) -> None:
        """Drop all but the first clusters, with their evidence."""
        evidence = [json.loads(line) for line in self.read("evidence")[:kept]]
        self.write("evidence", evidence)
        self.write("released", self.read("released")[: sum(len(cluster["offsets"]) for cluster in evidence)])

    def refer(self, reason: str, offsets: Sequence[int]) -> None:
        lines = [{"topic": "original.jsonl", "partition": 0, "offset": offset, "reason": reason} for offset in offsets]
        self.write("quarantine", lines)

    def state(self, **fields: Any) -> None:
        self.write("summary", [json.loads(self.paths["summary"].read_text()) | fields])


def test_a_record_is_suppressed_only_if_too_few_subjects_had_arrived_at_its_expiry(tmp_path: Path) -> None:
    # At the arrival of position 4, record 0 expires; subjects 1 and 2 are held. Subject 3 is one position too late.
    people = [1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8]
    world = World(tmp_path, settings(4), people)
    references = [json.loads(line)["offset"] for line in world.read("quarantine")]
    assert references[0] == 0
    for given in ((), ("quarantine",), ("summary",)):
        assert world.verify(*given).exit_code == 0
        assert world.verify(*given, policy=settings(5)).exit_code == 1
    assert "suppressed" in broken(world.verify("quarantine", policy=settings(5)))


def running(folder: Path, count: int) -> World:
    """The files of a run that has read the first records and goes on."""
    world = World(folder, settings(), range(200))
    evidence = [json.loads(line) for line in world.read("evidence")]
    decided = [cluster for cluster in evidence if min(cluster["offsets"]) + 20 <= count - 1]
    world.write("original", world.read("original")[:count])
    world.keep_clusters(len(decided))
    return world


def test_a_running_release_holds_at_most_delta_records(tmp_path: Path) -> None:
    world = running(tmp_path, 111)
    verdict = world.verify()
    assert verdict.exit_code == 0, verdict.text()
    assert 0 < (verdict.counts["held"] or 0) <= 20
    assert "may still be held" in verdict["complete"].note
    # One cluster less: the record at its oldest place has waited for 20 records.
    world.keep_clusters(len(world.read("evidence")) - 1)
    assert broken(world.verify()) == {"complete"}


def test_after_a_flush_nothing_is_held(tmp_path: Path) -> None:
    world = World(tmp_path, settings(), range(200))
    evidence = [json.loads(line) for line in world.read("evidence")]
    # The second to last cluster is dropped; only a flush can have released the last one.
    dropped = evidence.pop(-2)
    rows = world.read("released")
    last = len(evidence[-1]["offsets"])
    world.write("evidence", evidence)
    world.write("released", [*rows[: -last - len(dropped["offsets"])], *rows[-last:]])
    assert broken(world.verify()) == {"complete"}


# ---------------------------------------------------------------- options


def test_a_quota_explains_exactly_the_records_above_it(tmp_path: Path) -> None:
    policy = settings(per_subject={"max": 2, "window": 50})
    world = World(tmp_path, policy, [number % 10 for number in range(200)])
    for given in ((), ("summary",), ("quarantine",)):
        verdict = world.verify(*given)
        assert (verdict.exit_code, verdict.claimed) == (0, ())
    assert world.verify("quarantine", policy=settings(per_subject={"max": 3, "window": 50})).exit_code == 1


def test_a_small_population_is_suppressed_at_the_end_only(tmp_path: Path) -> None:
    policy = settings(min_population=10)
    world = World(tmp_path, policy, range(9))
    assert world.read("released") == []
    for given in (("summary",), ("summary", "quarantine")):
        assert world.verify(*given).exit_code == 0
        assert world.verify(*given, policy=settings(min_population=9)).exit_code == 1


@pytest.mark.parametrize("rule", ["nearest", "greedy", "awo"])
def test_the_end_of_a_file_releases_no_small_population(tmp_path: Path, rule: str) -> None:
    stream = {"rule": rule}
    world = World(tmp_path, settings(stream=stream), range(12))
    assert world.verify(policy=settings(stream=stream, min_population=12)).exit_code == 0
    verdict = world.verify(policy=settings(stream=stream, min_population=13))
    assert broken(verdict) == {"population"}
    assert verdict["population"].worst == 12


# ---------------------------------------------------------------- tables


def test_a_table_suppresses_only_what_a_subject_has_above_its_share(tmp_path: Path) -> None:
    policy = settings(None, max_share=0.4)
    world = World(tmp_path, policy, [0] * 20 + list(range(1, 11)))
    suppressed = len(world.read("quarantine"))
    assert suppressed == 14
    for given in ((), ("summary",), ("quarantine",), ("summary", "quarantine")):
        assert world.verify(*given).exit_code == 0
    assert world.verify(policy=settings(None, max_share=0.5)).exit_code == 1
    world.keep_clusters(1)
    assert broken(world.verify(table=True)) >= {"complete"}


# ---------------------------------------------------------------- topics


def exported(world: World, timestamps: Sequence[int | None]) -> None:
    """Turn original and release into exports of topics."""
    messages: list[dict[str, Any]] = []
    for offset, (line, timestamp) in enumerate(zip(world.read("original"), timestamps, strict=True)):
        more = {} if timestamp is None else {"timestamp": timestamp}
        messages.append({"partition": 0, "offset": offset, "value": line} | more)
    world.write("original", messages)
    world.write("released", [json.dumps({"partition": 0, "value": row}) for row in world.read("released")])


def with_record_dated_ahead(folder: Path, timestamp: int | None, offset: int = 101, *, count: int = 1) -> Verdict:
    """Judge an export of 100 messages, one per millisecond, with further ones that are referenced as invalid."""
    world = World(folder, settings(), range(100))
    good = json.loads(world.read("original")[0])
    exported(world, range(100))
    lines = [json.loads(line) for line in world.read("original")]
    for line in lines:
        line["offset"] *= 2
    message = {"partition": 0, "value": json.dumps(good | {"n": 1000})}
    message |= {} if timestamp is None else {"timestamp": timestamp}
    offsets = range(offset, offset + 2 * count, 2)
    world.write("original", [json.dumps(line) for line in [*lines, *(message | {"offset": one} for one in offsets)]])
    clusters = [json.loads(line) for line in world.read("evidence")]
    doubled = [cluster | {"offsets": [2 * one for one in cluster["offsets"]]} for cluster in clusters]
    world.write("evidence", doubled)
    world.refer("invalid", offsets)
    return world.verify("quarantine")


def test_a_record_dated_an_hour_ahead_of_those_released_next_is_told_as_claimed(tmp_path: Path) -> None:
    verdict = with_record_dated_ahead(tmp_path, 3_600_100)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.claimed[0].startswith("1 record rejected for a timestamp")


def test_a_record_that_was_not_later_than_those_before_it_was_not_dated_ahead(tmp_path: Path) -> None:
    assert broken(with_record_dated_ahead(tmp_path, 50)) == {"reasons"}


@pytest.mark.parametrize(
    ("timestamp", "offset", "remedy"),
    [(3_600_060, 101, "timestamps"), (None, 101, "timestamps"), (99_000_000, 201, "export input and output again")],
)
def test_a_rejection_by_the_clock_that_files_do_not_show_is_undecided(
    tmp_path: Path, timestamp: int | None, offset: int, remedy: str
) -> None:
    verdict = with_record_dated_ahead(tmp_path, timestamp, offset)
    assert verdict.exit_code == 2
    assert verdict.claimed == ()
    assert remedy in verdict.undecided[0]


# ---------------------------------------------------------------- the delay


@pytest.mark.parametrize("release", ["cluster", "ordered"])
@pytest.mark.parametrize("rule", ["nearest", "greedy", "awo", "block"])
def test_a_delay_of_delta_holds_and_one_more_is_broken(tmp_path: Path, rule: str, release: str) -> None:
    stream = {"rule": rule, "release": release}
    world = World(tmp_path, settings(20, 4, stream=stream), range(200))
    verdict = world.verify()
    assert verdict.exit_code == 0, verdict.text()
    worst = 19 if rule == "block" else 20
    assert verdict["delay"].worst == worst
    shorter = settings(worst - 1, 4, stream=stream)
    assert "delay" in broken(world.verify(policy=shorter))
    assert "delay" in broken(world.verify(policy=shorter, partial=True))


@pytest.mark.parametrize("quota", [{}, {"per_subject": {"max": 1, "window": 1000}}])
def test_only_admitted_records_count_for_the_delay(tmp_path: Path, quota: dict[str, Any]) -> None:
    # Two of three lines do not fit the policy, or every second record is above the quota.
    people = [number // 2 if quota else number for number in range(200)]
    verdict = World(tmp_path, settings(20, 4, **quota), people, every=1 if quota else 3).verify()
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 20
    assert verdict.counts["rows"] == (100 if quota else 200)


# ---------------------------------------------------------------- the order of the input


def ordered(**stream: Any) -> Policy:
    return settings(20, 4, stream={"release": "ordered"} | stream)


def test_the_last_clusters_of_a_part_may_be_unfinished(tmp_path: Path) -> None:
    world = World(tmp_path, ordered(), range(200))
    world.write("released", world.read("released")[:120])
    verdict = world.verify(partial=True)
    assert verdict.exit_code == 0
    assert any("are not yet released" in check.note for check in verdict.checks)
    assert "nothing_missing" in broken(world.verify())


def test_byte_order_and_own_positions_are_told_apart(tmp_path: Path) -> None:
    plain, revealing = ordered(), ordered(reveal_order=True)
    assert "own_position" in broken(World(tmp_path, plain, range(200)).verify(policy=revealing))
    assert "byte_order" in broken(World(tmp_path, revealing, range(200)).verify(policy=plain))


def test_an_ordered_release_without_evidence_is_undecided(tmp_path: Path) -> None:
    verdict = judged(ordered(), World(tmp_path, ordered(), range(200)).paths)
    assert verdict.exit_code == 2
    assert any("--evidence" in reason for reason in verdict.undecided)


def test_a_followed_file_cannot_be_released_in_order(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--follow: cannot keep stream\.release: ordered"):
        run_pipe(ordered(), Files(str(tmp_path / "in.csv"), str(tmp_path / "out.csv")), Event())
    assert not (tmp_path / "out.csv").exists()
