"""What the options of the HTTP port say: its address, its certificate and its tokens; and what is wrong with them.

It is apart from the server, because `shoal check` examines these options and serves nothing.
"""

from __future__ import annotations

import argparse
import hmac
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from shoal.errors import ConfigError
from shoal.observability.logs import logger
from shoal.secret_files import IS_PIPE, FileVersion, file_version, is_open_to_others, read_secret

ADDRESS = "--http (SHOAL_HTTP)"
CERTFILE = "--http-certfile (SHOAL_HTTP_CERTFILE)"
KEYFILE = "--http-keyfile (SHOAL_HTTP_KEYFILE)"
PASSWORD_FILE = "--http-key-password-file (SHOAL_HTTP_KEY_PASSWORD_FILE)"  # noqa: S105 - the names of a setting
PASSWORD = "SHOAL_HTTP_KEY_PASSWORD"  # noqa: S105
TOKEN_FILE = "--http-token-file (SHOAL_HTTP_TOKEN_FILE)"  # noqa: S105
TOKEN = "SHOAL_HTTP_TOKEN"  # noqa: S105

LAST_PORT = 65_535
MIN_TOKEN_CHARACTERS = 16
"""A shorter token could be found by trying."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters of a bearer token (RFC 6750, section 2.1)."""
_BEGIN_CERTIFICATE, _ENCRYPTED = b"-----BEGIN CERTIFICATE-----", b"ENCRYPTED"

log = logger("http")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; without a host it is 127.0.0.1. ConfigError if the port is not one."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise ConfigError(f"{ADDRESS}: give HOST:PORT, for example 127.0.0.1:9464, with a port up to {LAST_PORT}")
    return host.strip("[]") or "127.0.0.1", int(port)


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """The settings of TLS and token; without any, the server speaks plain HTTP and requires nothing of a request.

    The files of certificate (with its chain) and key are in PEM. A token setting holds one or more tokens, separated by
    white space: each is accepted, so that a token can be rotated without a refused request.
    """

    certfile: str | None = None
    keyfile: str | None = None
    key_password_file: str | None = None
    token_file: str | None = None
    token: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """Return what the options of a command say."""
        return cls(
            certfile=options.http_certfile,
            keyfile=options.http_keyfile,
            key_password_file=options.http_key_password_file,
            key_password=options.http_key_password,
            token_file=options.http_token_file,
            token=options.http_token,
        )

    def certificate(self) -> ServerCertificate | None:
        """Return the certificate; None for plain HTTP. ConfigError, with the option and the remedy, if unusable."""
        passwords = ((PASSWORD_FILE, self.key_password_file), (PASSWORD, self.key_password))
        if self.certfile is None:
            for name, given in ((KEYFILE, self.keyfile), *passwords):
                if given is not None:
                    raise ConfigError(f"{name}: has no effect without {CERTFILE}; give the certificate, or remove it")
            return None
        if self.keyfile is None:
            raise ConfigError(f"{KEYFILE}: missing; give the private key of the certificate")
        if all(given is not None for _, given in passwords):
            raise ConfigError(f"{PASSWORD}: is given besides {PASSWORD_FILE}; remove one of the two")
        return ServerCertificate(self.certfile, self.keyfile, self.key_password_file, self.key_password or "")

    def token_check(self) -> TokenCheck | None:
        """Return the check of tokens; None if none is required. ConfigError, which quotes nothing, if unusable."""
        if self.token is not None and self.token_file is not None:
            raise ConfigError(f"{TOKEN}: is given besides {TOKEN_FILE}; remove one of the two")
        return None if self.token is None and self.token_file is None else TokenCheck(self.token, self.token_file)

    def open_secret_files(self) -> list[str]:
        """Return the settings whose files hold a secret that other users can read or change."""
        secrets = ((KEYFILE, self.keyfile), (PASSWORD_FILE, self.key_password_file), (TOKEN_FILE, self.token_file))
        return [setting for setting, path in secrets if path is not None and is_open_to_others(path)]


