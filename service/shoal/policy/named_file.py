"""Read the files that a policy names: taxonomies and references."""

from __future__ import annotations

import re
from pathlib import Path

from shoal.errors import InputError

__all__ = ["delimiter_of", "read_named_file"]

MAX_BYTES = 32 << 20
"""Limit on a file. It bounds memory; all codes of a national classification of diseases take less than a third."""

_UNDECODED = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as the error handler surrogateescape decodes it."""


def read_named_file(folder: Path, name: str) -> str:
    """Return the text of a file.

    Parameters
    ----------
    folder : Path
        The folder of the policy.
    name : str
        Path of the file, relative to the folder.

    Raises
    ------
    InputError
        It cannot be read, is too large, or is not UTF-8.
    """
    try:
        path = folder / name
        if not path.exists():
            raise InputError(f"{name}: no such file; its path is relative to the folder of the policy")
        if not path.is_file():
            raise InputError(f"{name}: is no file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{name}: is larger than {MAX_BYTES >> 20} MiB")
    text = content.decode("utf-8-sig", "surrogateescape")
    if wrong := _UNDECODED.search(text):
        line = text.count("\n", 0, wrong.start()) + 1
        raise InputError(f"{name} line {line}: not UTF-8; save the file as UTF-8")
    return text


def delimiter_of(text: str) -> str:
    """Return the delimiter of the first of two lines that has one."""
    for line in text.splitlines()[:2]:
        for delimiter in (";", ","):
            if delimiter in line:
                return delimiter
    return ";"
