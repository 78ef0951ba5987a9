"""Takes new credentials when the broker does not answer: a client keeps the files with which it was built."""

from __future__ import annotations

from shoal.errors import BrokerUnavailableError
from shoal.kafka.credentials import forget_token
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
        self._settings = settings
        named = (getattr(settings, name) for name in _FILES)
        self._paths: list[str] = [path for path in named if path is not None]
        self._versions = self._versions_now()

    def _versions_now(self) -> list[FileVersion | None]:
        return [_version(path) for path in self._paths]

    def renew(self) -> None:
        """Have new connections use new credentials; to be called when a broker does not answer.

        It may refuse new connections, because the credentials are no longer valid. A command that prints tokens runs
        for the next connection.

        Raises
        ------
        BrokerUnavailableError
            A file has changed. The next consumer loop builds new clients, which read it.
        """
        forget_token(self._settings)
        if self._versions_now() != self._versions:
            raise BrokerUnavailableError(
                "a broker does not answer, and files with credentials have changed: connecting with the new ones"
            )


def _version(path: str) -> FileVersion | None:
    try:
        return file_version(path)
    except (OSError, ValueError):
        return None
