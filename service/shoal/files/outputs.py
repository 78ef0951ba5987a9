"""Which files, in which format, and how they are written: whole, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, BinaryIO, Literal, Protocol, Self, cast

from shoal.errors import ConfigError, InputError

__all__ = [
    "PIPE",
    "AtomicOutputs",
    "Files",
    "Form",
    "RowSink",
    "Whole",
    "opened_for_appending",
    "opened_for_reading",
    "opened_for_writing",
    "standard_input",
    "write_text",
]

Form = Literal["csv", "jsonl", "parquet"]

_SUFFIXES: dict[str, Form] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_PACKED = {".gz", ".bz2", ".xz", ".zst", ".zip"}
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
        twice = sorted({name for name in named if named.count(name) > 1} or _linked(named))
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

    def stream_forms(self) -> tuple[Form, Form]:
        """Return the same for a stream.

        Raises
        ------
        ConfigError
            Neither tells, or one is Parquet, whose end is written before its beginning can be read.
        """
        for path, form in zip((self.source, self.target), self.forms, strict=True):
            if form == "parquet":
                raise ConfigError(f"{path}: Parquet is for finished tables: use shoal batch, or give .csv or .jsonl")
        return self.forms


def _linked(names: list[str]) -> list[str]:
    """Names of one and the same file by hard links."""
    files = {name: os.stat(name) for name in names if Path(name).is_file()}  # noqa: PTH116 - the device is needed
    nodes = [(one.st_dev, one.st_ino) for one in files.values()]
    return [name for name, node in zip(files, nodes, strict=True) if nodes.count(node) > 1]


def _form_of(path: str, told: Form | None) -> Form:
    suffix = "" if path == PIPE else Path(path).suffix.lower()
    if suffix in _PACKED:
        raise ConfigError(
            f"{path}: packed files are not read or written; unpack it, or go through a pipe with --format"
        )
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if told is None:
        raise ConfigError(f"{path}: say --format csv or --format jsonl, the name does not tell")
    return told


class RowSink(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> object:
        """Take all of them."""


class Whole:
    """Writes each text at once, so that a reader never sees half of it; a file is cut back if it took only a part."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        file.flush()
        self._file = getattr(file, "raw", file)
        self._name = name

    def write(self, data: bytes) -> None:
        """Write all of it, or none if the disk is full."""
        rest, done = memoryview(data), 0
        try:
            while done < len(data):
                done += self._file.write(rest[done:]) or 0
        except OSError as error:
            if done and self._file.seekable():
                self._file.truncate(self._file.tell() - done)
            raise _named(error.errno, error.strerror, self._name) from None


def _named(number: int | None, reason: str | None, name: str) -> OSError:
    """An error of the system with the file it is about: what only a descriptor was told of names none."""
    return OSError(number, reason, name)


@contextmanager
def opened_for_appending(path: str, *, private: bool = False) -> Iterator[RowSink]:
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
        yield Whole(file, path)
        try:
            os.fsync(file.fileno())
        except OSError as error:
            raise _named(error.errno, error.strerror, path) from None


def standard_input() -> BinaryIO:
    """Bytes of standard input.

    Raises
    ------
    InputError
        It is closed.
    """
    if sys.stdin is None:
        raise InputError("standard input is closed; give -i FILE")
    return sys.stdin.buffer


@contextmanager
def opened_for_reading(path: str) -> Iterator[BinaryIO]:
    """Open a file or standard input.

    Raises
    ------
    InputError
        It cannot be opened.
    """
    if path == PIPE:
        yield standard_input()
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - only opening may fail this way
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        yield file


@dataclass(slots=True)
class _AtomicOutput:
    """A file that is not in its place yet."""

    file: IO[bytes]
    target: Path
    name: str
    private: bool

    def write(self, data: bytes) -> None:
        """Take all of it."""
        try:
            self.file.write(data)
        except OSError as error:
            raise _named(error.errno, error.strerror, self.name) from None

    def finish(self) -> None:
        """Bring everything to the disk, with the rights that the file shall have."""
        # A temporary file is its owner's alone; a finished one that is not private gets the rights of any new file.
        mask = os.umask(0)
        os.umask(mask)
        try:
            self.file.flush()
            if self.target.exists():
                os.fchmod(self.file.fileno(), self.target.stat().st_mode & 0o777)
            elif not self.private:
                os.fchmod(self.file.fileno(), 0o666 & ~mask)
            os.fsync(self.file.fileno())
        except OSError as error:
            raise _named(error.errno, error.strerror, self.name) from None

    def discard(self) -> None:
        """Take it away, if it is not in its place."""
        with suppress(OSError):  # of what could not be written there is something left to write
            self.file.close()
        Path(self.file.name).unlink(missing_ok=True)


class AtomicOutputs:
    """Files that appear under their names together, whole, when the context ends well; else none of them does.

    All are on the disk before the first is put in place; they are put there in the order in which they were opened. A
    file that exists keeps its permissions, a link its place.
    """

    def __init__(self) -> None:
        self._drafts: list[_AtomicOutput] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def open(self, path: str, *, private: bool = False) -> RowSink:
        """Begin a file (with ``private`` a new one is for its owner alone), a device, or standard output.

        Raises
        ------
        InputError
            It cannot be written there.
        """
        if path == PIPE:
            if sys.stdout is None:
                raise InputError("standard output is closed; give -o FILE")
            return Whole(sys.stdout.buffer, "standard output")
        target = Path(path).resolve()
        if target.is_dir():
            raise InputError(f"{path}: is a folder; name a file in it")
        if target.exists() and not target.is_file():
            # A device or a pipe is written to as it is; it cannot be put in place whole.
            return Whole(self._stack.enter_context(target.open("wb", buffering=0)), path)
        try:
            file = NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        self._drafts.append(_AtomicOutput(cast("IO[bytes]", file), target, path, private))
        return self._drafts[-1]

    def place(self) -> None:
        """Put what has been opened so far in place; it cannot be written to any more."""
        for draft in self._drafts:
            draft.finish()
        for draft in self._drafts:
            Path(draft.file.name).replace(draft.target)
            draft.file.close()
        self._drafts.clear()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.place()
        finally:
            for draft in self._drafts:
                draft.discard()
            self._stack.close()


@contextmanager
def opened_for_writing(path: str, *, private: bool = False) -> Iterator[RowSink]:
    """Open one file, as `AtomicOutputs` does.

    Raises
    ------
    InputError
        It cannot be written there.
    """
    with AtomicOutputs() as drafts:
        yield drafts.open(path, private=private)


def write_text(path: str, text: str, *, private: bool = False) -> None:
    """Write a small text file, whole; with ``private`` for its owner alone."""
    with opened_for_writing(path, private=private) as file:
        file.write(text.encode())
