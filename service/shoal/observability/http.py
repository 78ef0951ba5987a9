"""The HTTP server of a worker: metrics, probes and a status page on one port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from html import escape
from ipaddress import ip_address
from socket import gethostname

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from shoal.errors import ConfigError
from shoal.observability.health import Health
from shoal.observability.metrics import Metrics

__all__ = ["serve"]

SHUTDOWN_TIMEOUT_S = 1.0

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
    address: str, metrics: Metrics, health: Health, counts: Callable[[], dict[str, int]]
) -> AsyncIterator[int]:
    """Serve metrics, probes and status page while the context is open.

    ``/livez`` answers 200 while the event loop runs. ``/readyz`` answers 200, or 503 with the reasons. ``/metrics`` and
    the status page answer 403 if the request names the server by a host name that can be registered in public DNS.

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

    Yields
    ------
    int
        The port of the server.

    Raises
    ------
    ConfigError
        The address is invalid or cannot be bound.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ConfigError("--http: give HOST:PORT, for example 127.0.0.1:9464")
    # A client that does not read its response must not delay the end of the process.
    runner = web.AppRunner(_application(metrics, health, counts), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host.strip("[]") or "127.0.0.1", int(port))
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"--http: {address} cannot be bound: {error.strerror}") from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@web.middleware
async def _refuse_public_host_names(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse public host names: with DNS rebinding, a web page could read metrics through a browser in this network."""
    if request.path in {"/", "/metrics"} and not _is_private_name(request.host):
        return web.Response(status=403, text="unknown host name: use the address or the machine's own name\n")
    return await handler(request)


def _is_private_name(host: str) -> bool:
    """Return whether a Host header holds an address, this machine's name or a name outside public DNS."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").rstrip(".").lower()
    try:
        ip_address(name)
    except ValueError:
        return bool(name) and ("." not in name or name.endswith(_PRIVATE_SUFFIXES) or name == gethostname().lower())
    return True


def _application(metrics: Metrics, health: Health, counts: Callable[[], dict[str, int]]) -> web.Application:
    async def metrics_page(_: web.Request) -> web.Response:
        metrics.ready.set(health.ready)
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def readyz(_: web.Request) -> web.Response:
        if health.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: " + ", ".join(health.reasons()) + "\n")

    async def status_page(_: web.Request) -> web.Response:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{count}</td></tr>" for name, count in counts().items())
        state = "ready" if health.ready else "not ready: " + ", ".join(health.reasons())
        text = _PAGE.format(state=escape(state), rows=rows)
        return web.Response(text=text, content_type="text/html")

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    application = web.Application(middlewares=[_refuse_public_host_names])
    application.on_response_prepare.append(add_headers)
    for path, handler in (("/metrics", metrics_page), ("/livez", livez), ("/readyz", readyz), ("/", status_page)):
        application.router.add_get(path, handler)
    return application
