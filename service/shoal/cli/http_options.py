"""The options of the HTTP port, which `shoal run` opens and `shoal check` examines."""

from __future__ import annotations

import argparse

from shoal.cli.options import add_option, add_secret
from shoal.health_check import DEFAULT_ADDRESS
from shoal.observability.http_access import HttpAccess

__all__ = ["add_http_options", "http_access"]


def add_http_options(parser: argparse.ArgumentParser) -> None:
    """Declare the address, TLS and token of the HTTP port."""
    address = "address of metrics and probes"
    add_option(parser, "--http", "SHOAL_HTTP", default=DEFAULT_ADDRESS, metavar="HOST:PORT", meaning=address)
    files = (
        ("--http-certfile", "certificate of the HTTP port and its chain (PEM); the port then speaks TLS"),
        ("--http-keyfile", "private key of this certificate (PEM)"),
        ("--http-key-password-file", "file with the password of this key, if it is encrypted"),
        ("--http-token-file", "file with the bearer token that metrics and page require; the probes require none"),
    )
    for flag, meaning in files:
        variable = "SHOAL_" + flag.removeprefix("--").replace("-", "_").upper()
        add_option(parser, flag, variable, metavar="FILE", meaning=meaning)
    password = "the password of this key itself, in place of its file"  # noqa: S105 - a help text
    add_secret(parser, "http_key_password", "SHOAL_HTTP_KEY_PASSWORD", meaning=password)
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
