"""The HTTP server of a worker: metrics, probes and a status page on one port.

Access to the HTTP port of a worker: TLS, and a bearer token.

Certificate, key and token can be rotated while the server runs. The files of the certificate are compared at each
handshake, and the file of the token is read at each request. If new files cannot be used, the last good ones stay in
use, and a warning says so once.

The address of the HTTP port of a worker, and the host names that it answers to.

The connections of the HTTP port: how many there may be, and how long one may take to send its first request.

Connections of idle or slow clients would otherwise use up the descriptors that the process needs for its brokers.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import escape
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from shoal.errors import ConfigError, GuaranteeError
from shoal.observability.health import Health
from shoal.observability.logs import logger
from shoal.observability.metrics import Metrics
from shoal.secret_files import IS_PIPE, OPEN_TO_OTHERS, FileVersion, file_version, is_open_to_others, read_secret

__all__ = [
    "ADDRESS",
    "HttpAccess",
    "HttpAddress",
    "HttpConnections",
    "ServerCertificate",
    "TokenCheck",
    "mark_request",
    "parse_address",
    "parse_host_name",
    "serve",
]

CERTFILE = "--http-certfile (SHOAL_HTTP_CERTFILE)"
KEYFILE = "--http-keyfile (SHOAL_HTTP_KEYFILE)"
PASSWORD_FILE = "--http-key-password-file (SHOAL_HTTP_KEY_PASSWORD_FILE)"  # noqa: S105 - the names of a setting
PASSWORD = "SHOAL_HTTP_KEY_PASSWORD"  # noqa: S105
TOKEN_FILE = "--http-token-file (SHOAL_HTTP_TOKEN_FILE)"  # noqa: S105
TOKEN = "SHOAL_HTTP_TOKEN"  # noqa: S105
MIN_TOKEN_CHARACTERS = 16
"""A shorter token could be found by trying."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters of a bearer token (RFC 6750, section 2.1)."""
_BEGIN_CERTIFICATE, _ENCRYPTED = b"-----BEGIN CERTIFICATE-----", b"ENCRYPTED"

log = logger("http")


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """The settings of TLS and token; without any, the server speaks plain HTTP and requires nothing of a request.

    Attributes
    ----------
    certfile, keyfile : str or None
        Files in PEM: the certificate with its chain, and its private key.
    key_password_file : str or None
        File with the password of an encrypted key.
    key_password : str or None
        The password itself, from the environment.
    token_file : str or None
        File with the tokens, separated by white space. Each is accepted, so that a token can be rotated without a
        refused request.
    token : str or None
        The tokens themselves, from the environment.
    """

    certfile: str | None = None
    keyfile: str | None = None
    key_password_file: str | None = None
    token_file: str | None = None
    token: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    def certificate(self) -> ServerCertificate | None:
        """Return the certificate of the server; None if it speaks plain HTTP.

        Raises
        ------
        ConfigError
            A file is missing or cannot be used, one is given without the other, or the password is given twice.
        """
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
        return ServerCertificate(self.certfile, self.keyfile, self.key_password_file, self.key_password)

    def token_check(self) -> TokenCheck | None:
        """Return the check of tokens; None if none is required.

        Raises
        ------
        ConfigError
            The token is given twice, is empty, too short or not one, or its file cannot be read.
        """
        if self.token is not None and self.token_file is not None:
            raise ConfigError(f"{TOKEN}: is given besides {TOKEN_FILE}; remove one of the two")
        return None if self.token is None and self.token_file is None else TokenCheck(self.token, self.token_file)

    def warn(self, host: str) -> None:
        """Log what weakens the protection of a server that listens on this address."""
        has_token = self.token is not None or self.token_file is not None
        if has_token and self.certfile is None and not _is_loopback(host):
            log.warning("the HTTP token crosses the network in plain text: use --http-certfile and --http-keyfile")
        for setting in self.open_secret_files():
            log.warning(OPEN_TO_OTHERS, setting=setting)

    def open_secret_files(self) -> list[str]:
        """Return the settings whose files hold a secret that other users can read or change."""
        secrets = ((KEYFILE, self.keyfile), (PASSWORD_FILE, self.key_password_file), (TOKEN_FILE, self.token_file))
        return [setting for setting, path in secrets if path is not None and is_open_to_others(path)]


