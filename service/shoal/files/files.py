"""Inputs and outputs: paths and formats, a source that is followed, and outputs that appear when they are complete."""

from __future__ import annotations

import os
import stat
import sys
import zlib
from bz2 import BZ2File
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from glob import escape, glob
from gzip import GzipFile
from importlib import import_module
from io import BytesIO
from itertools import takewhile
from lzma import LZMAError, LZMAFile
from pathlib import Path
from select import select
from tempfile import NamedTemporaryFile
from threading import Event
from typing import IO, Any, BinaryIO, Protocol, Self, cast
from urllib.parse import unquote

from shoal.errors import ConfigError, InputError
from shoal.formats import (
    DEFAULT_MAX_BYTES,
    DELETED_FIELD,
    Block,
    FaultReason,
    Format,
    FormatEntry,
    ReadOptions,
    RecordEncoder,
    RecordFault,
    RecordSource,
    StoppedReading,
    format_named,
    format_of_suffix,
    streamed_formats,
)
from shoal.observability import logger
from shoal.policy import Policy

PIPE = "-"
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write in the name of a folder for a missing value."""
_UNCOMPRESS = {".zip": "unzip -p"}
"""Commands that uncompress files that are not read directly."""


def _open_zstd(file: BinaryIO) -> IO[bytes]:
    try:
        arrow = import_module("pyarrow")
    except ModuleNotFoundError:
        raise ConfigError(
            ".zst files need pyarrow: install shoal[parquet], or use a pipe: zstd -dc FILE | shoal ... --format csv"
        ) from None
    return cast("IO[bytes]", arrow.CompressedInputStream(arrow.PythonFile(file, "r"), "zstd"))


_OPENERS: dict[str, Callable[[BinaryIO], IO[bytes]]] = {
    ".gz": lambda file: cast("IO[bytes]", GzipFile(fileobj=file)),
    ".bz2": lambda file: cast("IO[bytes]", BZ2File(file)),
    ".xz": lambda file: cast("IO[bytes]", LZMAFile(file)),  # noqa: SIM115 - the file below it is closed
    ".zst": _open_zstd,
}
_MOST_TIMES, _FREE_BYTES = 200, 1 << 26
"""A file that uncompresses to more than this multiple of its bytes read, and these bytes, can fill memory and disks."""
_DELETED = b'"%b"' % DELETED_FIELD.encode()
_POLL_S = 0.1
"""Time between two checks whether a file has grown."""

_TAIL_BYTES = 4096
"""Last bytes read, compared before new ones are read: a file may be truncated and filled between two checks."""


@dataclass(frozen=True, slots=True)
class Files:
    """Paths and formats of the source and of all outputs; ``-`` is a standard stream.

    A format is named where the suffix of the path does not give it.
    """

    source: str
    target: str = PIPE
    source_format: str | None = None
    target_format: str | None = None
    summary: str | None = None
    evidence: str | None = None
    quarantine: str | None = None

    def check(self, policy: str) -> None:
        """Check that no output is the input, the policy, or another output: ConfigError if two are the same file."""
        outputs = (self.target, self.summary, self.evidence, self.quarantine)
        refuse_overwriting(outputs, self.source, policy)
        for path in filter(None, outputs):
            if path != PIPE and _is_read_with(self.source, path):
                raise ConfigError(
                    f"{path}: the next run would read it as records of {self.source}; give another folder"
                )

    def formats(self, *, is_stream: bool = False) -> tuple[Format, Format]:
        """Return the formats of source and target, from the suffix of the path or else from the option.

        ConfigError if a format is unknown, contradicts the suffix, is not installed or, for a stream, is for
        tables only.
        """
        target_option = self.target_format or self.source_format
        source = _format_of(self.source, self.source_format, "standard input", is_source=True)
        target = _format_of(self.target, target_option, "standard output (no -o FILE)")
        if self.target_format not in {None, target.name}:
            raise _contradiction(self.target, f"--output-format {self.target_format}")
        # --format may be given for the target alone.
        if self.target_format is not None or format_of_suffix(_suffix_of(self.target)) is not None:
            self._require_same(source)
        for path, entry in ((self.source, source), (self.target, target)):
            _require_streamed(path, entry, is_stream=is_stream)
        return source.load(), target.load()

    def input_format(self, *, is_stream: bool = False) -> Format:
        """Return the format of the source; errors as of `formats`."""
        source = _format_of(self.source, self.source_format, "standard input", is_source=True)
        self._require_same(source)
        _require_streamed(self.source, source, is_stream=is_stream)
        return source.load()

    def _require_same(self, source: FormatEntry) -> None:
        if self.source_format not in {None, source.name}:
            raise _contradiction(self.source, f"--format {self.source_format}")


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
            raise OSError(error.errno, error.strerror, self._name) from None


class AtomicOutputs:
    """Outputs that appear under their names together and complete if the context ends without an exception.

    Else none appears. All files are on the disk before the first is renamed, in the order in which they were
    opened. An existing file keeps its permissions, and a symbolic link is followed.
    """

    def __init__(self) -> None:
        self._outputs: list[_AtomicOutput] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def open(self, path: str, *, private: bool = False) -> RowSink:
        """Open a file, a device or ``-``; only the owner may read a new ``private`` file. InputError if it cannot."""
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
    """Open one output, as `AtomicOutputs.open` does."""
    with AtomicOutputs() as outputs:
        yield outputs.open(path, private=private)


@contextmanager
def open_appending(path: str, *, private: bool = False) -> Iterator[RowSink]:
    """Open an output to which chunks are appended under its final name; or standard output.

    InputError if the file cannot be written, or is not empty: a second run would release the same records again. A new
    file to which nothing was written is removed if the context ends with an exception.
    """
    target = Path(path)
    if path == PIPE or (target.exists() and not target.is_file()):
        with open_output(path) as sink:
            yield sink
        return
    is_new = not target.exists()
    if not is_new and target.stat().st_size:
        raise InputError(f"{path}: is not empty, and a followed source is read from its start; use a new file")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600 if private else 0o666)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        try:
            yield UnbufferedOutput(file, path)
        except BaseException:
            if is_new and not os.fstat(file.fileno()).st_size:
                target.unlink(missing_ok=True)
            raise
        try:
            os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None


@contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """Open a file or standard input for reading; InputError if it cannot be opened."""
    if path == PIPE:
        yield _standard_input()
        return
    if parts_of(path):
        yield BytesIO()  # `open_source` opens the parts
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - only the error of opening is caught
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        opener = _opener_of(path)
        yield file if opener is None else cast("BinaryIO", Uncompressed(file, opener, path))


class Uncompressed:
    """Reads a compressed file as it is uncompressed; `tell` is the place in the compressed file.

    InputError if it is not of the form that its suffix says, or is far larger uncompressed (`_MOST_TIMES`).
    """

    def __init__(self, file: BinaryIO, opener: Callable[[BinaryIO], IO[bytes]], path: str) -> None:
        self._file, self._path, self._content = file, path, opener(file)
        self._left = _FREE_BYTES

    def read1(self, size: int) -> bytes:
        """Return the next bytes, none at the end."""
        before = self.tell()
        try:
            chunk = self._content.read(size)
        except (OSError, EOFError, ValueError, LZMAError, zlib.error):
            raise InputError(
                f"{self._path}: not a whole {Path(self._path).suffix} file; compress it again, or uncompress it"
            ) from None
        self._left += _MOST_TIMES * (self.tell() - before) - len(chunk)
        if self._left < 0:
            raise InputError(
                f"{self._path}: more than {_MOST_TIMES} times as large when uncompressed; uncompress it to a file, if "
                "you trust it"
            )
        return chunk

    def tell(self) -> int:
        """Return how many bytes of the compressed file were read."""
        return self._file.tell()


def _opener_of(path: str) -> Callable[[BinaryIO], IO[bytes]] | None:
    """Return what uncompresses a file, by its suffix; None if it is not compressed."""
    return None if path == PIPE else _OPENERS.get(Path(path).suffix.lower())


def _standard_input() -> BinaryIO:
    """Return standard input as a binary file; InputError if it is closed."""
    if sys.stdin is None:
        raise InputError("standard input is closed; give -i FILE")
    return sys.stdin.buffer


def open_source(
    stream: BinaryIO,
    source_format: Format,
    policy: Policy,
    encoder: RecordEncoder,
    path: str,
    *,
    with_columns: bool = False,
) -> RecordSource:
    """Open an input in a format, under the limits of the policy; see `Format.read`."""
    max_bytes = DEFAULT_MAX_BYTES if policy.kafka is None else policy.kafka.max_record_bytes

    parts = parts_of(path)

    def read(one: BinaryIO, name: str) -> RecordSource:
        one = one if isinstance(one, FollowedFile) else source_format.prepared(one, name)
        partition = partition_of(path, name) if parts else {}
        return source_format.read(one, policy, encoder, ReadOptions(name, max_bytes, with_columns, partition))

    source = _joined(parts, read) if parts else read(stream, shown_name(path))
    known = {*policy.skip, *(attribute.path[0] for attribute in policy.value_attributes)}
    if policy.undeclared == "drop" and DELETED_FIELD not in known:
        return replace(source, blocks=_warn_of_deletes(source.blocks, shown_name(path)))
    return source


def _joined(parts: Sequence[str], read: Callable[[BinaryIO, str], RecordSource]) -> RecordSource:
    """Return the records of several files of one schema as those of one, each file open while it is read."""
    opened = ExitStack()
    first = current = read(opened.enter_context(open_input(parts[0])), parts[0])

    def blocks() -> Iterator[tuple[Block, Sequence[Any]]]:
        nonlocal current
        with opened:
            yield from first.blocks
        for part in parts[1:]:
            with open_input(part) as file:
                current = read(file, part)
                if current.schema != first.schema:
                    raise InputError(f"{part}: its columns have other types than those of {parts[0]}; write all alike")
                yield from current.blocks

    def faults_of(raw: object) -> list[RecordFault]:
        return current.faults_of(raw)

    return RecordSource(blocks(), faults_of, unit="row", schema=first.schema)


def _warn_of_deletes(blocks: Iterator[tuple[Block, Sequence[Any]]], name: str) -> Iterator[tuple[Block, Sequence[Any]]]:
    """Yield blocks; warn if records of the first one say that they were deleted, which the policy ignores."""
    for number, (block, records) in enumerate(blocks):
        if number == 0 and any(isinstance(one, bytes) and _DELETED in one for one in records):
            logger("files").warning(
                "records have a field __deleted, which undeclared: drop ignores: deleted rows are published",
                input=name,
                remedy=FaultReason.DELETED.remedy,
            )
        yield block, records


def shown_name(path: str) -> str:
    """Return the name of an input in messages."""
    return "standard input" if path == PIPE else path


@contextmanager
def open_followed(path: str, stop: Event) -> Iterator[FollowedFile]:
    """Open a file, a FIFO or standard input to follow it; InputError if it cannot be opened."""
    if _opener_of(path) is not None or parts_of(path):
        raise InputError(f"{path}: compressed files and folders cannot be followed; leave out --follow")
    if path == PIPE:
        yield FollowedFile(_standard_input().fileno(), path, stop)
        return
    try:
        # Opening a FIFO without a writer must not block: the command could not be stopped.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        yield FollowedFile(descriptor, path, stop)
    finally:
        os.close(descriptor)


class FollowedFile:
    """Reads bytes as they are written, until ``stop`` is set; the end of a file does not end it.

    By ``path`` it detects that the file was replaced (``-``: standard input). ``on_idle`` is called about ten times
    a second while there is no data. ``fault`` says why reading ended without ``stop``.
    """

    def __init__(self, descriptor: int, path: str, stop: Event) -> None:
        self._descriptor, self._path, self._stop = descriptor, path, stop
        self._name = shown_name(path)
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._offset = os.lseek(descriptor, 0, os.SEEK_CUR) if self._is_file else 0
        self._tail = b""
        self.on_idle: Callable[[], None] = lambda: None
        self.fault: InputError | None = None

    def read1(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``, as soon as there are any; none at the end of a pipe.

        `StoppedReading` if ``stop`` was set, or the file was changed; see ``fault``.
        """
        while not self._stop.is_set():
            chunk = self._chunk(size)
            if chunk:
                self._require_same_tail()
                self._offset += len(chunk)
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
                return chunk
            if chunk is not None and self._path == PIPE and not self._is_file:
                return b""
            self._require_same_file()
            self.on_idle()
            self._stop.wait(_POLL_S)
        raise StoppedReading

    def _chunk(self, size: int) -> bytes | None:
        """Return the available bytes; none at the end; None if that is not known yet."""
        if not self._is_file and not select([self._descriptor], [], [], 0)[0]:
            return None
        try:
            return os.read(self._descriptor, size)
        except BlockingIOError:
            return None
        except OSError as error:
            raise InputError(f"{self._name}: cannot be read: {error.strerror}") from None

    def _require_same_tail(self) -> None:
        """Stop if the bytes before the new ones are not those that were read: the file was replaced."""
        if self._is_file and self._tail:
            start = self._offset - len(self._tail)
            if os.pread(self._descriptor, len(self._tail), start) != self._tail:
                self._end("was truncated and written again")

    def _require_same_file(self) -> None:
        if not self._is_file:
            return
        opened = os.fstat(self._descriptor)
        if opened.st_size < self._offset:
            self._end("was truncated")
        if self._path != PIPE:
            try:
                current = os.stat(self._path)  # noqa: PTH116 - the same call as above
            except OSError:
                self._end("was removed")
            else:
                if (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino):
                    self._end("was replaced")

    def _end(self, event: str) -> None:
        self.fault = InputError(
            f"{self._name}: {event} while it was followed; all records read before are written, start again with the "
            "records after them"
        )
        raise StoppedReading


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
            raise OSError(error.errno, error.strerror, self.name) from None

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
            raise OSError(error.errno, error.strerror, self.name) from None

    def discard(self) -> None:
        """Remove the temporary file, if it was not renamed."""
        with suppress(OSError):  # the buffer may hold bytes that cannot be written
            self.file.close()
        Path(self.file.name).unlink(missing_ok=True)


