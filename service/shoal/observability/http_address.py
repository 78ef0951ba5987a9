"""The address of the HTTP port of a worker, and the host names that it answers to."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from shoal.errors import ConfigError

__all__ = ["ADDRESS", "HttpAddress", "parse_address", "parse_host_name"]

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
