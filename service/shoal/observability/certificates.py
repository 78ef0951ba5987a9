"""When the certificates of a worker expire, and what fails then. No text has a path."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shoal.observability.logs import logger
from shoal.secret_files import FileVersion, file_version

NAME = "shoal_certificate_expiry_timestamp_seconds"
_HELP = "When a certificate that this worker uses expires, as Unix time"

DAY_S = 86_400
SOON_S = 14 * DAY_S
"""As in the alert ShoalCertificateExpires."""
SOON_SHARE = 1 / 3
"""Share of the lifetime, for certificates that never live as long as `SOON_S`."""

_BLOCK = re.compile(rb"-----BEGIN (X509 )?CERTIFICATE-----.+?-----END (X509 )?CERTIFICATE-----", re.DOTALL)

_EFFECTS = {
    "ca": ("kafka.ssl_cafile", "workers trust no broker on a new connection, and end with exit code 3"),
    "client": (
        "kafka.ssl_certfile",
        "brokers that check client certificates refuse new connections, and workers end with exit code 3",
    ),
    "http": (
        "--http-certfile (SHOAL_HTTP_CERTFILE)",
        "a Prometheus that checks the certificate reads no metrics; probes of Kubernetes do not check it",
    ),
}
"""The setting of each kind of certificate, and what fails while it is not valid."""

log = logger("certificates")


def certificate_warning(certificate: str, path: str) -> str:
    """Return what fails because a certificate (ca, client, http) is not valid or soon will not be; else nothing.

    Nothing also for a file that cannot be read or holds no certificate: other checks name it. It is no pipe.
    """
    try:
        start_s, end_s = _read_validity(certificate, Path(path))
    except (OSError, ValueError):
        return ""
    now_s = time.time()
    setting, effect = _EFFECTS[certificate]
    if now_s >= end_s:
        return f"{setting}: has expired on {_date(end_s)}: {effect}; renew the file"
    if now_s < start_s:
        return f"{setting}: is not valid before {_date(start_s)}, or the clock here is wrong: until then {effect}"
    if end_s - now_s < min(SOON_S, SOON_SHARE * (end_s - start_s)):
        return f"{setting}: expires on {_date(end_s)}: then {effect}; renew the file before"
    return ""


def _date(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M} UTC"


class CertificateExpiry(Collector):
    """The metric of the certificates in files, which a scrape reads again if they were replaced.

    A file that cannot be used keeps the time that was read before; without one it has no series.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._read: dict[str, tuple[FileVersion, float]] = {}

    def watch(self, certificate: str, path: str) -> None:
        """Report a file, as for `certificate_warning`. Log a warning if its certificate is not valid, or soon not."""
        if warning := certificate_warning(certificate, path):
            log.warning(warning)
        self._paths[certificate] = Path(path)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric family for a scrape; none where no file is watched."""
        for certificate, path in self._paths.items():
            with suppress(OSError, ValueError):
                version = file_version(str(path))
                if certificate not in self._read or self._read[certificate][0] != version:
                    self._read[certificate] = version, _read_validity(certificate, path).end_s
        if self._read:
            (family,) = self.describe()
            for certificate, (_, expiry_s) in sorted(self._read.items()):
                family.add_metric([certificate], expiry_s)
            yield family

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the metric family without samples."""
        return [GaugeMetricFamily(NAME, _HELP, labels=["certificate"])]


class _Validity(NamedTuple):
    start_s: float
    end_s: float


def _read_validity(certificate: str, path: Path) -> _Validity:
    """Return when the certificates of a file are valid. OSError or ValueError if none can be read.

    Of the authorities in a file ``ca`` one that is valid is enough, as where an old and a new one stand together: of
    those that are valid now the one that ends last counts, or of all if none is. One that cannot be parsed is left out,
    because bundles of a system hold some that do not follow the standard. The other files are a certificate and its
    chain, which are valid as long as all of them are.
    """
    found = _read_blocks(path.read_bytes(), may_skip=certificate == "ca")
    if not found:
        raise ValueError("no certificate can be read")
    if certificate == "ca":
        now_s = time.time()
        valid = [one for one in found if one.start_s <= now_s < one.end_s]
        return max(valid or found, key=lambda one: one.end_s)
    return _Validity(max(one.start_s for one in found), min(one.end_s for one in found))


def _read_blocks(content: bytes, *, may_skip: bool) -> list[_Validity]:
    from cryptography import x509  # noqa: PLC0415 - most processes have no certificate, and it is slow to load

    found = []
    for block in _BLOCK.finditer(content):
        try:
            with warnings.catch_warnings():  # they are lines of text in a log of JSON
                warnings.simplefilter("ignore")
                one = x509.load_pem_x509_certificate(block[0])
                found.append(_Validity(one.not_valid_before_utc.timestamp(), one.not_valid_after_utc.timestamp()))
        except (ValueError, x509.InvalidVersion):
            if not may_skip:
                raise ValueError("a certificate cannot be parsed") from None
    return found
