"""The published data sets that tests use: where they are, and how to read them."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Sequence
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
NEEDED = ("adult", "census", "eia", "tarragona")


def data_folder(needed: Sequence[str] = NEEDED) -> Path:
    """Return the folder of the data sets: ``tests/data``, or the folder that ``SHOAL_DATA`` names."""
    folder = Path(os.environ.get("SHOAL_DATA") or DATA).resolve()
    missing = [name for name in needed if not _file_of(folder, name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"SHOAL_DATA: no {', '.join(f'{name}.csv' for name in missing)} in {folder}; "
            "unset SHOAL_DATA to use the files in tests/data"
        )
    return folder


def read_rows(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a data set, in the order of its file, by column."""
    path = _file_of(folder, name)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def _file_of(folder: Path, name: str) -> Path:
    plain = folder / f"{name}.csv"
    return plain if plain.is_file() else folder / f"{name}.csv.gz"
