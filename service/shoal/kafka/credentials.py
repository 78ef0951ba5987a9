"""Secrets of the Kafka settings: passwords, OAuth tokens, certificates and their keys, keys of the offset metadata.

A client reads its files when it is built, and a file with a token for each connection. After a rotation, new clients
are built (`UsedCredentials`), without a restart of the process. A pipe can be read only once, so it is refused. No
message quotes a file.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import ssl
import stat
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from pydantic import SecretStr

from shoal.errors import BrokerUnavailableError, ConfigError, Fault, PolicyError
from shoal.observability import logger
from shoal.policy import KafkaSection
from shoal.secret_files import IS_PIPE, OPEN_MODES, FileVersion, file_version, is_open_to_others, read_secret

COMMAND_S = 30.0  # time limit of the command that prints a token (s)
REFRESH_SHARE = 0.8  # share of the lifetime of a token after which the command runs again

log = logger("kafka")


def credential_fault(message: str) -> ConfigError:
    """Return the error for files with credentials that cannot be used now."""
    fault = ConfigError(message)
    fault.may_pass = True
    return fault


def secret_of(settings: KafkaSection, name: str) -> str | None:
    """Return a secret: the value of field ``name``, or the content of the file in ``name_file``; None without both."""
    value: SecretStr | None = getattr(settings, name)
    if value is not None:
        return value.get_secret_value()
    path: str | None = getattr(settings, f"{name}_file")
    try:
        return None if path is None else read_secret(f"kafka.{name}_file", path)
    except ConfigError as error:
        raise credential_fault(str(error)) from None


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc] # the client has no types
    """Gives the client an OAuth token for each new connection: from the settings, a file, or a command that prints it.

    All clients of an event loop share the token of a command. It runs again after `REFRESH_SHARE` of the token's
    lifetime, after `forget_token`, and for each connection if the token tells no lifetime.
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
    """Have the command run for the next connection; to be called in the event loop of the clients."""
    if settings.sasl_oauth_command:
        _printed_token(tuple(settings.sasl_oauth_command)).valid_until_s = 0.0


