"""Any sound release passes, and a release that differs from it in one place does not."""

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
from oracle.naive_release import Record, World, load_policy, make_world
from shoal.audit import Verdict, verify
from shoal.errors import InputError

pytestmark = pytest.mark.property

SEEDS = st.integers(0, 2**32)
SIZES = st.integers(12, 70)
BYTES = st.sampled_from([bytes([number]) for number in (*b'0123456789.-+eE,:"{}[]\\ \t\r\nax', 0x00, 0x7F, 0xC3, 0xFF)])

BENT: list[Record] = [
    {"diagnosis": "another"},
    {"diagnosis": 7},
    {"ward": "another"},
    {"age": "40"},
    {"age": 40.5},
    {"income": None},
    {"dose": True},
    {"patient": ""},
    {"seen_at": 1},
]


@contextmanager
def world_of(n: int, seed: int, people: int | None = None, *, csv: bool = False) -> Iterator[World]:
    with TemporaryDirectory() as folder:
        yield make_world(Path(folder), n, seed=seed, people=people, csv=csv)


def judged(world: World, paths: dict[str, Path]) -> Verdict | None:
    """None where the files are refused."""
    try:
        return verify(load_policy(world.folder), paths["original"], paths["released"], paths["evidence"])
    except InputError:
        return None


@settings(max_examples=60)
@given(SIZES, SEEDS, st.integers(15, 80), st.booleans(), st.booleans())
def test_a_naive_release_passes(n: int, seed: int, people: int, csv: bool, evidence: bool) -> None:  # noqa: FBT001
    with world_of(n, seed, people, csv=csv) as world:
        assume(all(len(members) >= 5 for members in world.clusters))
        verdict = world.judge(evidence=evidence, summary=True)
        assert verdict.exit_code == 0 or (not evidence and verdict.exit_code == 2), verdict.text()


@settings(max_examples=150)
@given(st.data(), SIZES, SEEDS, st.booleans())
def test_one_byte_of_the_release_decides(data: st.DataObject, n: int, seed: int, csv: bool) -> None:  # noqa: FBT001
    with world_of(n, seed, csv=csv) as world:
        paths = world.write()
        sound = paths["released"].read_bytes()
        place = data.draw(st.integers(0, len(sound) - 1))
        removed = data.draw(st.integers(0, 1))
        added = data.draw(BYTES if not removed else st.one_of(BYTES, st.just(b"")))
        bent = sound[:place] + added + sound[place + removed :]
        # Whether the last line ends is all that may differ.
        assume(bent.removesuffix(b"\n") != sound.removesuffix(b"\n"))
        paths["released"].write_bytes(bent)
        verdict = judged(world, paths)
        assert verdict is None or verdict.exit_code == 1, verdict.text()


@settings(max_examples=100)
@given(st.data(), st.integers(30, 70), SEEDS)
def test_one_offset_of_the_evidence_decides(data: st.DataObject, n: int, seed: int) -> None:
    with world_of(n, seed) as world:
        lines = world.evidence
        first, second = data.draw(st.permutations(range(len(lines))))[:2]
        offsets, others = lines[first]["offsets"], lines[second]["offsets"]
        place = data.draw(st.integers(0, len(offsets) - 1))
        match data.draw(st.sampled_from(["drop", "double", "share", "move", "swap", "shift", "forget", "exchange"])):
            case "drop":
                del offsets[place]
            case "double":
                offsets.append(offsets[place])
            case "share":
                others.append(offsets[place])
            case "move":
                others.append(offsets.pop(place))
            case "swap":
                offsets[place], others[0] = others[0], offsets[place]
            case "shift":
                offsets[place] += data.draw(st.sampled_from([-n, -1, 1, n, 2**60]))
            case "forget":
                del lines[first]
            case _:
                assume(world.rows[first] != world.rows[second])
                lines[first]["offsets"], lines[second]["offsets"] = others, offsets
        verdict = judged(world, world.write())
        assert verdict is not None
        assert verdict.exit_code == 1, verdict.text()


@settings(max_examples=60)
@given(st.data(), st.integers(30, 70), SEEDS)
def test_one_field_of_one_original_decides(data: st.DataObject, n: int, seed: int) -> None:
    with world_of(n, seed) as world:
        index = data.draw(st.sampled_from([index for members in world.clusters for index in members]))
        bent = data.draw(st.sampled_from(BENT))
        world.records[index] = world.records[index] | bent
        assert world.judge().exit_code == 1


@settings(max_examples=60)
@given(SIZES, SEEDS, st.randoms())
def test_order_and_spelling_of_the_original_do_not_matter(n: int, seed: int, chance: random.Random) -> None:
    with world_of(n, seed) as world:
        place = list(range(n))
        chance.shuffle(place)
        lines = [""] * n
        for index, record in enumerate(world.records):
            respelled = dict(reversed(record.items())) | {"patient": f" {record['patient']}\t"}
            lines[place[index]] = json.dumps(respelled, indent=1).replace("\n", "  ").replace("0,", "0e0,")
        for line in world.evidence:
            line["offsets"] = [place[index] for index in line["offsets"]]
        world.original_lines = lines
        verdict = world.judge()
        assert verdict.exit_code == 0, verdict.text()
