"""When the certificates expire that a worker uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shoal.observability.certificate_times import FileState, certificate_warning, file_state, read_validity
from shoal.observability.logs import logger

__all__ = ["CertificateExpiry"]

NAME = "shoal_certificate_expiry_timestamp_seconds"
_HELP = "When a certificate that this worker uses expires, as Unix time"

log = logger("certificates")


class CertificateExpiry(Collector):
    """The metric of the certificates in files.

    A scrape reads a file again if it was replaced. A file that cannot be read, or holds no certificate, keeps the time
    that was read before; if there is none, it has no series.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._read: dict[str, tuple[FileState, float]] = {}

    def watch(self, certificate: str, path: str) -> None:
        """Report a file. Log a warning if its certificate is not valid now, or expires soon.

        Parameters
        ----------
        certificate : {"ca", "client", "http"}
            Value of the label. Which certificate of the file counts is that of `read_validity`.
        path : str
            File in PEM. A pipe must not be given: reading would take its contents away.
        """
        if warning := certificate_warning(certificate, path):
            log.warning(warning)
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
        try:
            state = file_state(path)
            if certificate in self._read and self._read[certificate][0] == state:
                return
            self._read[certificate] = state, read_validity(certificate, path).end_s
        except (OSError, ValueError):
            return
