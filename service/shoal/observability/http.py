"""Metrics, probes and a small page on one port, on loopback unless told otherwise."""

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

GOODBYE_S = 1.0

_INNER = (".local", ".localhost", ".internal", ".svc")
"""Ends of names that nobody can register: reserved, or a cluster's own."""

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
    """Serve while the context is open.

    Parameters
    ----------
    address : str
        ``HOST:PORT``; port 0 takes a free one.
    metrics, health
        What is shown; ``/livez`` answers as long as the loop turns, ``/readyz`` 503 with reasons otherwise.
        Page and metrics answer 403 to a name that somebody outside could own.
    counts : callable
        Totals for the page: names and numbers.

    Yields
    ------
    int
        The port.

    Raises
    ------
    ConfigError
        The address cannot be bound.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ConfigError("--http: give HOST:PORT, for example 127.0.0.1:9464")
    # Somebody who asks and does not read the answer must not keep the process from ending.
    runner = web.AppRunner(_application(metrics, health, counts), access_log=None, shutdown_timeout=GOODBYE_S)
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
async def _by_known_name(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a foreign name: a page from outside may have pointed its own at us, to read us through a browser."""
    if request.path in {"/", "/metrics"} and not _is_ours(request.host):
        return web.Response(status=403, text="asked by an unknown name: use the address or the machine's own name\n")
    return await handler(request)


def _is_ours(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").rstrip(".").lower()
    try:
        ip_address(name)
    except ValueError:
        return bool(name) and ("." not in name or name.endswith(_INNER) or name == gethostname().lower())
    return True


def _application(metrics: Metrics, health: Health, counts: Callable[[], dict[str, int]]) -> web.Application:
    async def show_metrics(_: web.Request) -> web.Response:
        metrics.ready.set(health.ready)
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def readyz(_: web.Request) -> web.Response:
        if health.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: " + ", ".join(health.reasons()) + "\n")

    async def page(_: web.Request) -> web.Response:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{count}</td></tr>" for name, count in counts().items())
        state = "ready" if health.ready else "not ready: " + ", ".join(health.reasons())
        text = _PAGE.format(state=escape(state), rows=rows)
        return web.Response(text=text, content_type="text/html")

    async def bare(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    application = web.Application(middlewares=[_by_known_name])
    application.on_response_prepare.append(bare)
    for path, handler in (("/metrics", show_metrics), ("/livez", livez), ("/readyz", readyz), ("/", page)):
        application.router.add_get(path, handler)
    return application
