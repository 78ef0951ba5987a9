"""`shoal health`: ask the worker on this machine whether it is alive or ready, as the health check of a container does.

It runs every few seconds, so it imports no other module of this package: importing them takes a second.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

__all__ = ["SUMMARY", "add_arguments", "execute", "main"]

SUMMARY = "Ask the worker on this machine whether it is alive: exit code 0, or 1 with the reason."

DEFAULT_ADDRESS = "127.0.0.1:9464"
TIMEOUT_S = 2.0
LAST_PORT = 65_535
LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses that are not bound here
"""Where to ask a server that listens on all interfaces."""
PROCESS_1 = Path("/proc/1/cmdline")
"""Arguments of the first process, which in a container is the worker."""
OTHER_PROTOCOL = (http.client.BadStatusLine, ConnectionResetError, ssl.SSLError)
"""How a server ends a connection with TLS if it speaks plain HTTP, or one without if it speaks TLS."""
REMEDIES: dict[type[Exception], str] = {
    ConnectionRefusedError: "no process listens there; give --http the address that `shoal run` has",
    TimeoutError: "the process there is stopped, or its machine is too busy",
    socket.gaierror: "the name of the machine is unknown",
    ValueError: "it is no HOST:PORT, such as 127.0.0.1:9464",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command without the rest of the package; return its exit code."""
    parser = argparse.ArgumentParser(prog="shoal health", description=SUMMARY, allow_abbrev=False)
    add_arguments(parser)
    return execute(parser.parse_args(arguments))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the address and the question."""
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="address of the worker, with or without TLS; default: that of process 1, if it is a worker, as in a "
        "container; "
        f"else the variable SHOAL_HTTP; else {DEFAULT_ADDRESS}",
    )
    parser.add_argument("--ready", action="store_true", help="ask whether it is ready, not only alive")


def execute(options: argparse.Namespace) -> int:
    """Ask the worker. Return 0 if it answers yes, else 1.

    The options and variables say whether the worker speaks TLS. Where they do not, as where the check has another
    environment than the worker, its answer does: it is asked in the other way, too.

    The certificate of the worker is not verified: it need not name the loopback address, and the request carries no
    secret.
    """
    service = _service_arguments()
    address = options.http or _setting("http", service, os.environ) or DEFAULT_ADDRESS
    speaks_tls = _setting("http_certfile", service, os.environ) is not None
    path = "/readyz" if options.ready else "/livez"
    try:
        answer = _answer_of_either(address, path, speaks_tls=speaks_tls)
    except (OSError, ValueError, http.client.HTTPException) as error:
        name = type(error).__name__
        reason = next((text for kind, text in REMEDIES.items() if isinstance(error, kind)), name)
        answer = f"{address} does not answer: {reason}"
    if answer:
        sys.stderr.write(f"shoal health: {answer}\n")
    return 1 if answer else 0


def _answer_of_either(address: str, path: str, *, speaks_tls: bool) -> str:
    """Return what `_answer` returns with TLS or without; the first way is the one that the settings say."""
    try:
        return _answer(address, path, speaks_tls=speaks_tls)
    except OTHER_PROTOCOL:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return _answer(address, path, speaks_tls=not speaks_tls)
        raise


def _answer(address: str, path: str, *, speaks_tls: bool) -> str:
    """Return an empty text if the answer is 200, else what the worker says."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    host = LOOPBACK.get(host, host)
    if "/" in host or not 0 < int(port) <= LAST_PORT:
        raise ValueError
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    if speaks_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, int(port), timeout=TIMEOUT_S, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
        return "" if response.status == http.client.OK else text or f"status {response.status}"
    finally:
        connection.close()


def _service_arguments() -> list[str]:
    """Return the arguments of process 1 if it is `shoal run`, else an empty list."""
    try:
        words = PROCESS_1.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
    is_service = any(Path(word).name == "shoal" for word in words) and "run" in words
    return words if is_service else []


def _setting(name: str, service: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return an option of the service as `shoal run` reads it: the command line counts before the environment."""
    flag = f"--{name.replace('_', '-')}"
    found = None
    for word, following in pairwise([*service, ""]):
        if word == flag:
            found = following
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found or environment.get(f"SHOAL_{name.upper()}") or None
