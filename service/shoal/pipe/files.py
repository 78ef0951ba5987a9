"""Which files, in which format, and how they are written: whole, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, BinaryIO, Literal, Protocol

from shoal.errors import ConfigError, InputError

__all__ = [
    "PIPE",
    "Files",
    "Form",
    "Sink",
    "opened_for_appending",
    "opened_for_reading",
    "opened_for_writing",
    "write_text",
]

Form = Literal["csv", "jsonl"]

_SUFFIXES: dict[str, Form] = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl"}
PIPE = "-"


@dataclass(frozen=True, slots=True)
class Files:
    """Where records come from and go to (``-`` is a standard stream), and what is written beside them."""

    source: str
    target: str
    form: Form | None = None
    target_form: Form | None = None
    summary: str | None = None
    evidence: str | None = None
    quarantine: str | None = None

    def check(self, policy: str) -> None:
        """Refuse to write over the input, the policy, or another output.

        Raises
        ------
        ConfigError
            Two of the names mean one file.
        """
        outputs = [name for name in (self.target, self.summary, self.evidence, self.quarantine) if name is not None]
        named = [os.path.realpath(name) for name in (self.source, policy, *outputs) if name not in {PIPE, os.devnull}]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice or outputs.count(PIPE) > 1:
            raise ConfigError(f"{twice[0] if twice else 'standard output'}: named twice; give each its own file")

    @property
    def forms(self) -> tuple[Form, Form]:
        """Formats of source and target: by their suffixes, else as told.

        Raises
        ------
        ConfigError
            Neither tells.
        """
        return _form_of(self.source, self.form), _form_of(self.target, self.target_form or self.form)


def _form_of(path: str, told: Form | None) -> Form:
    suffix = "" if path == PIPE else Path(path).suffix.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if suffix == ".parquet":
        raise ConfigError(f"{path}: not yet; Parquet comes with a later version, give .csv or .jsonl")
    if told is None:
        raise ConfigError(f"{path}: say --format csv or --format jsonl, the name does not tell")
    return told


class Sink(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> object:
        """Take all of them."""


class Whole:
    """Writes each text at once, so that a reader never sees half of it; a file is cut back if it took only a part."""

    def __init__(self, file: IO[bytes]) -> None:
        file.flush()
        self._file = getattr(file, "raw", file)

    def write(self, data: bytes) -> None:
        """Write all of it, or none if the disk is full."""
        rest, done = memoryview(data), 0
        try:
            while done < len(data):
                done += self._file.write(rest[done:]) or 0
        except OSError:
            if done and self._file.seekable():
                self._file.truncate(self._file.tell() - done)
            raise


@contextmanager
def opened_for_appending(path: str, *, private: bool = False) -> Iterator[Sink]:
    """Open a file that grows under its name, text by text, each of them whole; or standard output.

    Raises
    ------
    InputError
        It cannot be written, or holds something: a second run would release the same records again.
    """
    target = Path(path)
    if path == PIPE or (target.exists() and not target.is_file()):
        with opened_for_writing(path) as sink:
            yield sink
        return
    if target.exists() and target.stat().st_size:
        raise InputError(
            f"{path}: holds something already, and what is followed is read from its beginning; name a new file"
        )
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600 if private else 0o666)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        yield Whole(file)
        os.fsync(file.fileno())


@contextmanager
def opened_for_reading(path: str) -> Iterator[BinaryIO]:
    """Open a file or standard input.

    Raises
    ------
    InputError
        It cannot be opened.
    """
    if path == PIPE:
        if sys.stdin is None:
            raise InputError("standard input is closed; give -i FILE")
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - only opening may fail this way
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        yield file


@contextmanager
def opened_for_writing(path: str, *, private: bool = False) -> Iterator[Sink]:
    """Open a file that appears under its name when the context ends well, and never half; or standard output.

    With ``private`` a new file is for its owner alone. A file that exists keeps its permissions, a link its place.

    Raises
    ------
    InputError
        It cannot be written there.
    """
    if path == PIPE:
        if sys.stdout is None:
            raise InputError("standard output is closed; give -o FILE")
        yield Whole(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    target = Path(path).resolve()
    if target.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if target.exists() and not target.is_file():
        # A device or a pipe is written to as it is; it cannot be put in place whole.
        with target.open("wb") as file:
            yield Whole(file)
        return
    try:
        draft = NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with draft:
            yield draft
            draft.flush()
            os.fsync(draft.fileno())
        _publish(Path(draft.name), target, private=private)
    except BaseException:
        Path(draft.name).unlink(missing_ok=True)
        raise


def _publish(draft: Path, target: Path, *, private: bool) -> None:
    # A temporary file is its owner's alone; a finished one that is not private gets the rights of any new file.
    mask = os.umask(0)
    os.umask(mask)
    if target.exists():
        draft.chmod(target.stat().st_mode & 0o777)
    elif not private:
        draft.chmod(0o666 & ~mask)
    draft.replace(target)


def write_text(path: str, text: str) -> None:
    """Write a small text file, whole."""
    with opened_for_writing(path) as file:
        file.write(text.encode())