def refuse_overwriting(outputs: Iterable[str | None], *inputs: str | Path | None) -> None:
    """Raise ConfigError if an output is one of the inputs, or another output, also under another name."""
    files = {_identity(path) for path in inputs if path is not None and path != PIPE}
    for path in outputs:
        if path is None or path == os.devnull:
            continue
        if (file := _identity(path)) in files:
            name = "standard output" if path == PIPE else path
            raise ConfigError(f"{name}: named twice; give each its own file")
        files.add(file)


def _is_read_with(source: str, path: str) -> bool:
    """Return whether a file is in the folder that is read, or has a name of the pattern."""
    found = Path(os.path.realpath(path))
    if Path(source).is_dir():
        return found.parent == Path(os.path.realpath(source))
    return not Path(source).is_file() and fnmatch(str(found), os.path.realpath(source))


def _identity(path: str | Path) -> object:
    """Return what all names of a file have in common."""
    found = Path(os.path.realpath(path))  # Path.resolve raises for a link that leads to itself
    return (found.stat().st_dev, found.stat().st_ino) if found.is_file() else found


def _suffix_of(path: str) -> str:
    return "" if path == PIPE else Path(path).suffix.lower()


def parts_of(path: str) -> list[str]:
    """Return the files of a folder, or those that fit a pattern, by the bytes of their paths; none for one file.

    Files without bytes are left out, and those of a folder whose names begin with a dot or an underscore.
    """
    if path == PIPE or Path(path).is_file():
        return []
    if not Path(path).is_dir():
        found = [Path(one) for one in glob(path) if Path(one).is_file()]  # noqa: PTH207 - a pattern may be absolute
    else:
        found = list(_files_in(Path(path)))
        if any(one.is_dir() or (one.parent != Path(path) and one.suffix.lower() != ".parquet") for one in found):
            raise ConfigError(
                f"{path}: has folders in it; give the files as a pattern, such as '{path}/*/*.csv', without columns "
                "that are in names of folders, which are read for Parquet files in folders such as year=2026 only"
            )
        if not found:
            raise ConfigError(f"{path}: is a folder without files")
    return sorted((str(one) for one in found if one.stat().st_size), key=os.fsencode)


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of those in it that are named as ``year=2024``; other folders as they are."""
    for one in folder.iterdir():
        if one.name.startswith((".", "_")):
            continue
        if one.is_dir() and "=" in one.name:
            yield from _files_in(one)
        else:
            yield one


def partition_of(source: str, part: str) -> dict[str, str | None]:
    """Return the columns in the names of the folders around a part, below the folder or the pattern that is read."""
    names = Path(part).parts[:-1]
    fixed = Path(source).parts if Path(source).is_dir() else tuple(takewhile(_is_fixed, Path(source).parts))
    pairs = (name.split("=", 1) for name in names[len(fixed) :] if "=" in name)
    return {unquote(key): None if text == _NO_VALUE else unquote(text) for key, text in pairs}


def _is_fixed(name: str) -> bool:
    return escape(name) == name


def _format_of_parts(parts: Sequence[str], option: str | None) -> FormatEntry:
    """Return the format that all parts of an input have."""
    entries = {_format_of(part, option, "", is_source=True).name: part for part in parts}
    if len(entries) > 1:
        raise ConfigError(f"{' and '.join(entries.values())}: have two formats; give a pattern, such as '*.csv'")
    return _format_of(parts[0], option, "", is_source=True)


def _contradiction(path: str, option: str) -> ConfigError:
    return ConfigError(f"{path}: its suffix contradicts {option}; leave out the option, or rename the file")


def _require_streamed(path: str, entry: FormatEntry, *, is_stream: bool) -> None:
    if is_stream and not entry.is_streamed:
        *others, last = (one.suffixes[0] for one in streamed_formats())
        raise ConfigError(
            f"{path}: {entry.title} is for finished tables; use shoal batch, or a {', '.join(others)} or {last} file"
        )


def _format_of(path: str, option: str | None, standard_stream: str, *, is_source: bool = False) -> FormatEntry:
    """Return the format of a file or of a standard stream, which messages call by the given name."""
    if is_source and (parts := parts_of(path)):
        return _format_of_parts(parts, option)
    suffix = _suffix_of(path)
    if suffix in _UNCOMPRESS and is_source:
        raise ConfigError(
            f"{path}: {suffix} files are not read; use a pipe: {_UNCOMPRESS[suffix]} {path} | shoal ... --format csv"
        )
    if suffix in _UNCOMPRESS or (suffix in _OPENERS and not is_source):
        raise ConfigError(f"{path}: compressed files are not written; leave out {suffix}, and compress the result")
    if suffix in _OPENERS:
        entry = _format_of(str(Path(path).with_suffix("")), option, standard_stream)
        if not entry.is_streamed:
            raise ConfigError(f"{path}: {entry.title} cannot be read from a compressed file; uncompress it")
        return entry
    if (known := format_of_suffix(suffix)) is not None:
        return known
    if path != PIPE and is_source and not Path(path).exists():
        raise InputError(f"{path}: there is no such file")
    return _format_of_option(option, standard_stream if path == PIPE else path, is_pipe=path == PIPE)


def _format_of_option(option: str | None, name: str, *, is_pipe: bool) -> FormatEntry:
    if option is None:
        fault = f"{name}: has no suffix" if is_pipe else f"{name}: the suffix does not give the format"
        raise ConfigError(f"{fault}; add {' or '.join(f'--format {one.name}' for one in streamed_formats())}")
    return format_named(option)
