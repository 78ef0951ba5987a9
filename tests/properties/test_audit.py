"""Any correct release holds, and a release that differs from it in one position is broken."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle.naive_release import NaiveRelease, Record, load_policy, make_release
from shoal.audit import Verdict, verify
from shoal.errors import InputError
from support.by_night import by_day

pytestmark = pytest.mark.property

SEEDS = st.integers(0, 2**32)
SIZES = st.integers(12, 70)
BYTES = st.sampled_from([bytes([number]) for number in (*b'0123456789.-+eE,:"{}[]\\ \t\r\nax', 0x00, 0x7F, 0xC3, 0xFF)])

CHANGES: list[Record] = [
    *({"diagnosis": "another"}, {"diagnosis": 7}, {"ward": "another"}, {"age": "40"}, {"age": 40.5}),
    *({"income": None}, {"dose": True}, {"patient": ""}, {"seen_at": 1}),
]


@contextmanager
def release_of(n: int, seed: int, subjects: int | None = None, *, csv: bool = False) -> Iterator[NaiveRelease]:
    with TemporaryDirectory() as folder:
        yield make_release(Path(folder), n, seed=seed, subjects=subjects, csv=csv)


def verdict_of(naive: NaiveRelease, paths: dict[str, Path]) -> Verdict | None:
    """Return the verdict; None if the files are refused."""
    try:
        return verify(load_policy(naive.folder), paths["original"], paths["released"], paths["evidence"])
    except InputError:
        return None


@settings(max_examples=by_day(15, 60))
@given(SIZES, SEEDS, st.integers(15, 80), st.booleans(), st.booleans())
def test_a_naive_release_holds(n: int, seed: int, subjects: int, csv: bool, evidence: bool) -> None:  # noqa: FBT001
    with release_of(n, seed, subjects, csv=csv) as naive:
        assume(all(len(members) >= 5 for members in naive.clusters))
        verdict = naive.verify(evidence=evidence, summary=True)
        assert verdict.exit_code == 0 or (not evidence and verdict.exit_code == 2), verdict.text()


@settings(max_examples=by_day(35, 150))
@given(st.data(), SIZES, SEEDS, st.booleans())
def test_one_changed_byte_of_the_release_breaks_it(data: st.DataObject, n: int, seed: int, csv: bool) -> None:  # noqa: FBT001
    with release_of(n, seed, csv=csv) as naive:
        paths = naive.write()
        correct = paths["released"].read_bytes()
        position = data.draw(st.integers(0, len(correct) - 1))
        removed = data.draw(st.integers(0, 1))
        added = data.draw(BYTES if not removed else st.one_of(BYTES, st.just(b"")))
        changed = correct[:position] + added + correct[position + removed :]
        assume(changed not in {correct, correct[:-1]})  # the last line need not end
        paths["released"].write_bytes(changed)
        verdict = verdict_of(naive, paths)
        assert verdict is None or verdict.exit_code == 1, verdict.text()


@settings(max_examples=by_day(25, 100))
@given(st.data(), st.integers(30, 70), SEEDS)
def test_one_changed_offset_of_the_evidence_breaks_it(data: st.DataObject, n: int, seed: int) -> None:
    with release_of(n, seed) as naive:
        lines = naive.evidence
        first, second = data.draw(st.permutations(range(len(lines))))[:2]
        offsets, others = lines[first]["offsets"], lines[second]["offsets"]
        position = data.draw(st.integers(0, len(offsets) - 1))
        match data.draw(st.sampled_from(["drop", "double", "share", "move", "swap", "shift", "forget", "exchange"])):
            case "drop":
                del offsets[position]
            case "double":
                offsets.append(offsets[position])
            case "share":
                others.append(offsets[position])
            case "move":
                others.append(offsets.pop(position))
            case "swap":
                offsets[position], others[0] = others[0], offsets[position]
            case "shift":
                offsets[position] += data.draw(st.sampled_from([-n, -1, 1, n, 2**60]))
            case "forget":
                del lines[first]
            case _:
                assume(naive.rows[first] != naive.rows[second])
                lines[first]["offsets"], lines[second]["offsets"] = others, offsets
        verdict = verdict_of(naive, naive.write())
        assert verdict is not None
        assert verdict.exit_code == 1, verdict.text()


@settings(max_examples=by_day(15, 60))
@given(st.data(), st.integers(30, 70), SEEDS)
def test_one_changed_field_of_an_original_breaks_it(data: st.DataObject, n: int, seed: int) -> None:
    with release_of(n, seed) as naive:
        index = data.draw(st.sampled_from([index for members in naive.clusters for index in members]))
        changed = data.draw(st.sampled_from(CHANGES))
        naive.records[index] = naive.records[index] | changed
        assert naive.verify().exit_code == 1


@settings(max_examples=by_day(15, 60))
@given(SIZES, SEEDS, st.randoms())
def test_order_and_form_of_the_original_do_not_matter(n: int, seed: int, chance: random.Random) -> None:
    with release_of(n, seed) as naive:
        position = list(range(n))
        chance.shuffle(position)
        lines = [""] * n
        for index, record in enumerate(naive.records):
            respelled = dict(reversed(record.items())) | {"patient": f" {record['patient']}\t"}
            lines[position[index]] = json.dumps(respelled, indent=1).replace("\n", "  ").replace("0,", "0e0,")
        for line in naive.evidence:
            line["offsets"] = [position[index] for index in line["offsets"]]
        # Clusters are decided in the order of their oldest records.
        by_age = sorted(range(len(naive.evidence)), key=lambda cluster: min(naive.evidence[cluster]["offsets"]))
        naive.evidence = [naive.evidence[cluster] for cluster in by_age]
        naive.rows = [naive.rows[cluster] for cluster in by_age]
        naive.original_lines = lines
        verdict = naive.verify()
        assert verdict.exit_code == 0, verdict.text()
