"""Which files, in which format, and how they are written: whole, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, Literal, cast

from shoal.errors import ConfigError, InputError

__all__ = ["PIPE", "Files", "Form", "opened_for_reading", "opened_for_writing", "write_text"]

Form = Literal["csv", "jsonl"]

_SUFFIXES: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl"}
PIPE = "-"


@dataclass(frozen=True, slots=True)
class Files:
    """Where records come from and go to (``-`` is a standard stream), and what is written beside them."""

    source: str
    target: str
    form: Form | None = None
    summary: str | None = None
    evidence: str | None = None

    def form_of(self, path: str) -> Form:
        """Format of a file: by its suffix, else as told.

        Raises
        ------
        ConfigError
            Neither tells.
        """
        suffix = "" if path == PIPE else Path(path).suffix.lower()
        if suffix in _SUFFIXES:
            return _SUFFIXES[suffix]
        if suffix == ".parquet":
            raise ConfigError(f"{path}: not yet; Parquet comes with a later version, give .csv or .jsonl")
        if self.form is None:
            raise ConfigError(f"{path}: say --format csv or --format jsonl, the name does not tell")
        return self.form


@contextmanager
def opened_for_reading(path: str) -> Iterator[BinaryIO]:
    """Open a file or standard input.

    Raises
    ------
    InputError
        It cannot be opened.
    """
    if path == PIPE:
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - only opening may fail this way
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        yield file


@contextmanager
def opened_for_writing(path: str) -> Iterator[BinaryIO]:
    """Open a file that appears under its name when the context ends well, and never half; or standard output.

    Raises
    ------
    InputError
        It cannot be written there.
    """
    if path == PIPE:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    if target.exists() and not target.is_file():
        # A device or a pipe is written to as it is; it cannot be put in place whole.
        with target.open("wb") as file:
            yield file
        return
    try:
        draft = NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with draft:
            yield cast("BinaryIO", draft)
            draft.flush()
            os.fsync(draft.fileno())
        _publish(Path(draft.name), target)
    except BaseException:
        Path(draft.name).unlink(missing_ok=True)
        raise


def _publish(draft: Path, target: Path) -> None:
    # A temporary file is its owner's alone; the finished one gets the rights of any new file.
    mask = os.umask(0)
    os.umask(mask)
    draft.chmod(0o666 & ~mask)
    draft.replace(target)


def write_text(path: str, text: str) -> None:
    """Write a small text file, whole."""
    with opened_for_writing(path) as file:
        file.write(text.encode())
