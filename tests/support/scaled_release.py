"""A small release written by hand, with an attribute of every scale, in the forms of a stream, a table and nested JSON.

What each cluster publishes stands here as a literal. No code of Shoal computes it.
"""

from __future__ import annotations

import csv
import io
import json
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.making import policy_of
from support.release_files import Judgement, judge_files

Record = dict[str, Any]

FORMS = ("jsonl", "csv", "table", "nested")

_TREE = {"any": {"heart": ["I21", "I50"], "lung": ["J18", "J45"]}}
_ATTRIBUTES: dict[str, Record] = {
    "patient": {"role": "identifier", "subject": True},
    "stage": {"role": "quasi_identifier", "scale": "ordinal", "order": ["I", "II", "III", 4]},
    "sex": {"role": "quasi_identifier", "scale": "nominal"},
    "code": {"role": "quasi_identifier", "scale": "nominal", "taxonomy": _TREE},
    "job": {"role": "quasi_identifier", "scale": "nominal", "taxonomy": _TREE, "publish": "mode", "missing": "group"},
    "born": {
        "role": "quasi_identifier",
        "scale": "time",
        "bounds": ["1900-01-01", "2020-12-31"],
        "resolution": "month",
    },
    "mass": {"role": "quasi_identifier", "bounds": [0, 200], "resolution": 1, "missing": "group"},
    "ward": {"role": "steering", "scale": "nominal"},
    "tag": {"role": "confidential", "type": "string", "publish_unchanged": True},
}
_NAMES = [name for name in _ATTRIBUTES if name not in {"patient", "ward"}]
_COLUMNS = ("stage", "sex", "code", "job", "born", "mass", "ward")
_ROWS = (
    ("I", "M", "I21", "J18", "1950-01-10", 70, "a"),
    ("II", "F", "I21", None, "1950-01-20", 71, "a"),
    ("II", "M", "I50", "J18", "1950-02-01", 72, "b"),
    (4, "F", "I21", "I21", "1950-01-25", 75, "b"),
    ("III", "M", "I21", None, "1980-05-01", None, "a"),
    ("III", "M", "J18", None, "1980-06-01", None, "a"),
    ("I", "M", "J45", None, "1980-06-02", 60, "b"),
    ("I", "F", "J45", "J45", "1980-07-01", None, "b"),
    (4, "X", "Z99", "J45", "2000-01-01", 80, "a"),
    (4, "X", "Z99", "J18", "2000-01-01", 81, "a"),
    (4, "X", "Z99", "J45", "2000-01-01", 82, "a"),
    (4, "M", "Z99", "J18", "2000-01-01", None, "a"),
)
_PUBLISHED: tuple[Record, ...] = (
    {"stage": "II", "sex": "F", "code": "heart", "job": "J18", "born": "1950-02-01", "mass": 72},
    {"stage": "I", "sex": "M", "code": "any", "job": None, "born": "1980-06-01", "mass": None},
    {"stage": 4, "sex": "X", "code": "Z99", "job": "J18", "born": "2000-01-01", "mass": 81},
)
_IN_TABLE = {"sex": "M"}
"""Of equally frequent categories, a table publishes the one that is more frequent in the whole table."""


def _records() -> list[Record]:
    rows = (dict(zip(_COLUMNS, row, strict=True)) for row in _ROWS)
    return [{"patient": f"p{number}", **row, "tag": f"t{number:02}"} for number, row in enumerate(rows)]


