"""Credentials of the Kafka settings: texts, mounted files, and OAuth tokens.

A client reads its files when it is built, and a file with a token for each connection. After a rotation, new clients
are built (`shoal.kafka.credentials`), without a restart of the process. A pipe can be read only once, so it is refused.

Takes new credentials when the broker does not answer: a client keeps the files with which it was built.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from pydantic import SecretStr

from shoal.errors import BrokerUnavailableError, ConfigError
from shoal.observability import logger
from shoal.policy import KafkaSection
from shoal.secret_files import FileVersion, file_version, read_secret

__all__ = ["CredentialFileError", "TokenProvider", "UsedCredentials", "forget_token", "secret_of"]

COMMAND_S = 30.0
"""Time limit of the command that prints a token (s)."""
REFRESH_SHARE = 0.8
"""Share of the lifetime of a token after which the command runs again."""

log = logger("kafka")


class CredentialFileError(ConfigError):
    """A file with credentials cannot be used now: the first start ends, and a later one is tried again."""


def secret_of(settings: KafkaSection, name: str) -> str | None:
    """Return a secret: the value of field ``name``, or the content of the file in ``name_file``; None without both.

    One line end at the end of a file does not belong to the secret. Raises `CredentialFileError` if the file cannot be
    read, is a pipe or is empty; the message quotes nothing of it.
    """
    value: SecretStr | None = getattr(settings, name)
    if value is not None:
        return value.get_secret_value()
    path: str | None = getattr(settings, f"{name}_file")
    try:
        return None if path is None else read_secret(f"kafka.{name}_file", path)
    except ConfigError as error:
        raise CredentialFileError(str(error)) from None


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # the client has no types
    """Gives the client an OAuth token for each new connection.

    The settings have a token, a file that is read for each connection, or a command. The command prints a token, which
    all clients of an event loop share. It runs again when `REFRESH_SHARE` of the lifetime of its token has passed,
    after `forget_token`, and for each connection if the token does not tell its lifetime. Connections that wait for the
    command at the same time share its token in any case.
    """

    def __init__(self, settings: KafkaSection) -> None:
        self._settings, self._command = settings, tuple(settings.sasl_oauth_command or ())

    async def token(self) -> str:
        """Return a token; the client takes a `KafkaConnectionError` for a connection that failed, and tries again."""
        try:
            if (token := secret_of(self._settings, "sasl_oauth_token")) is not None:
                return token.strip()
            return await _printed_token(self._command).get()
        except ConfigError as error:
            log.warning("no OAuth token", reason=str(error))
            raise KafkaConnectionError(str(error)) from None


def forget_token(settings: KafkaSection) -> None:
    """Have the command run for the next connection: brokers may refuse a token before it expires.

    To be called in the event loop of the clients.
    """
    if settings.sasl_oauth_command:
        _printed_token(tuple(settings.sasl_oauth_command)).forget()


class _PrintedToken:
    """The last token of a command."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command, self._lock = command, asyncio.Lock()
        self._token, self._valid_until_s, self._run_count = "", 0.0, 0

    async def get(self) -> str:
        """Return a token that is not old, or that the command has printed since this call."""
        run_count = self._run_count
        async with self._lock:
            if run_count == self._run_count and time.time() >= self._valid_until_s:
                self._token = await _printed(self._command)
                self._valid_until_s = _refresh_time_s(self._token)
                self._run_count += 1
            return self._token

    def forget(self) -> None:
        """Have the command run for the next call."""
        self._valid_until_s = 0.0


_printed_tokens: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, ...], _PrintedToken]]
_printed_tokens = WeakKeyDictionary()
"""The token of each command, by the event loop of the clients."""


def _printed_token(command: tuple[str, ...]) -> _PrintedToken:
    of_loop = _printed_tokens.setdefault(asyncio.get_running_loop(), {})
    return of_loop.setdefault(command, _PrintedToken(command))


async def _printed(command: Sequence[str]) -> str:
    """Return what a command prints; raises `ConfigError` if it prints no token.

    Its output is not quoted, because it may hold a secret.
    """
    field = "kafka.sasl_oauth_command"
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except (OSError, ValueError):
        raise ConfigError(f"{field}: the command cannot be started") from None
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except TimeoutError:
        raise ConfigError(f"{field}: the command did not end within {COMMAND_S:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    token = printed.decode(errors="replace").strip()
    if process.returncode:
        raise ConfigError(f"{field}: the command ended with exit code {process.returncode}")
    if not token or any(character.isspace() for character in token):
        raise ConfigError(f"{field}: the command must print the token, and nothing else")
    return token


def _refresh_time_s(token: str) -> float:
    """Return when to get another token (s since 1970); 0 if the token does not tell when it was issued and expires."""
    try:
        claims = token.split(".")[1]
        content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        issued_s, expires_s = float(content.get("iat", time.time())), float(content["exp"])
    except (IndexError, ValueError, TypeError, KeyError, AttributeError):
        return 0.0
    return issued_s + REFRESH_SHARE * (expires_s - issued_s)


_FILES = (
    *("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password_file"),
    *("sasl_username_file", "sasl_password_file"),
)
"""Settings whose files a client reads when it is built. (It reads a file with a token for each connection.)"""


class UsedCredentials:
    """The files with credentials as they are when the clients of a consumer loop are built.

    Create it before the first of these clients, so that no change is missed.
    """

    def __init__(self, settings: KafkaSection) -> None:
        self._settings = settings
        named = (getattr(settings, name) for name in _FILES)
        self._paths: list[str] = [path for path in named if path is not None]
        self._versions = self._versions_now()

    def _versions_now(self) -> list[FileVersion | None]:
        return [_version(path) for path in self._paths]

    def renew(self) -> None:
        """Have new connections use new credentials; call it when a broker does not answer.

        The broker may refuse new connections because the credentials are no longer valid. A command that prints tokens
        runs for the next connection. If a file has changed, `BrokerUnavailableError` is raised: the next consumer loop
        builds new clients, which read it.
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
