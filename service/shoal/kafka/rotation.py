"""Notices that files with credentials were replaced: a client keeps those with which it was built."""

from __future__ import annotations

from shoal.errors import BrokerUnavailableError
from shoal.policy import KafkaSection
from shoal.secret_files import FileVersion, file_version

__all__ = ["UsedCredentials"]

_FILES = (
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password_file"),
    *("sasl_username_file", "sasl_password_file"),
)
"""Settings whose files a client reads when it is built. (It reads a file with a token for each connection.)"""


class UsedCredentials:
    """The files with credentials as they are when the clients of a consumer loop are built.

    To be created before the first of these clients, so that no change is missed.

    Parameters
    ----------
    settings : KafkaSection
        Name the files.
    """

    def __init__(self, settings: KafkaSection) -> None:
        named = (getattr(settings, name) for name in _FILES)
        self._paths: list[str] = [path for path in named if path is not None]
        self._versions = self._versions_now()

    def _versions_now(self) -> list[FileVersion | None]:
        return [_version(path) for path in self._paths]

    def raise_if_replaced(self) -> None:
        """Return if no file has changed; to be called when the broker does not answer.

        New connections of the clients may have failed for credentials that are no longer valid.

        Raises
        ------
        BrokerUnavailableError
            A file has changed. The next consumer loop builds new clients, which read it.
        """
        if self._versions_now() != self._versions:
            raise BrokerUnavailableError(
                "the broker does not answer, and files with credentials have changed: connecting with the new ones"
            )


def _version(path: str) -> FileVersion | None:
    try:
        return file_version(path)
    except (OSError, ValueError):
        return None
