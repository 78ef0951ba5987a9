"""Records that are read as columns are those that are read one by one, whatever the lines between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from shoal.audit import fields, reading, releases
from shoal.audit.originals import read_originals
from shoal.audit.reading import Form, InputFile
from shoal.audit.releases import read_release
from shoal.audit.scales import PublishedCategories, published_values
from shoal.policy import Policy
from support.making import SUBJECT, policy_of, quasi

pytestmark = pytest.mark.unit

JSON_ESCAPE = r'"a\u0062"'
NUMBERS = [
    "0",
    "7",
    "007",
    "-0",
    "+5",
    "1e1",
    "12.50",
    "99",
    "250",
    "-3",
    "1e999",
    " 8",
    "1_0",
    "nan",
    ".5",
    "5.",
    "",
    "-9",
]
TEXTS = ["a", "b", "Ab", "A b", "é", "ﬁ", "who", "true", "7", "", " a", "x" * 50, "a\tb", "-9"]
JSON_ONLY = ["null", "true", "1.0", "1e2", "3", JSON_ESCAPE, "[1]", "{}", "12345678901234567890"]
ODD_LINES = {
    "jsonl": ["", "{", '{"who":"a"}', '{"who":1,"who":2}', "[]", "null", '{"age":1,"who":"x"}', "é", "\udcff"],
    "csv": ["", "a,b", '"a","3",x,y,z,q,b', "who,age,size,job,grade,note,other", 'a,"b', '"', "\udcff,1,2,3,4,5,6",
      "a,1\r,2,3,4,5,6"],
}  # fmt: skip
NAMES = ("who", "age", "size", "job", "grade", "note", "other")


def policy(kind: str, **more: Any) -> Policy:
    return policy_of(
        {
            "who": {**SUBJECT, "type": kind},
            "age": quasi(0, 100, resolution=0.5),
            "size": quasi(0, 200, integer=True, missing="group"),
            "job": {"role": "quasi_identifier", "scale": "nominal"},
            "grade": {"role": "quasi_identifier", "scale": "ordinal", "order": ["a", "b", "7"], "missing": "group"},
            "note": {"role": "confidential", "type": "string"},
            "other": {"role": "identifier"},
        },
        **more,
    )


def lines(random: Random, form: str, count: int) -> list[str]:
    """Return lines of which most have numbers and texts where the policy wants them."""
    found = []
    for _ in range(count):
        if random.random() < 0.02:
            found.append(random.choice(ODD_LINES[form]))
            continue
        pools = [
            TEXTS if random.random() < 0.5 else NUMBERS,
            ["30", "7", "250"],
            ["8", "90"],
            TEXTS,
            ["a", "b"],
            TEXTS,
            TEXTS,
        ]
        cells = [random.choice(pool if random.random() < 0.97 else NUMBERS + TEXTS) for pool in pools]
        if form == "csv":
            found.append(",".join(cells))
            continue
        texts = [
            one if place in {1, 2} and one.isdecimal() else json.dumps(one, ensure_ascii=False)
            for place, one in enumerate(cells)
        ]
        texts = [one if random.random() < 0.98 else random.choice(JSON_ONLY) for one in texts]
        found.append("{" + ", ".join(f'"{name}": {text}' for name, text in zip(NAMES, texts, strict=True)) + "}")
    return found


def seen(found: Any, categories: Sequence[str]) -> dict[str, Any]:
    """Return what was read of an original, with equal codes for equal subjects, and texts for codes of categories."""
    _, subjects = np.unique(found.subjects, return_inverse=True)
    firsts = {code: place for place, code in reversed(list(enumerate(subjects.tolist())))}
    return {
        "values": str(np.delete(found.values, 2, axis=1).tolist()),
        "jobs": [categories[int(code)] for code in found.values[found.subjects >= 0, 2]],
        "usable": (found.subjects >= 0).tolist(),
        "subjects": [firsts[code] for code in subjects.tolist()],
        "unchanged": list(found.unchanged),
        "large": found.is_above_limit.tolist(),
        "clipped": found.tallies.clipped,
        "copies": found.tallies.copies,
        "people": found.tallies.people,
    }


def records_of(given: Policy, path: Path) -> dict[str, Any]:
    shown = published_values(given, "jsonl", table=True, has_table_grids=False)
    found = read_originals(given, InputFile.of(path, given.csv), "jsonl", published=shown)
    return seen(found, cast("PublishedCategories", shown[2]).categories.texts)


def read_both_ways(monkeypatch: pytest.MonkeyPatch, read: Callable[[], Any]) -> tuple[Any, Any]:
    one = read()
    with monkeypatch.context() as patch:
        patch.setattr(fields.RecordReader, "columns_of", lambda *_: ())
        patch.setattr(releases._RowChecker, "columns_of", lambda *_: ())
        return one, read()


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("any", {}),
        ("integer", {"missing_values": ["-9", ""]}),
        ("string", {"undeclared": "quarantine", "out_of_bounds": "quarantine"}),
    ],
)
def test_columns_of_an_original_are_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, kind: str, more: dict[str, Any]
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 2000)
    given, random = policy(kind, **more), Random(f"{form} {kind}")
    for ending in ("\n", "\r\n", "\n\n"):
        texts = lines(random, form, 400)
        path = tmp_path / f"original.{form}"
        header = [",".join(NAMES)] if form == "csv" else []
        path.write_bytes((ending.join([*header, *texts]) + ending).encode(errors="surrogateescape"))

        one, other = read_both_ways(monkeypatch, partial(records_of, given, path))
        assert one == other
        assert 0 < sum(one["usable"]) < len(one["usable"])


ROWS = {
    "jsonl": [
        *(
            f'{{"age":{age},"size":{size},"job":"{job}","grade":"a","note":"n"}}'
            for age in ("30.0", "31.5")
            for size in (8, "null")
            for job in "ab"
        ),
        '{"age":30.0,"size":8,"job":7,"grade":null,"note":"n"}',
    ],
    "csv": [f"{age},{size},{job},a,n" for age in ("30.0", "31.5") for size in ("8", "") for job in "ab"],
}
BROKEN_ROWS = {
    "jsonl": [
        '{"age":30 ,"size":8,"job":"a","grade":"a","note":"n"}',
        '{"age":30,"size":8,"job":"a","grade":"a","note":"n"}\r',
        '{"age":1e1,"size":8,"job":"a","grade":"a","note":"n"}',
        '{"age":30,"size":8,"job":7.0,"grade":"z","note":5}',
        '{"age":300,"size":8,"job":"a","grade":"a","note":"n","who":1}',
        '{"age":30,"size":8,"job":"\\u0061","grade":"a","note":"n"}',
        "",
    ],
    "csv": [
        '"30",8,a,a,n',
        "30,8,a",
        "030,8,a,a,n",
        "30,8,a,z,n",
        "300,8,a,a,n",
        "30,8,a,a,n\r",
        "",
        '30,8,"a\nb",a,n',
    ],
}


def rows_of(given: Policy, form: Form, path: Path) -> tuple[Any, ...]:
    shown = published_values(given, form, table=True, has_table_grids=False)
    original = InputFile.of("original.jsonl", given.csv)
    found = read_release(given, InputFile.of(path, given.csv_output), shown, original=original)
    (rows,) = found.by_partition.values()
    ascends = [rows.is_ascending(place) for place in range(len(rows))]
    return found.checks, list(rows.quasi), list(rows.unchanged), list(rows.lines), ascends


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_columns_of_a_release_are_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 500)
    given, random = policy("any"), Random(form)
    for share in (0.0, 0.02):
        header = ["age,size,job,grade,note"] if form == "csv" else []
        texts = [random.choice(BROKEN_ROWS[form] if random.random() < share else ROWS[form]) for _ in range(300)]
        path = tmp_path / f"released.{form}"
        path.write_bytes(("\n".join([*header, *texts]) + "\n").encode())

        one, other = read_both_ways(monkeypatch, partial(rows_of, given, form, path))
        assert one == other
        assert any(check.failed for check in one[0]) == bool(share)


def test_lines_of_which_no_column_is_wanted_need_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SCALAR", "(")  # a pattern with it does not compile
    lines = [b'{"a":1,"b":2}', b"x"]
    assert list(reading.json_parts([lines], ["a", "b"], (), is_original=False)) == lines
