"""A format that Shoal does not have is one class and one entry: here lines of ``name=value;name=value``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from shoal.errors import ConfigError
from shoal.formats import (
    CsvEncoder,
    Format,
    FormatEntry,
    JsonEncoder,
    ReadOptions,
    RecordEncoder,
    RecordFault,
    RecordSource,
    format_named,
    message_format,
)
from shoal.formats import format as registry
from shoal.formats.csv import CsvCellEncoder, CsvCells, CsvDecoder
from shoal.formats.encoder import OutputField
from shoal.formats.format import JsonLinesReader
from shoal.policy import Policy
from support.commands import run_command
from support.making import usual_policy

pytestmark = pytest.mark.unit

POLICY: dict[str, Any] = {
    "attributes": {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
        "job": {"role": "quasi_identifier", "scale": "nominal"},
        "note": {"role": "confidential", "type": "string"},
    },
    "privacy": {"k": 2},
    "stream": {"delta": 4},
}
ROWS = [(f"p{number}", 20 + number % 7, "ab"[number % 2], f"n{number}") for number in range(20)]
PAIRS = "".join(f"note={note};who={who};age={age};job={job}\n" for who, age, job, note in ROWS)
CSV = "who,age,job,note\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS)


class PairsFormat(Format):
    def read(self, stream: BinaryIO, policy: Policy, encoder: RecordEncoder, options: ReadOptions) -> RecordSource:
        _, max_bytes, with_columns, _ = options
        decoder = CsvDecoder(policy, encoder=encoder, max_bytes=max_bytes, with_columns=with_columns)
        names = [attribute.name for attribute in policy.attributes]

        def cells(line: bytes) -> CsvCells:
            pairs = dict(pair.split("=", 1) for pair in line.decode().split(";") if "=" in pair)
            return [pairs[name] for name in names] if pairs.keys() == set(names) else None

        def blocks() -> Iterator[tuple[Any, list[CsvCells]]]:
            for lines in JsonLinesReader(stream, max_bytes=max_bytes):
                records = list(map(cells, lines))
                yield decoder.decode(records), records

        def explain(record: CsvCells) -> list[RecordFault]:
            return [RecordFault("not pairs of a name and a value")] if record is None else decoder.explain(record)

        return RecordSource(blocks(), explain)

    def encoder(self, policy: Policy) -> RecordEncoder:
        cells = CsvCellEncoder(policy.csv_output)
        return RecordEncoder(
            policy,
            list(map(OutputField, policy.published)),
            lambda field: field.attribute.name.encode() + b"=%b",
            cells.encode_column,
            cells.encode_json_texts,
            delimiter=b";",
            encode_scalar=cells.encode_scalar,
        )


@pytest.fixture(autouse=True)
def _pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = FormatEntry("pairs", "Pairs", (".pairs",), f"{__name__}:PairsFormat")
    monkeypatch.setattr(registry, "_ENTRIES", {**registry._ENTRIES, "pairs": entry})


def released(folder: Path, command: str, source: str, target: str) -> list[dict[str, str]]:
    """Release the records from one format to another; return the rows."""
    (folder / "policy.yaml").write_text(json.dumps(POLICY))
    (folder / "in.pairs").write_text(PAIRS)
    (folder / "in.csv").write_text(CSV)
    out = folder / f"out.{target}"
    ended = run_command(command, "policy.yaml", "-i", f"in.{source}", "-o", out.name, folder=folder)
    assert ended.returncode == 0, ended.stderr
    first, *lines = out.read_text().splitlines()
    if target == "csv":
        return [dict(zip(first.split(","), line.split(","), strict=True)) for line in lines]
    return [dict(pair.split("=") for pair in line.split(";")) for line in (first, *lines)]


@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_commands_read_and_write_a_format_of_the_list(tmp_path: Path, command: str) -> None:
    usual = released(tmp_path, command, "csv", "csv")
    assert len(usual) == 20
    assert list(usual[0]) == ["age", "job", "note"]
    assert released(tmp_path, command, "pairs", "csv") == usual
    assert released(tmp_path, command, "csv", "pairs") == usual
    assert released(tmp_path, command, "pairs", "pairs") == usual


def test_pipes_name_the_format_and_refused_records_are_explained(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    arguments = ("policy.yaml", "--format", "pairs")
    ended = run_command("pipe", *arguments, stdin=PAIRS.encode() + b"who=secret\n", folder=tmp_path)
    assert (ended.returncode, ended.stdout.count(b";note=n")) == (0, 20)
    assert b"1 of 21 undecodable: not pairs of a name and a value" in ended.stderr
    text = PAIRS.encode().replace(b"age=25", b"age=secret", 1)
    ended = run_command("batch", *arguments, stdin=text, folder=tmp_path)
    assert ended.returncode == 2
    assert b"standard input, line 6, column 2 (age): not a finite number" in ended.stderr
    assert b"secret" not in ended.stderr
    assert b"--format jsonl or --format pairs" in run_command("pipe", "policy.yaml", folder=tmp_path).stderr


def test_a_format_is_loaded_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(format_named("csv").load().encoder(usual_policy())) is CsvEncoder
    messages = message_format(usual_policy())
    assert type(messages.encoder(usual_policy())) is JsonEncoder
    (fault,) = messages.decoder(usual_policy()).explain(b"7")
    assert fault.reason == "not a JSON object"
    with pytest.raises(ConfigError, match="--format: unknown format; give one of csv, jsonl, parquet, xlsx, pairs"):
        format_named("xml")
    monkeypatch.setitem(sys.modules, "shoal.formats.parquet", None)
    with pytest.raises(ConfigError, match=r"Parquet needs pyarrow: install shoal\[parquet\]"):
        format_named("parquet").load()
