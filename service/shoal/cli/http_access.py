"""Options of the HTTP port, which `shoal run` uses and `shoal check` examines."""

from __future__ import annotations

import argparse

from shoal.cli.options import add_option, add_secret
from shoal.observability.http import HttpAccess, parse_address

__all__ = ["add_http_options", "http_access", "is_open"]

DEFAULT_ADDRESS = "127.0.0.1:9464"


def add_http_options(parser: argparse.ArgumentParser) -> None:
    """Declare the address, the host names, TLS and token of the HTTP port."""
    add_option(
        parser,
        "--http",
        "SHOAL_HTTP",
        default=DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        meaning="address of metrics and probes",
    )
    add_option(
        parser,
        "--http-host",
        "SHOAL_HTTP_HOST",
        is_list=True,
        metavar="NAME",
        meaning="a full host name that metrics and page answer to, beside addresses and private names; repeatable; "
        "several names in the variable are separated by commas",
    )
    files = (
        ("--http-certfile", "certificate of the HTTP port and its chain (PEM); the port then speaks TLS"),
        ("--http-keyfile", "private key of this certificate (PEM)"),
        ("--http-key-password-file", "file with the password of this key, if it is encrypted"),
        ("--http-token-file", "file with the bearer token that metrics and page require; the probes require none"),
    )
    for flag, meaning in files:
        variable = "SHOAL_" + flag.removeprefix("--").replace("-", "_").upper()
        add_option(parser, flag, variable, metavar="FILE", meaning=meaning)
    add_secret(
        parser,
        "http_key_password",
        "SHOAL_HTTP_KEY_PASSWORD",
        meaning="the password of this key itself, in place of its file",
    )
    add_secret(parser, "http_token", "SHOAL_HTTP_TOKEN", meaning="the bearer token itself, in place of its file")


def http_access(options: argparse.Namespace) -> HttpAccess:
    """Return what the options say."""
    return HttpAccess(
        certfile=options.http_certfile,
        keyfile=options.http_keyfile,
        key_password_file=options.http_key_password_file,
        key_password=options.http_key_password,
        token_file=options.http_token_file,
        token=options.http_token,
    )


def is_open(address: str, access: HttpAccess) -> bool:
    """Return whether other machines can read metrics and page at ``HOST:PORT`` without a token.

    Raises
    ------
    ConfigError
        The address is invalid.
    """
    is_loopback = parse_address(address).is_loopback
    return not is_loopback and access.token is None and access.token_file is None
