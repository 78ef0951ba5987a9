"""The HTTP server of a worker: metrics, probes and a status page on one port."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from html import escape
from ipaddress import ip_address
from socket import gethostname

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from shoal.errors import ConfigError, GuaranteeError
from shoal.observability.health import Health
from shoal.observability.http_access import HttpAccess, TokenCheck
from shoal.observability.http_address import ADDRESS, parse_address, parse_host_name
from shoal.observability.http_connections import HttpConnections, mark_request
from shoal.observability.metrics import Metrics

__all__ = ["serve"]

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
