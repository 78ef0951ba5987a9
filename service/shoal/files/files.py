"""Files and their formats; outputs that appear under their names only when they are complete."""

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
    "FileFormat",
    "Files",
    "RowSink",
    "UnbufferedOutput",
    "open_appending",
    "open_input",
    "open_output",
    "standard_input",
    "write_text",
]

FileFormat = Literal["csv", "jsonl", "parquet"]

_SUFFIXES: dict[str, FileFormat] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".zip"}
PIPE = "-"


@dataclass(frozen=True, slots=True)
class Files:
    """Paths and formats of the source and of all outputs; ``-`` is a standard stream.

    Attributes
    ----------
    source, target : str
        Input and output of records.
    source_format, target_format : FileFormat or None
        Formats where the suffix of the path does not give them.
    summary, evidence, quarantine : str or None
        Further outputs; None: not written.
    """

    source: str
    target: str
    source_format: FileFormat | None = None
    target_format: FileFormat | None = None
    summary: str | None = None
    evidence: str | None = None
    quarantine: str | None = None

    def check(self, policy: str) -> None:
        """Check that no output is the input, the policy, or another output.

        Raises
        ------
        ConfigError
            Two paths are the same file.
        """
        outputs = [name for name in (self.target, self.summary, self.evidence, self.quarantine) if name is not None]
        paths = [os.path.realpath(name) for name in (self.source, policy, *outputs) if name not in {PIPE, os.devnull}]
        duplicates = sorted({path for path in paths if paths.count(path) > 1} or _linked(paths))
        if duplicates or outputs.count(PIPE) > 1:
            duplicate = duplicates[0] if duplicates else "standard output"
            raise ConfigError(f"{duplicate}: named twice; give each its own file")

    @property
    def formats(self) -> tuple[FileFormat, FileFormat]:
        """Formats of source and target, from the suffix of the path or else from the option.

        Raises
        ------
        ConfigError
            A format is unknown, or a suffix contradicts an option.
        """
        target_option = self.target_format or self.source_format
        source = _format_of(self.source, self.source_format, "standard input")
        target = _format_of(self.target, target_option, "standard output (no -o FILE)")
        if self.target_format not in {None, target}:
            raise _contradiction(self.target, f"--output-format {self.target_format}")
        # --format may be given for the target alone.
        is_used = self.target_format is None and _suffix_of(self.target) not in _SUFFIXES
        if self.source_format not in {None, source} and not is_used:
            raise _contradiction(self.source, f"--format {self.source_format}")
        return source, target

    def stream_formats(self) -> tuple[FileFormat, FileFormat]:
        """Return the formats of source and target for a stream.

        Raises
        ------
        ConfigError
            A format is unknown, or is Parquet, which cannot be read or written from start to end.
        """
        for path, file_format in zip((self.source, self.target), self.formats, strict=True):
            if file_format == "parquet":
                raise ConfigError(f"{path}: Parquet is for finished tables; use shoal batch, or a .csv or .jsonl file")
        return self.formats


def _linked(paths: list[str]) -> list[str]:
    """Return the paths that are hard links to the same file."""
    files = {path: os.stat(path) for path in paths if Path(path).is_file()}  # noqa: PTH116 - the device is needed
    nodes = [(status.st_dev, status.st_ino) for status in files.values()]
    return [path for path, node in zip(files, nodes, strict=True) if nodes.count(node) > 1]


def _suffix_of(path: str) -> str:
    return "" if path == PIPE else Path(path).suffix.lower()


def _contradiction(path: str, option: str) -> ConfigError:
    return ConfigError(f"{path}: its suffix contradicts {option}; leave out the option, or rename the file")


def _format_of(path: str, option: FileFormat | None, standard_stream: str) -> FileFormat:
    """Return the format of a file or of a standard stream, which messages call by the given name."""
    suffix = _suffix_of(path)
    if suffix in _COMPRESSED:
        raise ConfigError(f"{path}: compressed files are not supported; uncompress it, or use a pipe and --format")
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if option is None:
        fault = f"{standard_stream}: has no suffix" if path == PIPE else f"{path}: the suffix does not give the format"
        raise ConfigError(f"{fault}; add --format csv or --format jsonl")
    return option


class RowSink(Protocol):
    """Output to which bytes are written."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""


class UnbufferedOutput:
    """Writes each chunk by one call, without a buffer. A file is truncated again if only a part was written."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        file.flush()
        self._file = getattr(file, "raw", file)
        self._name = name

    def write(self, data: bytes) -> None:
        """Write all bytes, or none if the disk is full."""
        view, written = memoryview(data), 0
        try:
            while written < len(data):
                written += self._file.write(view[written:]) or 0
        except OSError as error:
            if written and self._file.seekable():
                self._file.truncate(self._file.tell() - written)
            raise _os_error(error.errno, error.strerror, self._name) from None


