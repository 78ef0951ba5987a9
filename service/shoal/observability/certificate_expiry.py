"""When the certificates expire that a worker uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["CertificateExpiry"]

NAME = "shoal_certificate_expiry_timestamp_seconds"
_HELP = "When a certificate that this worker uses expires, as Unix time"

_State = tuple[int, int, int]
"""What tells that a file was replaced: inode, time of change (ns), length (bytes)."""


class CertificateExpiry(Collector):
    """The metric of the certificates in files.

    A scrape reads a file again if it was replaced. A file that cannot be read, or holds no certificate, keeps the time
    that was read before; if there is none, it has no series.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._read: dict[str, tuple[_State, float]] = {}

    def watch(self, certificate: str, path: str) -> None:
        """Report a file.

        Parameters
        ----------
        certificate : {"ca", "client", "http"}
            Value of the label. Of the authorities in a file ``ca`` the latest time counts, because one that is valid is
            enough, as where an old and a new authority stand together. Of the other files, which are a certificate and
            its chain, the earliest counts.
        path : str
            File in PEM. A pipe must not be given: reading would take its contents away.
        """
        self._paths[certificate] = Path(path)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric family for a scrape; none where no file is watched."""
        for certificate, path in self._paths.items():
            self._update(certificate, path)
        if self._read:
            family = GaugeMetricFamily(NAME, _HELP, labels=["certificate"])
            for certificate, (_, expiry_s) in sorted(self._read.items()):
                family.add_metric([certificate], expiry_s)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Return the metric family without samples."""
        return [GaugeMetricFamily(NAME, _HELP, labels=["certificate"])]

    def _update(self, certificate: str, path: Path) -> None:
        from cryptography import x509  # noqa: PLC0415 - most processes have no certificate, and it is slow to load

        try:
            stat = path.stat()
            state = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if certificate in self._read and self._read[certificate][0] == state:
                return
            found = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            return
        choose: Callable[[Sequence[float]], float] = max if certificate == "ca" else min
        self._read[certificate] = state, choose([one.not_valid_after_utc.timestamp() for one in found])