class ServerCertificate:
    """The certificate of the server and its private key, read again when a file has changed.

    A new certificate holds for new connections. Connections that are open keep theirs.
    """

    def __init__(self, certfile: str, keyfile: str, password_file: str | None, password: str) -> None:
        self._certfile, self._keyfile, self._password_file = certfile, keyfile, password_file
        self._password, self._fault = password, ""
        self._version = self._version_of_files()
        self.context = self._current = self._read()
        """``context`` is that of the listening socket. Each handshake goes on with the current files."""
        self.context.sni_callback = self._use_current

    def _use_current(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        """Give a connection the certificate that the files hold now. It is called in each handshake."""
        try:
            version = self._version_of_files()
            if version != self._version:
                self._version = version  # before the files are read: unusable files are read once
                self._current = self._read()
                log.info("certificate of the HTTP port changed")
            self._fault = ""
        except ConfigError as error:
            if str(error) != self._fault:
                log.warning("certificate of the HTTP port not changed", reason=str(error))
            self._fault = str(error)
        connection.context = self._current

    def _version_of_files(self) -> tuple[FileVersion, ...]:
        named = ((CERTFILE, self._certfile), (KEYFILE, self._keyfile), (PASSWORD_FILE, self._password_file))
        return tuple(_version(name, path) for name, path in named if path is not None)

    def _read(self) -> ssl.SSLContext:
        """Return a context with the certificate and the key that the files hold."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        password = self._password if self._password_file is None else read_secret(PASSWORD_FILE, self._password_file)
        if _BEGIN_CERTIFICATE not in _content(CERTFILE, self._certfile):
            raise ConfigError(f"{CERTFILE}: the file holds no certificate in PEM")
        is_encrypted = _ENCRYPTED in _content(KEYFILE, self._keyfile)
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self._certfile, self._keyfile, password=password)
        except (ssl.SSLError, ValueError):
            if is_encrypted:
                remedy = f"the key is encrypted; give its password in {PASSWORD_FILE} or as {PASSWORD}"
                raise ConfigError(f"{KEYFILE}: {remedy}, or correct it") from None
            remedy = "the file holds no private key in PEM that fits the certificate; give the key of this certificate"
            raise ConfigError(f"{KEYFILE}: {remedy}") from None
        except OSError as error:
            raise ConfigError(f"{CERTFILE}: the file cannot be read: {error.strerror}") from None
        return context


class TokenCheck:
    """The tokens that open the protected pages, given as they are or in a file, which is read at each request."""

    def __init__(self, given: str | None, path: str | None) -> None:
        self._given, self._path, self._has_reported = given, path, False
        self._tokens = self._read()

    def accepts(self, authorization: str) -> bool:
        """Return whether a header holds a token, in a time that does not depend on how many characters are right."""
        try:
            self._tokens = self._read()
            self._has_reported = False
        except ConfigError as error:
            if not self._has_reported:
                log.warning("token of the HTTP port not changed", reason=str(error))
            self._has_reported = True
        scheme, _, token = authorization.partition(" ")
        offered = token.strip().encode("utf-8", "surrogateescape")
        found = [hmac.compare_digest(offered, known) for known in self._tokens]
        return scheme.lower() == "bearer" and any(found)

    def _read(self) -> list[bytes]:
        name = TOKEN if self._path is None else TOKEN_FILE
        found = ((self._given or "") if self._path is None else read_secret(TOKEN_FILE, self._path)).split()
        if not found:
            raise ConfigError(f"{name}: holds no token; give one, as `openssl rand -hex 32` prints it")
        for token in found:
            if not _TOKEN.fullmatch(token):
                allowed = "letters, digits and . _ ~ + / - only, as `openssl rand -hex 32` prints them"
                raise ConfigError(f"{name}: holds a character that no bearer token has; give {allowed}")
            if len(token) < MIN_TOKEN_CHARACTERS:
                fault = f"holds a token with fewer than {MIN_TOKEN_CHARACTERS} characters, which could be guessed"
                raise ConfigError(f"{name}: {fault}; give a longer one, as `openssl rand -hex 32` prints it")
        return [token.encode("ascii") for token in found]


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: the file cannot be read: {error.strerror}") from None


def _version(name: str, path: str) -> FileVersion:
    try:
        version = file_version(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not the name of a file"
        raise ConfigError(f"{name}: the file cannot be read: {reason}") from None
    if Path(path).is_fifo():
        raise ConfigError(f"{name}: {IS_PIPE}")
    return version
