"""Workbooks of Excel: a table is released and judged, drafted, or refused with what to do."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from shoal.audit import verify
from shoal.errors import ConfigError, InputError
from shoal.files import run_sample
from shoal.formats import format_named
from shoal.policy import Policy
from support.commands import run_command

pytestmark = pytest.mark.unit

HEADER = ["who", "age", "born", "seen", "sex", "paid", "ill"]
ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110]},
    "born": {"role": "quasi_identifier", "scale": "time", "resolution": "year"},
    "seen": {"role": "quasi_identifier", "scale": "time", "resolution": "h"},
    "sex": {"role": "quasi_identifier", "scale": "nominal", "missing": "group"},
    "paid": {"role": "confidential", "type": "number"},
    "ill": {"role": "confidential"},
}


def rows_of() -> list[list[Any]]:
    seen = datetime(2026, 1, 1)  # noqa: DTZ001 - a workbook has no zones
    return [
        [f"p{i}", 20 + i, date(1950 + i, 3, 1), seen + timedelta(hours=i * 6), "fm"[i % 2], i / 4, i % 3 == 0]
        for i in range(12)
    ]


def write(folder: Path, header: list[Any], rows: list[list[Any]], *, others: int = 1) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    for row in [header, *rows]:
        sheet.append(row)
    for number in range(others):
        book.create_sheet().append([] if others == 1 else [number])
    path = folder / "in.xlsx"
    book.save(path)
    document = {"attributes": ATTRIBUTES, "privacy": {"k": 3}}
    (folder / "policy.yaml").write_text(json.dumps(document))
    return path


def test_a_workbook_is_released_as_a_table_and_judged(tmp_path: Path) -> None:
    rows = [*rows_of(), [None] * 7, ["p12", 40, date(1980, 1, 1), date(2026, 1, 2), None, None, "x"]]
    source = write(tmp_path, HEADER, rows)
    words = ["-i", str(source), "-o", "out.csv", "--evidence", "e.jsonl", "--summary", "s.json"]
    ended = run_command("batch", "policy.yaml", *words, folder=tmp_path)
    assert "13 in, 13 out, 0 suppressed, 0 refused" in ended.stderr.decode(), ended.stderr.decode()
    paths = [tmp_path / name for name in ("out.csv", "e.jsonl", "s.json")]
    verdict = verify(Policy.load(tmp_path / "policy.yaml"), source, *paths, table=True)
    assert verdict.exit_code == 0, verdict.text()
    published = [line.split(",")[-2:] for line in paths[0].read_text().splitlines()[1:]]
    assert sorted(one for one, _ in published) == sorted(["", "0", "1", "2", *(str(i / 4) for i in range(12) if i % 4)])
    assert sorted(one for _, one in published) == ["false"] * 8 + ["true"] * 4 + ["x"]


def test_a_draft_of_a_workbook_releases_it(tmp_path: Path) -> None:
    source = write(tmp_path, HEADER, rows_of() * 20)
    made = run_command("init", str(source), "-o", "draft.yaml", "--subject", "who", folder=tmp_path)
    assert made.returncode == 0, made.stderr.decode()
    policy = Policy.load(tmp_path / "draft.yaml")
    assert (policy.attributes[2].scale, policy.attributes[2].formats, policy.stream) == ("time", (), None)
    report = run_sample(policy, str(source), None, 1000)
    assert report.released == report.records_in == 240


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ([*HEADER[:2], None, *HEADER[3:]], [], "row 1: column C has no name; split merged cells"),
        ([*HEADER[:6], "age"], [], "row 1: columns B and G have one name"),
        ([*HEADER, None, "note"], [], "row 1: column H has no name"),
        ([*HEADER, "note"], [], "column 'note' is not declared; declare it, or set undeclared: drop"),
        (HEADER[:6], [], "column 'ill' is missing"),
        (HEADER, ["p", 1, "#N/A"], "row 14, column C: an error of a formula, such as #N/A; correct it, or empty"),
        (HEADER, ["p", 1, timedelta(hours=1)], "row 14, column C: a duration; write it as a number"),
        (HEADER, ["p", 1, *[None] * 7, "x"], "row 14, column J: the column has no name"),
    ],
)
def test_a_sheet_that_is_no_table_is_refused(tmp_path: Path, header: list[Any], row: list[Any], said: str) -> None:
    source = write(tmp_path, header, [*rows_of(), *([row] if row else [])])
    with pytest.raises(InputError) as caught:
        run_sample(Policy.load(tmp_path / "policy.yaml"), str(source), None, 1000)
    assert said in str(caught.value)


def test_a_file_that_is_no_workbook_or_has_several_tables_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, HEADER, rows_of(), others=2)
    policy = Policy.load(tmp_path / "policy.yaml")
    with pytest.raises(InputError, match="3 sheets have cells; save the one with the records as a file of its own"):
        run_sample(policy, str(source), None, 1000)
    source.write_bytes(b"PK not")
    with pytest.raises(InputError, match="not a workbook of Excel"):
        run_sample(policy, str(source), None, 1000)
    with pytest.raises(ConfigError, match="read only; give -o"):
        format_named("xlsx").load().encoder(policy)
