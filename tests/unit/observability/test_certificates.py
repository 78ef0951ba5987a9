"""Certificates that are not valid, or soon will not be, are named at the start; a metric has when they expire."""

from __future__ import annotations

import base64
import datetime as dt
import os
import re
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from shoal.kafka.credentials import certificate_files
from shoal.observability import Metrics, certificate_warning, certificates
from shoal.policy import KafkaSection
from structlog.testing import capture_logs
from support.certificates import Authority

pytestmark = pytest.mark.unit

DAY_S = 86_400
EXPIRY = "shoal_certificate_expiry_timestamp_seconds"


def at(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Let the clock show a time in days from now."""
    now_s = dt.datetime.now(dt.UTC).timestamp() + days * DAY_S
    monkeypatch.setattr(certificates, "time", SimpleNamespace(time=lambda: now_s))


@pytest.mark.parametrize(
    ("certificate", "setting", "effect"),
    [
        ("ca", "kafka.ssl_cafile", "workers trust no broker on a new connection, and end with exit code 3"),
        ("client", "kafka.ssl_certfile", "brokers that check client certificates refuse new connections"),
        ("http", "--http-certfile (SHOAL_HTTP_CERTFILE)", "a Prometheus that checks the certificate reads no metrics"),
    ],
)
def test_the_warning_names_the_setting_the_time_and_what_fails(
    certificate: str, setting: str, effect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(Authority(tmp_path).issue("worker", valid=dt.timedelta(days=100))[0])
    assert certificate_warning(certificate, file) == ""
    date = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    for days, words in ((90, "expires on DATE: then"), (101, "has expired on DATE:"), (-3, "is not valid before DATE")):
        at(monkeypatch, days)
        said = certificate_warning(certificate, file)
        assert re.sub(date, "DATE", said).startswith(f"{setting}: {words}")
        assert effect in said
        assert file not in said


def test_a_certificate_of_a_short_life_is_warned_of_in_its_last_third(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(Authority(tmp_path).issue("worker", valid=dt.timedelta(days=5))[0])  # it began a day ago
    for days, is_warned in ((0, False), (2.9, False), (3.1, True)):
        at(monkeypatch, days)
        assert bool(certificate_warning("client", file)) == is_warned


def test_one_authority_that_is_valid_is_enough_and_a_chain_needs_all(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = [authority.issue(f"{days}", valid=dt.timedelta(days=days))[0] for days in (-0.5, 90)]
    together = tmp_path / "together.pem"
    together.write_bytes(b"".join(file.read_bytes() for file in files))
    assert certificate_warning("ca", str(together)) == ""
    assert "has expired" in certificate_warning("client", str(together))
    later = authority.issue("new", begins=dt.timedelta(days=7), valid=dt.timedelta(days=400))[0]
    together.write_bytes(files[1].read_bytes() + later.read_bytes())
    assert certificate_warning("ca", str(together)) == "", "one that is valid counts before one that is not valid yet"


def with_negative_serial(file: Path) -> bytes:
    """Return a certificate as bundles of operating systems hold some: its serial number is negative."""
    content = bytearray(base64.b64decode("".join(line for line in file.read_text().splitlines() if "-" not in line)))
    start = content.index(bytes.fromhex("a00302010202"))  # version 3, then an integer
    content[start + 7] |= 0x80
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(content) + b"-----END CERTIFICATE-----\n"


def test_a_certificate_with_a_negative_serial_number_prints_nothing(tmp_path: Path) -> None:
    authority, together = Authority(tmp_path), tmp_path / "together.pem"
    odd, good = (authority.issue(name, valid=dt.timedelta(days=90))[0] for name in ("odd", "good"))
    together.write_bytes(with_negative_serial(odd) + good.read_bytes())
    with pytest.warns(UserWarning, match="serial number"):
        x509.load_pem_x509_certificates(together.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for certificate in ("ca", "client", "http"):
            assert certificate_warning(certificate, str(together)) == ""


def test_an_authority_that_cannot_be_parsed_is_left_out_and_a_chain_is_not_judged_without_one(tmp_path: Path) -> None:
    expired = Authority(tmp_path).issue("expired", valid=dt.timedelta(days=-0.5))[0]
    together = tmp_path / "together.pem"
    broken = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    together.write_bytes(broken + expired.read_bytes() + broken)
    assert certificate_warning("ca", str(together)).startswith("kafka.ssl_cafile: has expired on ")
    assert certificate_warning("client", str(together)) == ""
    together.write_bytes(broken)
    assert certificate_warning("ca", str(together)) == ""


def test_the_warning_is_logged_when_the_metric_begins(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    fresh, expired = [
        str(authority.issue(name, valid=dt.timedelta(days=days))[0]) for name, days in (("fresh", 90), ("old", -0.5))
    ]
    with capture_logs() as logs:
        Metrics().certificates.watch("client", fresh)
        Metrics().certificates.watch("client", expired)
    (line,) = logs
    assert line["log_level"] == "warning"
    assert line["event"].startswith("kafka.ssl_certfile: has expired on ")


# ---------------------------------------------------------------- the metric


def expiries(metrics: Metrics) -> dict[str, float]:
    families = [family for family in metrics.registry.collect() if family.name == EXPIRY]
    return {sample.labels["certificate"]: sample.value for family in families for sample in family.samples}


def days_left(seconds: float) -> int:
    return round((seconds - dt.datetime.now(dt.UTC).timestamp()) / 86_400)


def test_a_chain_expires_with_its_first_certificate_and_authorities_with_their_last(tmp_path: Path) -> None:
    authority, metrics = Authority(tmp_path), Metrics()
    files = [authority.issue(f"{days}", valid=dt.timedelta(days=days))[0] for days in (10, 3, 20)]
    together = tmp_path / "together.pem"
    together.write_bytes(b"".join(file.read_bytes() for file in files))
    metrics.certificates.watch("ca", str(together))
    metrics.certificates.watch("client", str(together))
    assert {name: days_left(seconds) for name, seconds in expiries(metrics).items()} == {"ca": 20, "client": 3}


def test_a_file_that_was_replaced_is_read_again_and_a_private_key_in_it_is_passed_over(tmp_path: Path) -> None:
    authority, metrics = Authority(tmp_path), Metrics()
    (old, key), (new, _) = (authority.issue(name, valid=dt.timedelta(days=n)) for name, n in (("old", 2), ("new", 9)))
    old.write_bytes(key.read_bytes() + old.read_bytes())
    metrics.certificates.watch("client", str(old))
    assert days_left(expiries(metrics)["client"]) == 2
    shutil.copy(new, tmp_path / "next.pem")
    (tmp_path / "next.pem").replace(old)
    assert days_left(expiries(metrics)["client"]) == 9


@pytest.mark.parametrize("content", [b"-----BEGIN CERTIFICATE-----\nAAAA\n", None])
def test_a_file_without_a_certificate_keeps_what_was_read_before(tmp_path: Path, content: bytes | None) -> None:
    file, metrics = Authority(tmp_path).issue("worker", valid=dt.timedelta(days=4))[0], Metrics()
    metrics.certificates.watch("client", str(file))
    before = expiries(metrics)
    assert expiries(Metrics()) == {}
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert expiries(metrics) == before
    assert certificate_warning("client", str(file)) == "", "other checks name it"
    other = Metrics()
    other.certificates.watch("client", str(file))
    assert expiries(other) == {}, "nothing was ever read"


def test_the_certificates_of_the_settings_are_watched(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tls = KafkaSection(security_protocol="SSL", ssl_cafile="ca.pem", ssl_certfile="client.pem")
    assert certificate_files(tls) == {"ca": "ca.pem", "client": "client.pem"}
    assert certificate_files(KafkaSection(security_protocol="SASL_SSL", ssl_cafile="ca.pem")) == {"ca": "ca.pem"}
    assert certificate_files(KafkaSection(security_protocol="SSL", ssl_cafile=str(pipe))) == {}, "a pipe is read once"
    assert certificate_files(KafkaSection(security_protocol="SASL_PLAINTEXT", ssl_cafile="ca.pem")) == {}
