"""The records of the demo: the wage panel in the wheel of the package linearmodels, which is not installed.

As a program this module prints one record per line as JSON, in order of year.
"""

from __future__ import annotations

import bz2
import csv
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

__all__ = ["FOLDER", "Record", "records"]

Record: TypeAlias = dict[str, int | float]

FOLDER = Path(__file__).resolve().parents[2] / "build" / "demo"
PACKAGE = "linearmodels==7.1"
MEMBER = "linearmodels/datasets/wage_panel/wage_panel.csv.bz2"
SHA256 = "127141ccb0025051a2d59c9cf25f00e3c927406ee95535c1d764faa24d69f21a"


def records(folder: Path = FOLDER) -> Iterator[Record]:
    """Yield the 4,360 person-years in order of year, and of person within a year.

    Parameters
    ----------
    folder
        Folder of the wheel; pip downloads the wheel if it is missing.
    """
    rows = csv.DictReader(io.StringIO(_table(folder).decode()))
    for row in sorted(rows, key=lambda row: (int(row["year"]), int(row["nr"]))):
        yield {name: float(cell) if name == "lwage" else int(cell) for name, cell in row.items()}


def _table(folder: Path) -> bytes:
    wheel = next(folder.glob("linearmodels-7.1-*.whl"), None) or _download(folder)
    with zipfile.ZipFile(wheel) as archive:
        table = bz2.decompress(archive.read(MEMBER))
    if hashlib.sha256(table).hexdigest() != SHA256:
        sys.exit(f"{wheel}: the wage panel in it has an unexpected checksum; remove the file and try again")
    return table


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--only-binary=:all:", "--dest", str(folder), PACKAGE],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    wheel = next(folder.glob("linearmodels-7.1-*.whl"), None)
    if done.returncode != 0 or wheel is None:
        sys.exit(f"the data of the demo could not be downloaded: `pip download --no-deps {PACKAGE}` failed")
    return wheel


if __name__ == "__main__":
    for record in records():
        print(json.dumps(record))