@dataclass
class ScaledRelease:
    """A release that can be falsified before it is judged.

    ``published``: values of each cluster. ``clusters``: members, as indexes of records. ``changes``: published fields
    of single records that differ from those of their cluster. ``document``: the policy that the judge is given.
    ``made_under``: the policy whose fingerprint the evidence names. ``deleted``: records of which the original has the
    message that deletes them; only of nested JSON.
    """

    form: str = "jsonl"
    records: list[Record] = field(default_factory=_records)
    published: list[Record] = field(default_factory=lambda: [dict(one) for one in _PUBLISHED])
    clusters: list[list[int]] = field(default_factory=lambda: [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    changes: dict[int, Record] = field(default_factory=dict)
    document: Record = field(default_factory=dict)
    made_under: Record = field(default_factory=dict)
    summary: Record | None = None
    has_evidence: bool = True
    deleted: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.document = _document(self.form)
        self.made_under = deepcopy(self.document)

    def judged(self, folder: Path) -> Judgement:
        """Write the files into a folder, and return what the judge says."""
        suffix = "csv" if self.form == "csv" else "jsonl"
        fingerprint = policy_of(**self.made_under).fingerprint
        files = {f"original.{suffix}": self._original(), f"released.{suffix}": self._released()}
        if self.has_evidence:
            lines = (
                {"partition": 0, "cluster": number, "offsets": members, "policy": fingerprint}
                for number, members in enumerate(self.clusters)
            )
            files["evidence.jsonl"] = "".join(f"{json.dumps(line)}\n" for line in lines)
        if self.summary is not None:
            files["summary.json"] = json.dumps(self.summary)
        return judge_files(self.document, folder, files)

    def _original(self) -> str:
        if self.form == "csv":
            return _csv(list(self.records[0]), self.records)
        records = self.records
        if self.form == "nested":
            records = [_nested_record(one, is_delete=number in self.deleted) for number, one in enumerate(records)]
        return "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in records)

    def _released(self) -> str:
        rows = []
        for members, published in zip(self.clusters, self.published, strict=True):
            found = [self._row(index, published | self.changes.get(index, {})) for index in members]
            rows += sorted(found, key=str.encode)
        if self.form == "table":
            rows.sort(key=str.encode)
        header = [",".join(_NAMES)] if self.form == "csv" else []
        return "".join(f"{row}\n" for row in [*header, *rows])

    def _row(self, index: int, published: Record) -> str:
        row = {**published, "tag": self.records[index]["tag"]} | self.changes.get(index, {})
        if self.form == "csv":
            return _csv_line([row[name] for name in row])
        return json.dumps(_nested_row(row) if self.form == "nested" else row, ensure_ascii=False, separators=(",", ":"))


def scaled(form: str = "jsonl") -> ScaledRelease:
    """Return the sound release."""
    release = ScaledRelease(form)
    if form == "table":
        release.published[0] |= _IN_TABLE
    return release


def _document(form: str) -> Record:
    document: Record = {
        "attributes": deepcopy(_ATTRIBUTES),
        "privacy": {"k": 3},
        "steering": {"by": [{"attribute": "ward", "weight": 0.5}]},
        "missing_values": ["", "?"],
    }
    if form != "table":
        document["stream"] = {"delta": 11, "rule": "nearest"}
    if form == "nested":
        document["unwrap"], document["deletes"] = "debezium", "drop"
        attributes = document["attributes"]
        for name in ("code", "stage"):
            attributes[name] |= {"from": f"value.case.{name}", "to": f"case.{name}"}
        attributes["born"] |= {"from": "value.person.birth.date", "to": "person.born"}
        attributes["patient"]["from"] = "value.person.id"
    return document


def _nested_record(record: Record, *, is_delete: bool) -> Record:
    """Return a record in an envelope of Debezium."""
    inside = {name: record[name] for name in record if name not in {"code", "stage", "born", "patient"}}
    person = {"id": record["patient"], "birth": {"date": record["born"]}}
    case = {"code": record["code"], "stage": record["stage"]}
    row = {"person": person, "case": case, **inside}
    before, after = (row, None) if is_delete else (None, row)
    return {"before": before, "after": after, "op": "d" if is_delete else "c", "ts_ms": 1, "source": {}}


def _nested_row(row: Record) -> Record:
    """Return a row with its fields inside objects, in the order of the policy."""
    found: Record = {}
    places = {"stage": ("case", "stage"), "code": ("case", "code"), "born": ("person", "born")}
    for name, value in row.items():
        *above, last = places.get(name, name.split("."))
        inner = found
        for one in above:
            inner = inner.setdefault(one, {})
        inner[last] = value
    return found


def _csv(names: list[str], records: list[Record]) -> str:
    return "".join(f"{line}\n" for line in (",".join(names), *(_csv_line(list(one.values())) for one in records)))


def _csv_line(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(["" if value is None else value for value in values])
    return text.getvalue()
