"""The judge needs little memory for each record, whatever the form of the files."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import clusters, fields, reading, verify
from shoal.policy import Policy
from support.making import policy_of

pytestmark = pytest.mark.unit

BYTES_PER_RECORD = 250
FEW, MANY = 1000, 5000
AMOUNT = {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 120], "resolution": 1}
AMOUNTS = ("age", "height", "weight", "visits")


def policy(**stream: Any) -> Policy:
    note = {"role": "other", "type": "string", "publish_unchanged": True}
    attributes = {"who": {"role": "identifier", "subject": True}, **dict.fromkeys(AMOUNTS, AMOUNT), "note": note}
    return policy_of(attributes, privacy={"k": 10}, stream={"delta": 100, **stream})


def write(folder: Path, count: int, suffix: str, *, is_export: bool = False) -> list[Path]:
    """Write a sound release of so many records: ten after another have the same amounts."""
    rows = [{**dict.fromkeys(AMOUNTS, one // 10 % 90), "note": f"n{one % 10}"} for one in range(count)]
    records = [{"who": f"p{one}", **row} for one, row in enumerate(rows)]
    clusters = [
        {"partition": 0, "cluster": one, "offsets": list(range(10 * one, 10 * one + 10))} for one in range(count // 10)
    ]
    paths = []
    for name, lines, ending in (("original", records, suffix), ("released", rows, suffix), ("evidence", clusters, "")):
        texts = [json.dumps(line, separators=(",", ":")) for line in lines]
        if ending == ".csv":
            texts = [",".join(lines[0]), *(",".join(map(str, line.values())) for line in lines)]
        elif is_export and ending:
            places = [{"partition": 0} if name == "released" else {"partition": 0, "offset": at} for at in range(count)]
            texts = [json.dumps({**place, "value": text}) for place, text in zip(places, texts, strict=True)]
        paths.append(folder / f"{name}{count}{ending or '.jsonl'}")
        paths[-1].write_text("\n".join([*texts, ""]), encoding="utf-8")
    return paths


def peak(given: Policy, paths: list[Path]) -> int:
    """Return the most bytes that are allocated while a release is verified."""
    gc.collect()  # so that the same collections follow in each run
    tracemalloc.start()
    try:
        assert verify(given, *paths).verified
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["jsonl", "csv", "export"])
def test_a_record_takes_at_most_250_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    # The texts of a pass, of a block and the remembered ones do not grow with the file: here as few as in a long file.
    monkeypatch.setattr(fields, "_TEXTS_OF_PASS", 100)
    monkeypatch.setattr(fields, "_MOST_REMEMBERED", 20)
    monkeypatch.setattr(reading, "BLOCK_BYTES", 5000)
    monkeypatch.setattr(clusters, "_MEMBERS_AT_ONCE", 100)
    suffix, is_export = ".csv" if form == "csv" else ".jsonl", form == "export"
    few, many = (peak(policy(), write(tmp_path, count, suffix, is_export=is_export)) for count in (FEW, MANY))
    assert (many - few) / (MANY - FEW) <= BYTES_PER_RECORD
