"""What a cluster publishes of every scale, computed from the definitions, for releases that a test falsifies.

No code of Shoal is used. A missing value is None, an empty text or "?".
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import takewhile
from random import Random
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]
Columns: TypeAlias = dict[str, Callable[[Sequence[Any], Sequence[Any]], Any]]
"""What is published of each attribute, from the values of a cluster and of all released records."""

TREE: Any = {"any": {"heart": ["I21", "I50"], "lung": ["J18", "J45"]}}
ORDER = ("I", "II", "III", 4)
ATTRIBUTES: dict[str, Record] = {
    "patient": {"role": "identifier", "subject": True},
    "stage": {"role": "quasi_identifier", "scale": "ordinal", "order": list(ORDER), "missing": "group"},
    "sex": {"role": "quasi_identifier", "scale": "nominal", "missing": "group"},
    "code": {"role": "quasi_identifier", "scale": "nominal", "taxonomy": TREE},
    "job": {"role": "quasi_identifier", "scale": "nominal", "taxonomy": TREE, "publish": "median", "missing": "group"},
    "born": {"role": "quasi_identifier", "scale": "time", "bounds": ["1950-01-01", "1959-12-31"], "resolution": "day"},
    "mass": {"role": "quasi_identifier", "bounds": [40, 120], "resolution": 1, "missing": "group"},
    "tag": {"role": "confidential", "type": "string", "publish_unchanged": True},
    "ill": {"role": "confidential", "publish_unchanged": True},
}
_FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC)
_SPECIAL = (None, "", "?", "any", "heart", "lung", "I21", "Z99", "I", 4, "4", "M ", "1955-01-01", "1955-01", 80, 80.5)
"""Texts that an edited row may get in any column."""


def random_values(random: Random) -> Record:
    """Return values of all attributes but the patient, the tag and the illness, some of them missing."""
    born = _FIRST_DAY + timedelta(days=-7305 + random.randrange(3652))
    return {
        "stage": random.choice((*ORDER, *ORDER, None)),
        "sex": random.choice(("M", "F", "F", "X", True, 1, "?")),
        "code": random.choice(("I21", "I50", "J18", "J45", "Z99")),
        "job": random.choice(("I21", "I21", "I50", "J18", "J45", "", "Z99")),
        "born": born.date().isoformat(),
        "mass": random.choice((None, *(random.randrange(30, 130) for _ in range(3)))),
    }


# ---------------------------------------------------------------- published values


def _lower_median(values: Sequence[Any], _: Sequence[Any]) -> Any:
    ranks = sorted(ORDER.index(value) for value in values)
    return ORDER[ranks[(len(ranks) - 1) // 2]]


def _mode(values: Sequence[Any], everyone: Sequence[Any]) -> Any:
    """Return the most frequent value; of several, the one that is most frequent among all, then the first as JSON."""
    own, of_all = Counter(map(json.dumps, values)), Counter(map(json.dumps, everyone))
    return json.loads(min(own, key=lambda text: (-own[text], -of_all[text], text.encode())))


def _path(leaf: str) -> tuple[str, ...]:
    """Return the names from the root down to a leaf."""
    ((root, groups),) = TREE.items()
    return next(((root, group, leaf) for group, leaves in groups.items() if leaf in leaves), (root, leaf))


def _ancestor(values: Sequence[Any], _: Sequence[Any]) -> Any:
    levels = zip(*map(_path, values), strict=False)
    common = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels)]
    return common[-1]


def _tree_median(values: Sequence[Any], _: Sequence[Any]) -> Any:
    above = Counter(node for value in values for node in enumerate(_path(value)))
    return max(node for node, count in above.items() if 2 * count > len(values))[1]


def _mean_day(values: Sequence[Any], _: Sequence[Any]) -> Any:
    days = [(datetime.fromisoformat(value).replace(tzinfo=UTC) - _FIRST_DAY).days for value in values]
    return (_FIRST_DAY + timedelta(days=round(Fraction(sum(days), len(days))))).date().isoformat()


def _mean_mass(values: Sequence[Any], _: Sequence[Any]) -> Any:
    return round(Fraction(sum(min(max(value, 40), 120) for value in values), len(values)))


COLUMNS: Columns = {
    "stage": _lower_median,
    "sex": _mode,
    "code": _ancestor,
    "job": _tree_median,
    "born": _mean_day,
    "mass": _mean_mass,
}

Owned = tuple[Hashable, Hashable]  # a person and a true value


@dataclass(frozen=True)
class ScaleShape:
    """The rows of a release; ``broken`` says which limits people exceed, ``truth`` has the true value by tag."""

    is_csv: bool
    is_table: bool
    broken: Callable[[Sequence[Owned], Sequence[Owned]], set[str]] = lambda _records, _everyone: set()
    truth: Mapping[str, str] = field(default_factory=dict)
    has_value_limit: bool = False

    def faults(self, records: Sequence[Record], everyone: Sequence[Record]) -> set[str]:
        """Return which limits of confidential values the records of one cluster exceed."""
        owned, others = (
            [(record["patient"].strip(), self.truth[record["tag"]]) for record in part] for part in (records, everyone)
        )
        return self.broken(owned, others)

    @property
    def fields(self) -> tuple[str, ...]:
        return (*COLUMNS, "tag", "ill")

    def shown_of(self, records: Sequence[Record], everyone: Sequence[Record]) -> tuple[str, ...]:
        """Return what a cluster publishes, as JSON. In a stream the other clusters are not known."""
        found, people = [], {record["patient"].strip() for record in records}
        for name, publish in COLUMNS.items():
            owners = [record["patient"].strip() for record in records if record[name] not in {None, "", "?"}]
            present = [record[name] for record in records if record[name] not in {None, "", "?"}]
            others = [record[name] for record in everyone] if self.is_table else []
            shown = publish(present, others) if 2 * len(set(owners)) > len(people) else None
            found.append(json.dumps(shown, ensure_ascii=False))
        return tuple(found)

    def row(self, record: Record, shown: Sequence[str]) -> str:
        """Return a row: what a cluster publishes, and what the record publishes unchanged."""
        values = [*shown, *(json.dumps(record[name], ensure_ascii=False) for name in ("tag", "ill"))]
        if self.is_csv:
            text = io.StringIO()
            csv.writer(text, lineterminator="").writerow(map(_cell, map(json.loads, values)))
            return text.getvalue()
        return "{" + ",".join(f'"{name}":{value}' for name, value in zip(self.fields, values, strict=True)) + "}"

    def read(self, text: str) -> tuple[tuple[str, ...], str]:
        """Return the published values of a row as they are written, and its tag."""
        if self.is_csv:
            cells = next(csv.reader(io.StringIO(text), strict=True))
            return tuple(cells[: len(COLUMNS)]), cells[len(COLUMNS)]
        record = json.loads(text)
        return tuple(json.dumps(record[name]) for name in COLUMNS), record["tag"]

    def edited(self, text: str, place: int, shown: str) -> str:
        """Return a row with another published value, which is JSON, in one column."""
        if self.is_csv:
            cells = next(csv.reader(io.StringIO(text)))
            cells[place] = str(_cell(json.loads(shown)))
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow(cells)
            return line.getvalue()
        record = {name: json.dumps(value, ensure_ascii=False) for name, value in json.loads(text).items()}
        record[self.fields[place]] = shown
        return "{" + ",".join(f'"{name}":{value}' for name, value in record.items()) + "}"

    def another(self, random: Random, rows: Sequence[str]) -> tuple[int, str]:
        """Return a column, and a value of it in another row or any special one."""
        place = random.randrange(len(COLUMNS))
        if random.random() < 0.5 and not self.is_csv:
            return place, self.read(random.choice(rows))[0][place]
        return place, json.dumps(random.choice(_SPECIAL))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
