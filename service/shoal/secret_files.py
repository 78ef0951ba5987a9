"""Files that hold a secret: a password, a token, a key. No message quotes a file."""

from __future__ import annotations

from pathlib import Path

from shoal.errors import ConfigError

__all__ = ["IS_PIPE", "read_secret"]

IS_PIPE = "is a pipe, which can be read only once; give a file, which is read again when the secret is rotated"
"""Fault of a file with a secret."""


def read_secret(field: str, path: str) -> str:
    """Return the content of a file. One line end at its end does not belong to the secret.

    Parameters
    ----------
    field : str
        The setting that names the file, for messages.
    path : str
        The file.

    Raises
    ------
    ConfigError
        The file cannot be read, is a pipe or is empty. The message quotes nothing of it.
    """
    try:
        if Path(path).is_fifo():  # reading it would wait for a writer
            raise ConfigError(f"{field}: {IS_PIPE}")
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{field}: the file cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{field}: the file is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ConfigError(f"{field}: the file is empty")
    return text
