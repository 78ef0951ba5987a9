"""How a report was made: its date, the versions, and the files by their hashes."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any


def origin_of(files: Mapping[str, str | None]) -> dict[str, Any]:
    """Return date, versions, and name and hash of each file; None stands for a file that was not given."""
    named = [{"what": what, "name": Path(path).name, "sha256": sha256_of(path)} for what, path in files.items() if path]
    versions = {"Shoal": version("shoal"), "Python": platform.python_version()}
    return {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "versions": versions, "files": named}


def sha256_of(path: str) -> str:
    """Return the SHA-256 of a file in hex."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