def _os_error(number: int | None, reason: str | None, name: str) -> OSError:
    """Return a system error that names its file; errors of descriptors do not."""
    return OSError(number, reason, name)


@contextmanager
def open_appending(path: str, *, private: bool = False) -> Iterator[RowSink]:
    """Open an output to which chunks are appended under its final name; or standard output.

    Raises
    ------
    InputError
        The file cannot be written, or is not empty: a second run would release the same records again.
    """
    target = Path(path)
    if path == PIPE or (target.exists() and not target.is_file()):
        with open_output(path) as sink:
            yield sink
        return
    if target.exists() and target.stat().st_size:
        raise InputError(f"{path}: is not empty, and a followed source is read from its start; use a new file")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600 if private else 0o666)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        yield UnbufferedOutput(file, path)
        try:
            os.fsync(file.fileno())
        except OSError as error:
            raise _os_error(error.errno, error.strerror, path) from None


def standard_input() -> BinaryIO:
    """Return standard input as a binary file.

    Raises
    ------
    InputError
        Standard input is closed.
    """
    if sys.stdin is None:
        raise InputError("standard input is closed; give -i FILE")
    return sys.stdin.buffer


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """Open a file or standard input for reading.

    Raises
    ------
    InputError
        The file cannot be opened.
    """
    if path == PIPE:
        yield standard_input()
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - only the error of opening is caught
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        yield file


@dataclass(slots=True)
class _AtomicOutput:
    """A temporary file that is to replace ``target``."""

    file: IO[bytes]
    target: Path
    name: str
    private: bool

    def write(self, data: bytes) -> None:
        """Write all bytes."""
        try:
            self.file.write(data)
        except OSError as error:
            raise _os_error(error.errno, error.strerror, self.name) from None

    def finish(self) -> None:
        """Write everything to the disk, with the permissions of the final file."""
        # A temporary file is private. A final file that is not private gets the permissions of any new file.
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
            raise _os_error(error.errno, error.strerror, self.name) from None

    def discard(self) -> None:
        """Remove the temporary file, if it was not renamed."""
        with suppress(OSError):  # the buffer may hold bytes that cannot be written
            self.file.close()
        Path(self.file.name).unlink(missing_ok=True)


class AtomicOutputs:
    """Outputs that appear under their names together and complete, if the context ends without an exception.

    Otherwise none of them appears. All files are written to the disk before the first is renamed; they are renamed in
    the order in which they were opened. An existing file keeps its permissions, and a symbolic link is followed.
    """

    def __init__(self) -> None:
        self._outputs: list[_AtomicOutput] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def open(self, path: str, *, private: bool = False) -> RowSink:
        """Open a file, a device, or standard output.

        Parameters
        ----------
        path : str
            ``-`` is standard output.
        private : bool
            Whether only the owner may read a new file.

        Raises
        ------
        InputError
            The output cannot be written.
        """
        if path == PIPE:
            if sys.stdout is None:
                raise InputError("standard output is closed; give -o FILE")
            return UnbufferedOutput(sys.stdout.buffer, "standard output")
        target = Path(path).resolve()
        if target.is_dir():
            raise InputError(f"{path}: is a folder; give a file")
        if target.exists() and not target.is_file():
            # A device or a pipe cannot be replaced: it is written directly.
            return UnbufferedOutput(self._stack.enter_context(target.open("wb", buffering=0)), path)
        try:
            file = NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        self._outputs.append(_AtomicOutput(cast("IO[bytes]", file), target, path, private))
        return self._outputs[-1]

    def commit(self) -> None:
        """Rename all files opened so far to their final names. They can no longer be written."""
        for output in self._outputs:
            output.finish()
        for output in self._outputs:
            Path(output.file.name).replace(output.target)
            output.file.close()
        self._outputs.clear()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            for output in self._outputs:
                output.discard()
            self._stack.close()


@contextmanager
def open_output(path: str, *, private: bool = False) -> Iterator[RowSink]:
    """Open one output, as `AtomicOutputs.open` does.

    Raises
    ------
    InputError
        The output cannot be written.
    """
    with AtomicOutputs() as outputs:
        yield outputs.open(path, private=private)


def write_text(path: str, text: str, *, private: bool = False) -> None:
    """Write a text file as an `AtomicOutputs` file; with ``private`` only the owner may read a new one."""
    with open_output(path, private=private) as file:
        file.write(text.encode())
