"""Checks of the files that the Kafka settings name: certificates and keys. No message quotes a file."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shoal.errors import PolicyError
from shoal.kafka.cipher import MetadataCipher
from shoal.kafka.credentials import secret_of
from shoal.policy import KafkaSection
from shoal.secret_files import IS_PIPE, is_open_to_others

__all__ = ["FileFault", "certificate_files", "check_files", "find_certificate_faults", "open_secret_files"]

_SECRETS = ("sasl_username_file", "sasl_password_file", "sasl_oauth_token_file", "ssl_password_file")
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
UNREAD = "the file cannot be read"
_BEGIN_CERTIFICATE, _ENCRYPTED = b"-----BEGIN CERTIFICATE-----", b"ENCRYPTED"


class FileFault(NamedTuple):
    """What is wrong with the file of one field; ``is_unread`` if this user cannot read it on this machine."""

    field: str
    message: str
    is_unread: bool = False


def certificate_files(settings: KafkaSection) -> dict[str, str]:
    """Return the files with certificates by what they are for: ``ca`` and ``client``. A pipe is none."""
    if not settings.security_protocol.endswith("SSL"):
        return {}
    paths = {"ca": settings.ssl_cafile, "client": settings.ssl_certfile}
    return {name: path for name, path in paths.items() if path is not None and not _is_pipe(path)}


def open_secret_files(settings: KafkaSection) -> list[str]:
    """Return the fields whose files hold a secret that other users can read or change.

    The file of the metadata key is not among them: it is refused (`MetadataCipher.of`).
    """
    fields = list(_SECRETS)
    if settings.security_protocol.endswith("SSL"):
        fields.append("ssl_certfile" if settings.ssl_keyfile is None else "ssl_keyfile")
    paths = [(field, getattr(settings, field)) for field in fields]
    return [field for field, path in paths if path is not None and is_open_to_others(path)]


def check_files(settings: KafkaSection, *, has_secrets: bool = True) -> Iterator[FileFault]:
    """Yield the faults of all files that the settings name, and of the metadata keys in the environment.

    Parameters
    ----------
    settings : KafkaSection
    has_secrets : bool
        Whether the environment holds the credentials. `shoal check` may run where it does not.
    """
    faults = list(_find_secret_faults(settings))
    yield from faults
    if any(fault.field == "ssl_password_file" for fault in faults):
        return  # the private key cannot be checked
    has_password_here = settings.ssl_password is not None or settings.ssl_password_file is not None
    yield from find_certificate_faults(settings, has_password=has_secrets or has_password_here)
    field = "metadata_key_file" if settings.metadata_key is None else "metadata_key"
    try:
        MetadataCipher.of(settings)
    except PolicyError as error:
        for fault in error.faults:
            yield FileFault(field, fault.message, is_unread=fault.message.startswith(UNREAD))


def _find_secret_faults(settings: KafkaSection) -> Iterator[FileFault]:
    """Yield the faults of the files with passwords and tokens."""
    for field in _SECRETS:
        path = getattr(settings, field)
        if path is None:
            continue
        if _is_pipe(path):
            yield FileFault(field, IS_PIPE)
            continue
        fault = _fault_of_reading(field, path)
        if fault is not None:
            yield fault
        elif not (content := Path(path).read_bytes()).strip():
            yield FileFault(field, "the file is empty")
        elif not _is_utf8(content):
            yield FileFault(field, "the file is not UTF-8")


def find_certificate_faults(settings: KafkaSection, *, has_password: bool = True) -> Iterator[FileFault]:
    """Yield the faults of the certificates and of the private key.

    Without ``has_password`` an encrypted key is not decrypted.
    """
    if not settings.security_protocol.endswith("SSL"):
        return
    files = {name: path for name in _FILES if (path := getattr(settings, name)) is not None}
    if any(map(_is_pipe, files.values())):
        return  # what a pipe holds can be read once
    unread = [fault for name, path in files.items() if (fault := _fault_of_reading(name, path))]
    yield from unread
    names = files.keys() - {fault.field for fault in unread}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ssl_cafile is not None and "ssl_cafile" in names:
        try:
            context.load_verify_locations(settings.ssl_cafile)
        except ssl.SSLError:
            yield FileFault("ssl_cafile", "the file holds no certificate in PEM")
    if settings.ssl_certfile is None or "ssl_certfile" not in names:
        return
    if _BEGIN_CERTIFICATE not in Path(settings.ssl_certfile).read_bytes():
        yield FileFault("ssl_certfile", "the file holds no certificate in PEM")
    elif settings.ssl_keyfile is None or "ssl_keyfile" in names:
        yield from _check_pair(context, settings, has_password=has_password)


def _is_pipe(path: str) -> bool:
    try:
        return Path(path).is_fifo()
    except OSError:
        return False


def _fault_of_reading(field: str, path: str) -> FileFault | None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        return FileFault(field, f"{UNREAD}: {error.strerror}", is_unread=True)
    except ValueError:
        return FileFault(field, "not the name of a file")
    return None


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_pair(context: ssl.SSLContext, settings: KafkaSection, *, has_password: bool) -> Iterator[FileFault]:
    """Yield what is wrong with the private key of a certificate."""
    certificate, key = str(settings.ssl_certfile), settings.ssl_keyfile
    if not has_password and _ENCRYPTED in Path(key or certificate).read_bytes():
        return
    password = secret_of(settings, "ssl_password") or ""
    field = "ssl_certfile" if key is None else "ssl_keyfile"
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=password)
    except (ssl.SSLError, ValueError):
        if key is None:
            yield FileFault(
                field,
                "the file holds no private key that can be read; give kafka.ssl_keyfile, or if the key is encrypted "
                "SHOAL_KAFKA__SSL_PASSWORD",
            )
        else:
            yield FileFault(
                field,
                "the file holds no private key in PEM that fits the certificate in kafka.ssl_certfile, or "
                "SHOAL_KAFKA__SSL_PASSWORD is missing or wrong",
            )
