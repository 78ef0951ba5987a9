"""The HTTP server of a worker: metrics, probes and a status page on one port, with TLS and a bearer token if given.

Files of the certificate are compared at each handshake, and that of the token is read at each request. If new files
cannot be used, the last good ones stay in use, and a warning says so once.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from ipaddress import ip_address
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from shoal.errors import ConfigError
from shoal.observability.http_access import ADDRESS, HttpAccess, ServerCertificate, TokenCheck, parse_address
from shoal.observability.logs import logger
from shoal.observability.metrics import Health, Metrics
from shoal.secret_files import OPEN_TO_OTHERS

MAX_CONNECTIONS = 64
"""Far more than Prometheus, probes and readers of the status page open."""
HANDSHAKE_S = 10.0
SHUTDOWN_TIMEOUT_S = 1.0
PROTECTED = frozenset({"/", "/metrics"})
"""Pages with counts. The probes are open."""

_CREATED = re.compile(rb"^(# (HELP|TYPE) )?shoal_\w+_created[ {].*\n", re.MULTILINE)
"""Series that the client adds to counters: the exact time of the first record and of the first release."""
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

log = logger("http")


@asynccontextmanager
async def serve(address: str, metrics: Metrics, health: Health, access: HttpAccess | None = None) -> AsyncIterator[int]:
    """Serve metrics, probes and status page while the context is open; yield the port. Port 0 selects a free port.

    ``/livez`` answers 200 while the event loop runs, ``/readyz`` 200, also to a worker without a partition, or 503
    with the reasons. ``/metrics`` and the status page answer 401 without a required token. The probes need none: a
    kubelet sends only headers that are in the pod's manifest, which is no place for a secret. A connection beyond
    `MAX_CONNECTIONS` takes the place of the oldest, so that idle clients keep no probe out. ConfigError if address,
    TLS or token cannot be used.
    """
    access = access or HttpAccess()
    is_on_network = not _is_loopback(parse_address(address)[0])
    certificate, token = access.certificate(), access.token_check()
    if is_on_network and token is None:
        words = "metrics and page can be read by other machines without a token; --http-token-file requires one"
        log.warning(words, http=address)
    elif is_on_network and certificate is None:
        log.warning("the HTTP token crosses the network in plain text: use --http-certfile and --http-keyfile")
    for setting in access.open_secret_files():
        log.warning(OPEN_TO_OTHERS, setting=setting)
    if access.certfile is not None:
        metrics.certificates.watch("http", access.certfile)
    # A client that does not read its response must not delay the end of the process.
    runner = web.AppRunner(_application(metrics, health, token), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        listener = await _listen(cast("web.Server", runner.server), address, certificate)
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
    finally:
        await runner.cleanup()


async def _listen(server: web.Server, address: str, certificate: ServerCertificate | None) -> asyncio.Server:
    """Accept connections, and close the oldest ones beyond `MAX_CONNECTIONS`. ConfigError if this cannot be bound."""

    def handler_of_new_connection() -> asyncio.Protocol:
        for oldest in server.connections[: 1 - MAX_CONNECTIONS]:
            if oldest.transport is not None:
                oldest.transport.abort()
        return server()

    context, handshake_s = (None, None) if certificate is None else (certificate.context, HANDSHAKE_S)
    try:
        return await asyncio.get_running_loop().create_server(
            handler_of_new_connection, *parse_address(address), ssl=context, ssl_handshake_timeout=handshake_s
        )
    except OSError as error:
        # Asyncio puts more than the reason into the text of an error of the system.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise ConfigError(f"{ADDRESS}: {address} cannot be bound: {reason}") from None


def _is_loopback(host: str) -> bool:
    """Return whether only processes of this machine reach this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _application(metrics: Metrics, health: Health, token: TokenCheck | None) -> web.Application:
    async def metrics_page(_: web.Request) -> web.Response:
        metrics.ready.set(health.ready)
        body = _CREATED.sub(b"", generate_latest(metrics.registry))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if health.ready else 503, text=health.status + "\n")

    async def status_page(_: web.Request) -> web.Response:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{count}</td></tr>" for name, count in metrics.totals().items())
        text = _PAGE.format(state=escape(health.status), rows=rows)
        return web.Response(text=text, content_type="text/html")

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    application = web.Application(middlewares=[] if token is None else [_require(token)])
    application.on_response_prepare.append(add_headers)
    for path, handler in (("/metrics", metrics_page), ("/livez", livez), ("/readyz", readyz), ("/", status_page)):
        application.router.add_get(path, handler)
    return application


def _require(token: TokenCheck) -> Middleware:
    """Return what refuses requests for protected pages without a token."""

    @web.middleware
    async def require(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROTECTED and not token.accepts(request.headers.get("Authorization", "")):
            text = "a token is required: send the header Authorization: Bearer TOKEN\n"
            return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    return require