class _PrintedToken:
    """The last token of a command; it is printed anew after ``valid_until_s``."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command, self._lock = command, asyncio.Lock()
        self._token, self._run_count = "", 0
        self.valid_until_s = 0.0

    async def get(self) -> str:
        """Return a token that is not old, or that the command has printed since this call."""
        run_count = self._run_count
        async with self._lock:
            if run_count == self._run_count and time.time() >= self.valid_until_s:
                self._token = await _printed(self._command)
                self.valid_until_s = _refresh_time_s(self._token)
                self._run_count += 1
            return self._token


_printed_tokens: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, ...], _PrintedToken]]
_printed_tokens = WeakKeyDictionary()  # the token of each command, by the event loop of the clients


def _printed_token(command: tuple[str, ...]) -> _PrintedToken:
    of_loop = _printed_tokens.setdefault(asyncio.get_running_loop(), {})
    return of_loop.setdefault(command, _PrintedToken(command))


async def _printed(command: Sequence[str]) -> str:
    """Return the token that a command prints; raises `ConfigError`, which quotes nothing of it, if it prints none."""
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
    "sasl_password_file",
)  # settings whose files a client reads when it is built. (It reads a file with a token for each connection.)


class UsedCredentials:
    """The files with credentials as they were before the first client of a consumer loop was built."""

    def __init__(self, settings: KafkaSection) -> None:
        self._settings = settings
        named = (getattr(settings, name) for name in _FILES)
        self._paths: list[str] = [path for path in named if path is not None]
        self._versions = self._versions_now()

    def _versions_now(self) -> list[FileVersion | None]:
        return [_version(path) for path in self._paths]

    def renew(self) -> None:
        """Have new connections use new credentials; raises `BrokerUnavailableError` if new clients must be built."""
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


_SECRETS = ("sasl_password_file", "sasl_oauth_token_file", "ssl_password_file")
_CERTIFICATES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
UNREAD = "the file cannot be read"
_BEGIN_CERTIFICATE, _ENCRYPTED = b"-----BEGIN CERTIFICATE-----", b"ENCRYPTED"


class FileFault(NamedTuple):
    """What is wrong with the file of one field; ``is_unread`` if this user cannot read it on this machine."""

    field: str
    message: str
    is_unread: bool = False


def certificate_files(settings: KafkaSection) -> dict[str, str]:
    """Return the files with certificates by what they are for: ``ca`` and ``client``. A pipe is none."""
    if not settings.security_protocol.endswith("SSL"):
        return {}
    paths = {"ca": settings.ssl_cafile, "client": settings.ssl_certfile}
    return {name: path for name, path in paths.items() if path is not None and not _is_pipe(path)}


def open_secret_files(settings: KafkaSection) -> list[str]:
    """Return the fields whose secrets other users can read or change; `metadata_keys` refuses its own file."""
    fields = list(_SECRETS)
    if settings.security_protocol.endswith("SSL"):
        fields.append("ssl_certfile" if settings.ssl_keyfile is None else "ssl_keyfile")
    paths = [(field, getattr(settings, field)) for field in fields]
    return [field for field, path in paths if path is not None and is_open_to_others(path)]


def check_files(settings: KafkaSection, *, has_secrets: bool = True) -> Iterator[FileFault]:
    """Yield the faults of all files; without ``has_secrets`` the environment need not hold the credentials."""
    faults = list(_find_secret_faults(settings))
    yield from faults
    if any(fault.field == "ssl_password_file" for fault in faults):
        return  # the private key cannot be checked
    has_password_here = settings.ssl_password is not None or settings.ssl_password_file is not None
    yield from find_certificate_faults(settings, has_password=has_secrets or has_password_here)
    field = "metadata_key_file" if settings.metadata_key is None else "metadata_key"
    try:
        metadata_keys(settings)
    except PolicyError as error:
        for fault in error.faults:
            yield FileFault(field, fault.message, is_unread=fault.message.startswith(UNREAD))


def _find_secret_faults(settings: KafkaSection) -> Iterator[FileFault]:
    """Yield the faults of the files with passwords and tokens."""
    for field in _SECRETS:
        path = getattr(settings, field)
        if path is None:
            continue
        if _is_pipe(path):
            yield FileFault(field, IS_PIPE)
            continue
        fault = _fault_of_reading(field, path)
        if fault is not None:
            yield fault
            continue
        try:
            if not Path(path).read_bytes().decode().strip():
                yield FileFault(field, "the file is empty")
        except UnicodeDecodeError:
            yield FileFault(field, "the file is not UTF-8")


def find_certificate_faults(settings: KafkaSection, *, has_password: bool = True) -> Iterator[FileFault]:
    """Yield the faults of certificates and private key; without ``has_password`` an encrypted key is not decrypted."""
    if not settings.security_protocol.endswith("SSL"):
        return
    files = {name: path for name in _CERTIFICATES if (path := getattr(settings, name)) is not None}
    if any(map(_is_pipe, files.values())):
        return  # what a pipe holds can be read once
    unread = [fault for name, path in files.items() if (fault := _fault_of_reading(name, path))]
    yield from unread
    names = files.keys() - {fault.field for fault in unread}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ssl_cafile is not None and "ssl_cafile" in names:
        try:
            context.load_verify_locations(settings.ssl_cafile)
        except ssl.SSLError:
            yield FileFault("ssl_cafile", "the file holds no certificate in PEM")
    if settings.ssl_certfile is None or "ssl_certfile" not in names:
        return
    if _BEGIN_CERTIFICATE not in Path(settings.ssl_certfile).read_bytes():
        yield FileFault("ssl_certfile", "the file holds no certificate in PEM")
    elif settings.ssl_keyfile is None or "ssl_keyfile" in names:
        yield from _check_pair(context, settings, has_password=has_password)


def _is_pipe(path: str) -> bool:
    try:
        return Path(path).is_fifo()
    except OSError:
        return False


def _fault_of_reading(field: str, path: str) -> FileFault | None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        return FileFault(field, f"{UNREAD}: {error.strerror}", is_unread=True)
    except ValueError:
        return FileFault(field, "not the name of a file")
    return None


def _check_pair(context: ssl.SSLContext, settings: KafkaSection, *, has_password: bool) -> Iterator[FileFault]:
    """Yield what is wrong with the private key of a certificate."""
    certificate, key = str(settings.ssl_certfile), settings.ssl_keyfile
    if not has_password and _ENCRYPTED in Path(key or certificate).read_bytes():
        return
    password = secret_of(settings, "ssl_password") or ""
    field = "ssl_certfile" if key is None else "ssl_keyfile"
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=password)
    except (ssl.SSLError, ValueError):
        words = (
            "in PEM that fits the certificate in kafka.ssl_certfile, or SHOAL_KAFKA__SSL_PASSWORD is missing or wrong"
        )
        if key is None:
            words = "that can be read; give kafka.ssl_keyfile, or if the key is encrypted SHOAL_KAFKA__SSL_PASSWORD"
        yield FileFault(field, f"the file holds no private key {words}")


PLAIN_WORD = "plain"  # stands in the list of metadata keys for metadata without encryption
KEY_BYTES = 32
MAX_FILE_BYTES = 1 << 16
MIN_DISTINCT_BYTES = 8  # fewest distinct bytes of a key; 32 random bytes have more

MetadataKey: TypeAlias = bytes | None  # 32 bytes, or None for plain text


def metadata_keys(settings: KafkaSection) -> tuple[MetadataKey, ...]:
    """Read the keys of the offset metadata from the settings, or from the file that they name."""
    given = settings.metadata_key
    if given is not None and settings.metadata_key_file is not None:
        message = "given together with kafka.metadata_key_file: keep one of them"
        raise PolicyError([Fault(("SHOAL_KAFKA__METADATA_KEY",), message)], "settings")
    if given is not None:
        return _keys(given.get_secret_value(), "SHOAL_KAFKA__METADATA_KEY")
    if settings.metadata_key_file is not None:
        return _keys(_file(Path(settings.metadata_key_file)), "kafka.metadata_key_file")
    return (None,)


def _keys(text: str, where: str) -> tuple[MetadataKey, ...]:
    path = tuple(where.split("."))
    words = text.split()
    if not words:
        raise PolicyError([Fault(path, "holds no key: 32 random bytes, as hex or base64")], "settings")
    faults, keys = [], []
    for number, word in enumerate(words, 1):
        key = None if word == PLAIN_WORD else _key(word)
        if key == b"":
            faults.append(
                Fault(path, f"word {number} is no key: 32 random bytes as hex or base64 (or the word 'plain')")
            )
        keys.append(key)
    if faults:
        raise PolicyError(faults, "settings")
    return tuple(keys)


def _key(word: str) -> bytes:
    """Return the key that a word encodes; no bytes if it encodes none."""
    try:
        if re.fullmatch(r"[0-9a-fA-F]{64}", word):
            key = bytes.fromhex(word)
        else:
            key = base64.b64decode(
                word + "=" * (-len(word) % 4), altchars=b"-_" if set(word) & set("-_") else None, validate=True
            )
    except ValueError:
        return b""
    return key if len(key) == KEY_BYTES and len(set(key)) >= MIN_DISTINCT_BYTES else b""


def _file(path: Path) -> str:
    """Return the text of the key file. No error names the path: it may be a key put into the wrong setting."""
    fault = "holds no key: 32 random bytes, as hex or base64"
    try:
        # O_NONBLOCK: opening a pipe without a writer must not wait.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            is_open = status.st_mode & OPEN_MODES
            if stat.S_ISREG(status.st_mode) and not is_open:
                return file.read(MAX_FILE_BYTES).decode("ascii")
            fault = (
                "the file is open to others: take their rights away (chmod 640, or 600)" if is_open else "is no file"
            )
    except OSError as error:
        fault = f"the file cannot be read: {error.strerror}"
    except ValueError:
        pass
    raise PolicyError([Fault(("kafka", "metadata_key_file"), fault)], "settings")
