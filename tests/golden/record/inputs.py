"""Tables and streams of the record: made by a fixed formula, so that no data set outside the repository is needed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FIRST_MS", "lines", "records", "write_table"]

FIRST_MS = 1_700_000_000_000
"""Timestamp of the first message (ms since 1970)."""

Record = dict[str, Any]

_WARDS = ("north", "south", "east", 'the "old" wing, 2nd floor')
_CODES = ("A00", "B20", "C50", "É41", "I10", "J45", "Z;9")


def numbers(seed: int) -> Iterator[int]:
    """Yield 31-bit numbers of a linear congruential generator modulo 2^63; the low bits are dropped."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 63)
        yield state >> 32


def records(count: int, seed: int, *, out_of_bounds: bool = True) -> list[Record]:
    """Return records of about ``count / 2`` persons whose values drift and cluster a little.

    ``age`` lies in [0, 110] and ``income`` in [0, 1000], but for one record in 23 where ``out_of_bounds`` is set.
    """
    draw = numbers(seed)
    made = []
    for place in range(count):
        group = next(draw) % 4
        age = (17 * group + next(draw) % 23 + place // 8) % 111
        income = (group * 210 + next(draw) % 16_000 / 100 + next(draw) % 5_000 / 100) % 1000
        made.append(
            {
                "who": f"p{next(draw) % max(8, count // 2)}",
                "age": 111 + next(draw) % 9 if out_of_bounds and place % 23 == 11 else age,
                "income": round(income, 2),
                "code": _CODES[(group + next(draw) % 3) % 7],
                "cost": (age * 7 + group * 50 + next(draw) % 120) / 4,
                "ward": _WARDS[next(draw) % 4],
            }
        )
    return made


def lines(made: Sequence[Record], form: str, fields: Sequence[str], *, broken: bool = False) -> list[str]:
    """Spell records as lines of a file: csv, jsonl, or messages, one per line; ``broken`` adds some that are none."""
    if form == "csv":
        spelled = [_cells(fields), *(_cells([one[name] for name in fields]) for one in made)]
    elif form == "jsonl":
        spelled = [json.dumps({name: one[name] for name in fields}, ensure_ascii=False) for one in made]
    else:
        spelled = [json.dumps(message(one, place, fields), ensure_ascii=False) for place, one in enumerate(made)]
    if broken and form == "jsonl":
        spelled[20:20] = ['{"who": "p1", "age": "old"', '{"who": "p1"}', '{"who": null, "age": 3, "income": 4}']
    elif broken and form == "csv":
        spelled[20:20] = ["p1,old" + "," * (len(fields) - 2), "p1,3"]
    elif broken:
        spelled[20:20] = [json.dumps(message(made[0], 0, fields) | {"value": value}) for value in (None, "{", "[]")]
    return spelled


def message(one: Record, place: int, fields: Sequence[str]) -> dict[str, Any]:
    """Return a record as a message with the subject in key and header and a fixed timestamp."""
    return {
        "timestamp": FIRST_MS + 137 * place,
        "key": one["who"],
        "headers": [["owner", one["who"]], ["other", "x"]],
        "value": json.dumps({name: one[name] for name in fields}, ensure_ascii=False),
    }


def _cells(cells: Sequence[object]) -> str:
    spelled = io.StringIO()
    csv.writer(spelled, lineterminator="").writerow(cells)
    return spelled.getvalue()


def write_table(path: Path, made: Sequence[Record], fields: Sequence[str]) -> None:
    """Write records as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: [one[name] for one in made] for name in fields}), path)