class ServerCertificate:
    """The certificate of the server and its private key, read again when a file has changed.

    A new certificate holds for new connections. Connections that are open keep theirs.

    Parameters
    ----------
    certfile, keyfile : str
        Files in PEM.
    key_password_file : str, optional
        File with the password of an encrypted key.
    key_password : str, optional
        The password itself, in place of its file.

    Raises
    ------
    ConfigError
        The files cannot be used. The message names the option and the remedy.
    """

    def __init__(
        self, certfile: str, keyfile: str, key_password_file: str | None = None, key_password: str | None = None
    ) -> None:
        self._certfile, self._keyfile, self._password_file = certfile, keyfile, key_password_file
        self._password = key_password or ""
        self._version = self._version_of_files()
        self._current, self._fault = self._read(), ""
        self.context = self._read()
        """Of the listening socket. Each handshake goes on with the current files."""
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
    """The tokens that open the protected pages, read from the file at each request.

    Parameters
    ----------
    given : str or None
        The tokens themselves.
    path : str or None
        The file that holds them instead.

    Raises
    ------
    ConfigError
        There is no token, or one is too short or not a token. The message quotes nothing of it.
    """

    def __init__(self, given: str | None, path: str | None) -> None:
        self._path = path
        self._has_reported = False
        self._tokens = (
            _tokens(TOKEN, given or "") if path is None else _tokens(TOKEN_FILE, read_secret(TOKEN_FILE, path))
        )

    def accepts(self, authorization: str) -> bool:
        """Return whether a header ``Authorization`` holds one of the tokens.

        The time of the comparison does not depend on how many characters are right.
        """
        self._read_again()
        scheme, _, token = authorization.partition(" ")
        offered = token.strip().encode("utf-8", "surrogateescape")
        found = [hmac.compare_digest(offered, known) for known in self._tokens]
        return scheme.lower() == "bearer" and any(found)

    def _read_again(self) -> None:
        if self._path is None:
            return
        try:
            self._tokens = _tokens(TOKEN_FILE, read_secret(TOKEN_FILE, self._path))
            self._has_reported = False
        except ConfigError as error:
            if not self._has_reported:
                log.warning("token of the HTTP port not changed", reason=str(error))
            self._has_reported = True


def _tokens(name: str, text: str) -> Sequence[bytes]:
    found = text.split()
    if not found:
        raise ConfigError(f"{name}: holds no token; give one, as `openssl rand -hex 32` prints it")
    for token in found:
        if not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"{name}: holds a character that no bearer token has; give letters, digits and . _ ~ + / - only, as "
                "`openssl rand -hex 32` prints them"
            )
        if len(token) < MIN_TOKEN_CHARACTERS:
            raise ConfigError(
                f"{name}: holds a token with fewer than {MIN_TOKEN_CHARACTERS} characters, which could be guessed; "
                "give a longer one, as `openssl rand -hex 32` prints it"
            )
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


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in {"", "localhost"}


ADDRESS, HOST_NAME = "--http (SHOAL_HTTP)", "--http-host (SHOAL_HTTP_HOST)"
"""How messages name these settings."""
LAST_PORT = 65_535
_HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


