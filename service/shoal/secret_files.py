"""Files that hold a secret: a password, a token, a key. No message quotes a file.

Other users should not be able to read them. A warning says where they can, and the file is used: Kubernetes and Docker
mount secrets with the modes 0644 and 0444 by default, into a container with one user, who does not own them. Only the
key of the offset metadata is refused (`shoal.kafka.credentials`): a password can be replaced, but metadata that were
read stay known.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TypeAlias

from shoal.errors import ConfigError

IS_PIPE = "is a pipe, which can be read only once; give a file, which is read again when the secret is rotated"
"""Fault of a file with a secret."""

OPEN_MODES = stat.S_IRWXO | stat.S_IWGRP
"""Rights that others must not have. The group may read: orchestrators so mount secrets for users other than root."""

OPEN_TO_OTHERS = "other users of this machine can read or change a secret: chmod 640, or 600"
"""Warning of a file with a secret."""

FileVersion: TypeAlias = tuple[int, int, int, int]
"""Device, inode, time of change (ns) and size (bytes) of a file."""


def file_version(path: str) -> FileVersion:
    """Return what differs after a file was written or replaced, also by another one behind a link.

    OSError or ValueError if there is no such file, or it cannot be seen.
    """
    status = Path(path).stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def is_open_to_others(path: str) -> bool:
    """Return whether users other than the owner and its group can read a file, or others than the owner change it."""
    try:
        return bool(Path(path).stat().st_mode & OPEN_MODES)
    except (OSError, ValueError):
        return False


def read_secret(field: str, path: str) -> str:
    """Return the content of a file. One line end at its end does not belong to the secret.

    ConfigError, which begins with ``field`` and quotes nothing, if the file cannot be read, is a pipe or is empty.
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
