"""The CSV dialect changes how a release is written, but not which values are released."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shoal.audit import Verdict, verify
from shoal.errors import InputError
from shoal.files import Files, run_pipe
from shoal.formats.csv import CsvReader
from shoal.policy import CsvDialect, Policy
from support.by_night import by_day

pytestmark = pytest.mark.property

ATTRIBUTES = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
    "pay": {"role": "quasi_identifier", "bounds": [0, 1000], "resolution": 0.5},
    "ill": {"role": "confidential", "type": "string"},
    "dose": {"role": "confidential", "type": "number"},
    "note": {"role": "confidential", "type": "any"},
}
LETTERS = st.text(st.sampled_from("aé,;|\t\"'\\\r\n.0 €"), max_size=6)
ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
DIALECTS = st.fixed_dictionaries(
    {
        "delimiter": st.sampled_from([";", "\t", "|"]),
        "quote": st.sampled_from("\"'"),
        "escape": st.sampled_from(["doubled", "backslash"]),
        "decimal": st.sampled_from(".,"),
        "encoding": st.sampled_from(
            ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "iso-8859-15"]
        ),
        "line_end": st.sampled_from(["lf", "crlf", "cr"]),
    }
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.integers(-3, 120),
        st.integers(-10, 2010).map(lambda n: n / 2),
        LETTERS,
        st.none() | st.integers(-50, 50).map(lambda n: n / 8),
        LETTERS,
    ),
    min_size=8,
    max_size=40,
)
Row = tuple[int, int, float, str, float | None, str]


def policy_of(folder: Path, **csv_section: Any) -> Policy:
    path = folder / "policy.json.yaml"
    csv_part = {"csv": csv_section} if csv_section else {}
    path.write_text(json.dumps({"attributes": ATTRIBUTES, "privacy": {"k": 2}, "stream": {"delta": 6}} | csv_part))
    return Policy.load(path)


def written(rows: list[Row], dialect: dict[str, str], path: Path) -> None:
    """Write records with the standard library. All cells are quoted."""

    def number(value: float | None) -> str:
        return "" if value is None else repr(value).replace(".", dialect["decimal"])

    doubled = dialect["escape"] == "doubled"
    text = io.StringIO(newline="")
    writer = csv.writer(
        text,
        delimiter=dialect["delimiter"],
        quotechar=dialect["quote"],
        doublequote=doubled,
        escapechar=None if doubled else "\\",
        quoting=csv.QUOTE_ALL,
        lineterminator=ENDS[dialect["line_end"]],
    )
    writer.writerow(ATTRIBUTES)
    for who, age, pay, ill, dose, note in rows:
        writer.writerow([number(who / 2), str(age), number(pay), ill, number(dose), note])
    path.write_bytes(text.getvalue().encode(dialect["encoding"]))


USUAL = {"delimiter": ",", "quote": '"', "escape": "doubled", "decimal": ".", "encoding": "utf-8", "line_end": "lf"}


def released(folder: Path, policy: Policy, name: str, target: str = "out.csv") -> tuple[Path, Verdict]:
    names = [folder / one for one in (name, f"{name}.{target}", f"{name}.evidence", f"{name}.summary")]
    source, out, evidence, summary = names
    run_pipe(policy, Files(str(source), str(out), evidence=str(evidence), summary=str(summary)))
    return out, verify(policy, source, out, evidence, summary)


def cells_of(path: Path, dialect: CsvDialect) -> list[list[str]]:
    """Read a file with the standard library only."""
    doubled = dialect.escape == "doubled"
    escapes = {"doublequote": doubled, "escapechar": None if doubled else "\\"}
    with path.open(encoding=dialect.encoding, newline=dialect.line_end) as file:
        return list(csv.reader(file, **dialect.reader_options | escapes))


@settings(max_examples=by_day(15, 60), deadline=None)
@given(ROWS, DIALECTS, DIALECTS | st.none())
def test_a_release_is_the_same_in_every_dialect(
    rows: list[Row], source: dict[str, str], target: dict[str, str] | None
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        usual, other = policy_of(folder), policy_of(folder, **source, **({} if target is None else {"output": target}))
        assert usual.fingerprint == other.fingerprint
        written(rows, USUAL, folder / "usual.csv")
        written(rows, source, folder / "other.csv")
        plain, verdict = released(folder, usual, "usual.csv")
        assert verdict.exit_code == 0, verdict.text()
        bent, verdict = released(folder, other, "other.csv")
        assert verdict.exit_code == 0, verdict.text()
        here, there = cells_of(plain, usual.csv_output), cells_of(bent, other.csv_output)
        if other.csv_output.decimal == ",":
            there = [
                [*(cell.replace(",", ".") for cell in row[:2]), row[2], row[3].replace(",", "."), row[4]]
                for row in there
            ]
        assert sorted(here) == sorted(there)
        left = [(folder / f"{one}.csv.evidence").read_bytes() for one in ("usual", "other")]
        assert left[0] == left[1]


@settings(max_examples=by_day(15, 40), deadline=None)
@given(ROWS, DIALECTS, st.data())
def test_verify_finds_one_changed_byte_in_any_dialect(
    rows: list[Row], dialect: dict[str, str], data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        policy = policy_of(folder, **dialect)
        written(rows, dialect, folder / "a.csv")
        out, _ = released(folder, policy, "a.csv")
        original = out.read_bytes()
        assume(len(original.splitlines()) > 1)
        bent = bytearray(original)
        place = data.draw(st.integers(4, len(original) - 4))
        bent[place] = (bent[place] + data.draw(st.integers(1, 255))) % 256
        out.write_bytes(bent)
        try:
            verdict = verify(policy, folder / "a.csv", out, folder / "a.csv.evidence")
        except InputError:
            return
        assert verdict.exit_code == 1, verdict.text()


@settings(max_examples=by_day(15, 60), deadline=None)
@given(ROWS, DIALECTS, st.integers(1, 7))
def test_a_file_is_read_alike_in_pieces_and_at_once(rows: list[Row], dialect: dict[str, str], size: int) -> None:
    class Pieces(io.BytesIO):
        def read1(self, count: int | None = -1, /) -> bytes:
            return super().read(min(size, count or size))

    with TemporaryDirectory() as name:
        folder = Path(name)
        policy = policy_of(folder, **dialect)
        written(rows, dialect, folder / "a.csv")
        text = (folder / "a.csv").read_bytes()
        at_once, in_pieces = (
            [record for part in CsvReader(stream, policy) for record in part]
            for stream in (io.BytesIO(text), Pieces(text))
        )
        assert at_once == in_pieces
        assert len(at_once) == len(rows)