class HttpAddress(NamedTuple):
    """Where a server listens; port 0 stands for a free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Return whether only processes of this machine reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(text: str) -> HttpAddress:
    """Return the address in ``HOST:PORT``; without a host it is 127.0.0.1.

    Raises
    ------
    ConfigError
        The text has no port from 0 to 65535.
    """
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise ConfigError(f"{ADDRESS}: give HOST:PORT, for example 127.0.0.1:9464, with a port up to {LAST_PORT}")
    return HttpAddress(host.strip("[]") or "127.0.0.1", int(port))


def parse_host_name(text: str) -> str:
    """Return a host name in the form in which it is compared.

    Raises
    ------
    ConfigError
        It is not a host name: it is empty, or has a port, a scheme, a path or a wildcard.
    """
    name = text.rstrip(".").lower()
    if not _HOST_NAME.fullmatch(name):
        raise ConfigError(f"{HOST_NAME}: give one full host name without port, for example worker7.hospital.example")
    return name


MAX_CONNECTIONS = 64
"""Far more than Prometheus, probes and readers of the status page open."""
REQUEST_S = 10.0
"""Time for the TLS handshake and the head of the first request (s)."""
BACKLOG = 128
PAUSE_S = 0.5
"""Pause after a connection could not be accepted (s): there may be no descriptor left."""


class HttpConnections:
    """Accepts connections and gives each to a handler.

    A connection that has sent no complete request after `REQUEST_S` is closed. If there are `MAX_CONNECTIONS`, a new
    one takes the place of the oldest that waits for a request, so that idle clients keep no probe out. It is refused
    if all others are being answered.

    Parameters
    ----------
    make_handler : callable
        Returns the protocol of a new connection.
    context : ssl.SSLContext or None
        For TLS; None for plain HTTP.
    """

    def __init__(self, make_handler: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None) -> None:
        self._make_handler, self._context = make_handler, context
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open: dict[asyncio.Task[None], _Connection] = {}
        """The tasks that serve connections, oldest first."""
        self._has_warned = False

    async def listen(self, host: str, port: int) -> int:
        """Accept connections at every address of a host; return the port.

        Raises
        ------
        OSError
            The host is unknown, or an address of it cannot be bound.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        missing: int | None = None
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            try:
                listener = socket.create_server(address, family=family, backlog=BACKLOG)
            except OSError as error:
                # A name may have an address of IPv6 on a machine without it.
                missing = error.errno
                if missing not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
                continue
            listener.setblocking(False)
            self._listeners.append(listener)
        if missing is not None and not self._listeners:
            raise OSError(missing, os.strerror(missing))
        self._accepting = [asyncio.create_task(self._accept(listener)) for listener in self._listeners]
        return int(self._listeners[0].getsockname()[1])

    async def stop_listening(self) -> None:
        """Accept no more connections."""
        await _cancel(self._accepting)
        for listener in self._listeners:
            listener.close()

    async def close(self) -> None:
        """Cut off the connections that are still open."""
        await _cancel(list(self._open))

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._open) >= MAX_CONNECTIONS and not await self._make_room():
                accepted.close()
                continue
            connection = _Connection(self._make_handler())
            serving = loop.create_task(self._serve(connection, accepted))
            self._open[serving] = connection
            serving.add_done_callback(self._open.pop)

    async def _make_room(self) -> bool:
        """Close the oldest connection that waits for a request; return False if there is none."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "too many connections to the HTTP port: the oldest that wait for a request are closed. Restrict access "
                "to the port",
                most=MAX_CONNECTIONS,
            )
        for serving, connection in self._open.items():
            if not connection.is_answered:
                await _cancel([serving])
                return True
        return False

    async def _serve(self, connection: _Connection, accepted: socket.socket) -> None:
        """Serve a connection until it is closed, by either side."""
        loop, is_tls = asyncio.get_running_loop(), self._context is not None
        try:
            async with asyncio.timeout(REQUEST_S):
                await loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=REQUEST_S if is_tls else None,
                )
                await connection.has_request.wait()
            await connection.is_lost.wait()
        except OSError:
            pass  # the handshake failed, or there was no request in time (TimeoutError)
        finally:
            connection.cut_off()


class _Connection(asyncio.Protocol):
    """Passes everything on to the handler, and knows whether it answers a request."""

    def __init__(self, handler: asyncio.Protocol) -> None:
        self._handler = handler
        self._transport: asyncio.BaseTransport | None = None
        self.has_request, self.is_lost = asyncio.Event(), asyncio.Event()
        self.is_answered = False

    def cut_off(self) -> None:
        """Close the connection at once, also if the other side does not read."""
        if isinstance(self._transport, asyncio.Transport) and not self.is_lost.is_set():
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_request.set()
        self.is_lost.set()
        self._handler.connection_lost(exc)


def mark_request(transport: asyncio.BaseTransport | None, *, is_answered: bool) -> None:
    """Note that the connection of a transport has sent a complete request, and whether it is being answered."""
    connection = None if transport is None else transport.get_protocol()
    if isinstance(connection, _Connection):
        connection.is_answered = is_answered
        connection.has_request.set()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


SHUTDOWN_TIMEOUT_S = 1.0
PROTECTED = frozenset({"/", "/metrics"})
"""Pages with counts. The probes are open."""

_PRIVATE_SUFFIXES = (".local", ".localhost", ".internal", ".svc")
"""Suffixes of host names that cannot be registered in public DNS."""

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>Shoal</title><style>body{{font:16px/1.5 system-ui;margin:3rem auto;max-width:40rem}}
td{{padding:.1rem 1rem .1rem 0}}td+td{{text-align:right}}</style></head><body><h1>Shoal</h1><p>{state}</p>
<table>{rows}</table><p><a href="metrics">metrics</a> <a href="livez">livez</a> <a href="readyz">readyz</a></p>
</body></html>"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@asynccontextmanager
async def serve(
    address: str,
    metrics: Metrics,
    health: Health,
    counts: Callable[[], dict[str, int]],
    host_names: Sequence[str] = (),
    access: HttpAccess | None = None,
) -> AsyncIterator[int]:
    """Serve metrics, probes and status page while the context is open.

    ``/livez`` answers 200 while the event loop runs. ``/readyz`` answers 200, also to a worker without a partition, or
    503 with the reasons. ``/metrics`` and the status page answer 403 if the request names the server by a host name
    that can be registered in public DNS and is not listed, and 401 if a token is required and the request has none.
    Idle connections are limited as `HttpConnections` says.
    The probes need no token: a kubelet sends only headers that are in the pod's manifest, which is no place for a
    secret.

    Parameters
    ----------
    address : str
        ``HOST:PORT``; port 0 selects a free port.
    metrics : Metrics
        Served as ``/metrics`` in the text format of Prometheus.
    health : Health
        Answers ``/readyz``.
    counts : callable
        Returns the totals on the status page by name.
    host_names : sequence of str
        Further names of the server, such as ``worker7.hospital.example``, without a port. Each must belong to the
        operator: the owner of a name can read the metrics through a browser in this network (DNS rebinding).
    access : HttpAccess, optional
        TLS and token; default plain HTTP without a token.

    Yields
    ------
    int
        The port of the server.

    Raises
    ------
    ConfigError
        The address is invalid or cannot be bound, a host name is not one, or TLS and token cannot be used.
    """
    access = access or HttpAccess()
    names = frozenset(map(parse_host_name, host_names))
    host, port = parse_address(address)
    certificate, token = access.certificate(), access.token_check()
    access.warn(host)
    if access.certfile is not None:
        metrics.certificates.watch("http", access.certfile)
    # A client that does not read its response must not delay the end of the process.
    runner = web.AppRunner(
        _application(metrics, health, counts, names, token), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S
    )
    await runner.setup()
    connections = HttpConnections(_handlers(runner), None if certificate is None else certificate.context)
    try:
        try:
            bound_port = await connections.listen(host, port)
        except OSError as error:
            raise ConfigError(f"{ADDRESS}: {address} cannot be bound: {error.strerror}") from None
        yield bound_port
    finally:
        await connections.stop_listening()
        await runner.cleanup()
        await connections.close()


def _handlers(runner: web.AppRunner) -> web.Server:
    """Return what makes the handler of a connection."""
    server = runner.server
    if server is None:
        raise GuaranteeError("the HTTP server was not set up")
    return server


@web.middleware
async def _note_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection that a request is complete and being answered."""
    mark_request(request.transport, is_answered=True)
    try:
        return await handler(request)
    finally:
        mark_request(request.transport, is_answered=False)


