"""Sound releases with an attribute of every scale and with limits of confidential values.

Their clusters are formed by a generator of their own, without code of Shoal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

from support.base_releases import Base, Record, csv_original, exported
from support.scale_shape import ATTRIBUTES, ScaleShape, random_values
from support.value_limits import VALUE_LIMITS, ValueLimit

SCALED_BASES = (
    "stream of scales",
    "table of scales",
    "stream of scales, ordered",
    "topic of scales",
    "stream of scales, csv",
)
_BROKEN = ("{", '{"patient": "p1"}')
_UNFIT: tuple[Record, ...] = ({"stage": "V"}, {"born": "1955-02-29"}, {"mass": "heavy"}, {"code": None})
"""Values that make a record unusable."""


def _document(name: str, limit: ValueLimit, k: int, delta: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "attributes": deepcopy(ATTRIBUTES),
        "privacy": {"k": k, **limit.privacy},
        "missing_values": ["", "?"],
    }
    protect = {"protect": True} if limit.privacy else {}
    document["attributes"]["ill"] |= {**limit.attribute, **protect}
    if not name.startswith("table"):
        release = "ordered" if name.endswith("ordered") else "cluster"
        document["stream"] = {"delta": delta, "rule": "nearest", "release": release}
    return document


@cache
def scaled_base(name: str, limit: str = "none", count: int = 90, *, k: int = 3, seed: int = 1) -> Base:
    """Return the base of a seed: its records are grouped in the order of their arrival."""
    for number in range(100):
        found = _drawn(name, VALUE_LIMITS[limit], count, k, Random(f"{name}{limit}{seed}{number}"))
        if found is not None:
            return found
    raise AssertionError(name, limit)


def _drawn(name: str, limit: ValueLimit, count: int, k: int, random: Random) -> Base | None:
    delta = 90 if limit.privacy else 30
    truth, records, lines = _records(random, name, limit, count)
    places = [(random.randrange(2), 7 * index) for index in range(count)]
    if not name.startswith("topic"):
        places = [(0, index) for index in range(count)]
    shape = ScaleShape(name.endswith("csv"), name.startswith("table"), limit.exceeded, truth, bool(limit.privacy))
    everyone = [record for record in records if record is not None]

    def is_sound(members: Sequence[int]) -> bool:
        own = [record for index in members if (record := records[index]) is not None]
        people = Counter(record["patient"] for record in own)
        is_anonymous = len(people) >= k and 2 * max(people.values()) <= len(own)
        return is_anonymous and not shape.faults(own, everyone)

    clusters = _grouped(random, records, places, is_sound, delta)
    if clusters is None:
        return None
    if name.startswith("topic"):
        lines = exported(lines, places)
    original = "".join(f"{line}\n" for line in lines).encode()
    if shape.is_csv:
        original = csv_original([json.loads(line) for line in lines])
    document = _document(name, limit, k, delta)
    return Base(name, document, original, tuple(records), tuple(places), tuple(map(tuple, clusters)), shape)


def _records(
    random: Random, name: str, limit: ValueLimit, count: int
) -> tuple[dict[str, str], list[Record | None], list[str]]:
    """Return the true value of each tag, the records and their lines. Some records of a stream are unusable."""
    truth: dict[str, str] = {}
    made: list[Record] = []
    for tag in random.sample(range(10_000), count):
        drawn, written = limit.draw(random)
        truth[f"t{tag:04}"] = drawn
        values = random_values(random)
        if name.endswith("csv"):  # a cell has no type
            values, written = values | {"sex": _cell(values["sex"])}, "" if written is None else _cell(written)
        made.append({"patient": f"p{random.randrange(count // 2)}", **values, "tag": f"t{tag:04}", "ill": written})
    lines, records = [json.dumps(record) for record in made], list[Record | None](made)
    if not name.startswith("table"):
        for fault, place in zip(_UNFIT, random.sample(range(count), len(_UNFIT)), strict=True):
            lines[place], records[place] = json.dumps(made[place] | fault), None
        if not name.endswith("csv"):
            for line, place in zip(_BROKEN, random.sample(range(count), len(_BROKEN)), strict=True):
                lines[place], records[place] = line, None
    return truth, records, lines


def _grouped(
    random: Random,
    records: Sequence[Record | None],
    places: Sequence[tuple[int, int]],
    is_sound: Callable[[Sequence[int]], bool],
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
            if is_sound(chosen) and random.random() < 0.7:
                own.append(list(chosen))
                chosen.clear()
        rest = sorted(index for members in open_ for index in members)
        if rest and own:
            own[-1] += rest
        if not all(map(is_sound, own)):
            return None
        ranks = {index: rank for rank, index in enumerate(sorted(index for members in own for index in members))}
        if any(ranks[max(members)] - ranks[min(members)] > delta // 2 for members in own):
            return None
        closed += own
    return sorted(closed, key=min)


def _cell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
