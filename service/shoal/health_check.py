"""`shoal health`: ask a worker whether it is alive or ready, as the health check of a container does.

It runs every few seconds, so it imports no other module of this package: importing them takes a second.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

DEFAULT_ADDRESS = "127.0.0.1:9464"
TIMEOUT_S = 2.0
REMEDIES: dict[type[Exception], str] = {
    ConnectionRefusedError: "no process listens there; give --http the address that `shoal run` has",
    TimeoutError: "the process there is stopped, or its machine is too busy",
    socket.gaierror: "the name of the machine is unknown",
    ssl.SSLError: "it does not speak TLS; leave out https://",
    ConnectionResetError: "it may speak TLS; give --http https://HOST:PORT",
    http.client.BadStatusLine: "it may speak TLS; give --http https://HOST:PORT",
    ValueError: "it is no HOST:PORT, such as 127.0.0.1:9464 or https://127.0.0.1:9464",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command without the rest of the package; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="shoal health",
        description="Ask a worker whether it is alive: exit code 0, or 1 with the reason.",
        allow_abbrev=False,
    )
    add_arguments(parser)
    return execute(parser.parse_args(arguments))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the address and the question."""
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="address of the worker, with https:// before it if the worker has a certificate; default: the variable "
        f"SHOAL_HTTP, else {DEFAULT_ADDRESS}",
    )
    parser.add_argument("--ready", action="store_true", help="ask whether it is ready, not only alive")


def execute(options: argparse.Namespace) -> int:
    """Ask the worker. Return 0 if it answers yes, else 1.

    Its certificate is not verified: it need not name this address, and the request carries no secret.
    """
    address = options.http or os.environ.get("SHOAL_HTTP") or DEFAULT_ADDRESS
    try:
        answer = _answer(address, "/readyz" if options.ready else "/livez")
    except (OSError, ValueError, http.client.HTTPException) as error:
        name = type(error).__name__
        reason = next((text for kind, text in REMEDIES.items() if isinstance(error, kind)), name)
        answer = f"{address} does not answer: {reason}"
    if answer:
        sys.stderr.write(f"shoal health: {answer}\n")
    return 1 if answer else 0


def _answer(address: str, path: str) -> str:
    """Return an empty text if the answer is 200, else what the worker says."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    host, port = parts.hostname or "127.0.0.1", parts.port  # without a host, as `shoal run` reads it
    if parts.scheme not in {"http", "https"} or not port or parts.path:
        raise ValueError
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    if parts.scheme == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
        return "" if response.status == http.client.OK else text or f"status {response.status}"
    finally:
        connection.close()