def _host_name_check(listed: frozenset[str]) -> Middleware:
    """Return the check that refuses public host names that are not listed.

    With DNS rebinding, a web page could read metrics through a browser in this network.
    """

    @web.middleware
    async def refuse_public_host_names(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROTECTED:
            name = _name_in(request.host)
            if name not in listed and not _is_private_name(name):
                text = "unknown host name: use the address or the machine's own name, or list the name (--http-host)\n"
                return web.Response(status=403, text=text)
        return await handler(request)

    return refuse_public_host_names


def _name_in(host: str) -> str:
    """Return the name or address in a Host header."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.strip("[]").rstrip(".").lower()


def _is_private_name(name: str) -> bool:
    """Return whether this is an address, this machine's name or a name outside public DNS."""
    try:
        ip_address(name)
    except ValueError:
        return bool(name) and ("." not in name or name.endswith(_PRIVATE_SUFFIXES) or name == gethostname().lower())
    return True


def _token_check(token: TokenCheck) -> Middleware:
    """Return the check that refuses requests for pages without a token."""

    @web.middleware
    async def refuse_requests_without_token(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROTECTED and not token.accepts(request.headers.get("Authorization", "")):
            text = "a token is required: send the header Authorization: Bearer TOKEN\n"
            return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    return refuse_requests_without_token


_CREATED = re.compile(rb"^(# (HELP|TYPE) )?shoal_\w+_created[ {].*\n", re.MULTILINE)
"""Series that the client adds to counters: the exact time of the first record and of the first release."""


def _application(
    metrics: Metrics,
    health: Health,
    counts: Callable[[], dict[str, int]],
    host_names: frozenset[str],
    token: TokenCheck | None,
) -> web.Application:
    async def metrics_page(_: web.Request) -> web.Response:
        metrics.ready.set(health.ready)
        body = _CREATED.sub(b"", generate_latest(metrics.registry))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if health.ready else 503, text=health.status + "\n")

    async def status_page(_: web.Request) -> web.Response:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{count}</td></tr>" for name, count in counts().items())
        text = _PAGE.format(state=escape(health.status), rows=rows)
        return web.Response(text=text, content_type="text/html")

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    checks = [_note_request, _host_name_check(host_names), *([] if token is None else [_token_check(token)])]
    application = web.Application(middlewares=checks)
    application.on_response_prepare.append(add_headers)
    for path, handler in (("/metrics", metrics_page), ("/livez", livez), ("/readyz", readyz), ("/", status_page)):
        application.router.add_get(path, handler)
    return application
