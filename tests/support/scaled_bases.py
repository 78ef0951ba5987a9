"""Sound releases with an attribute of every scale, made by a generator of their own: no code of Shoal forms clusters."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

from support.cheat_base import Base, Record, timestamp_of
from support.scale_shape import ATTRIBUTES, ScaleShape, random_values

__all__ = ["SCALED_BASES", "scaled_base"]

SCALED_BASES = ("stream of scales", "table of scales", "ordered", "topic of scales", "stream of scales csv")
_BROKEN = ("{", '{"patient": "p1"}')
_UNFIT = ({"stage": "V"}, {"born": "1955-02-29"}, {"mass": "heavy"}, {"code": None})
"""Values that make a record unusable."""


def _document(name: str, k: int, delta: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "attributes": deepcopy(ATTRIBUTES),
        "privacy": {"k": k},
        "missing_values": ["", "?"],
    }
    if not name.startswith("table"):
        release = "ordered" if name.endswith("ordered") else "cluster"
        document["stream"] = {"delta": delta, "rule": "nearest", "release": release}
    return document


@cache
def scaled_base(name: str, count: int = 90, *, k: int = 3, delta: int = 30, seed: int = 1) -> Base:
    """Return the base of a seed: its records are grouped in the order of their arrival."""
    for number in range(100):
        found = _drawn(name, count, k, delta, Random(f"{name}{seed}{number}"))
        if found is not None:
            return found
    raise AssertionError(name)


def _drawn(name: str, count: int, k: int, delta: int, random: Random) -> Base | None:
    records: list[Record | None] = [
        {"patient": f"p{random.randrange(count // 2)}", **random_values(random), "tag": f"t{tag:04}", "ill": "flu"}
        for tag in random.sample(range(10_000), count)
    ]
    is_csv, is_table = name.endswith("csv"), name.startswith("table")
    if is_csv:  # a cell has no type
        records = [{**record, "sex": _cell(record["sex"])} for record in records if record]
    lines = [json.dumps(record) for record in records]
    if not is_table:
        for turn, place in enumerate(random.sample(range(count), 4)):
            lines[place], records[place] = json.dumps((records[place] or {}) | _UNFIT[turn]), None
    if not is_csv and not is_table:
        for line, place in zip(_BROKEN, random.sample(range(count), len(_BROKEN)), strict=True):
            lines[place], records[place] = line, None
    places = [(random.randrange(2) if name.startswith("topic") else 0, 7 * index) for index in range(count)]
    if not name.startswith("topic"):
        places = [(0, index) for index in range(count)]
    shape = ScaleShape(is_csv, is_table)
    clusters = _grouped(random, records, places, lambda members: _is_sound(members, k, shape), delta)
    if clusters is None:
        return None
    original = _csv_original(lines) if is_csv else "".join(f"{line}\n" for line in lines).encode()
    if name.startswith("topic"):
        original = _export(lines, places)
    document = _document(name, k, delta)
    return Base(name, document, original, tuple(records), tuple(places), tuple(map(tuple, clusters)), shape)


def _is_sound(members: Sequence[Record], k: int, shape: ScaleShape) -> bool:
    people = Counter(record["patient"] for record in members)
    return len(people) >= k and 2 * max(people.values()) <= len(members) and not shape.faults(members)


def _grouped(
    random: Random,
    records: Sequence[Record | None],
    places: Sequence[tuple[int, int]],
    is_sound: Callable[[Sequence[Record]], bool],
    delta: int,
) -> list[list[int]] | None:
    """Return clusters in the order of their oldest records; None if some records are left over.

    Up to two clusters of a partition are open. A record joins one of them at random.
    """
    closed: list[list[int]] = []
    for partition in sorted({partition for partition, _ in places}):
        open_: list[list[int]] = [[], []]
        own: list[list[int]] = []
        for index, record in enumerate(records):
            if record is None or places[index][0] != partition:
                continue
            chosen = random.choice(open_)
            chosen.append(index)
            if is_sound([one for one in map(records.__getitem__, chosen) if one]) and random.random() < 0.7:
                own.append(list(chosen))
                chosen.clear()
        rest = sorted(index for members in open_ for index in members)
        if rest and own:
            own[-1] += rest
        if not all(is_sound([one for one in map(records.__getitem__, members) if one]) for members in own):
            return None
        ranks = {index: rank for rank, index in enumerate(sorted(index for members in own for index in members))}
        if any(ranks[max(members)] - ranks[min(members)] > delta // 2 for members in own):
            return None
        closed += own
    return sorted(closed, key=min)


def _export(lines: Sequence[str], places: Sequence[tuple[int, int]]) -> bytes:
    exported = (
        {"partition": partition, "offset": offset, "value": line, "timestamp": timestamp_of(index)}
        for index, ((partition, offset), line) in enumerate(zip(places, lines, strict=True))
    )
    return "".join(f"{json.dumps(line)}\n" for line in exported).encode()


def _csv_original(lines: Sequence[str]) -> bytes:
    text = io.StringIO()
    records = [json.loads(line) for line in lines]
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(record)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
