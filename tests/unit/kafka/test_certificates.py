"""Files that the Kafka settings name: missing, of the wrong kind, or of another certificate."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from shoal.errors import ConfigError
from shoal.kafka import StartOptions, WorkerContext, check_files, open_secret_files
from shoal.kafka.client import consumer
from shoal.kafka.metadata import NO_ENCRYPTION
from shoal.observability import Health, Metrics
from shoal.policy import KafkaSection, Scale
from structlog.testing import capture_logs
from support.scales import attribute, policy_with

pytestmark = pytest.mark.unit

NO_CERTIFICATE = "the file holds no certificate in PEM"


def write_pair(folder: Path, name: str, password: bytes | None = None) -> None:
    """Write a key and its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shoal")])
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(day).not_valid_after(day + dt.timedelta(3650))
    (folder / f"{name}.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    cipher: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_pair(folder, "one")
    write_pair(folder, "two")
    write_pair(folder, "secret", b"hunter2")
    (folder / "text").write_text("canary")
    (folder / "metadata").write_text("7f3c19d2a85be0461f9d2c7e4ab850361c6fe27d90b3485ad17e62c40f9b38a5")
    for name in ("text", "metadata"):
        (folder / name).chmod(0o600)
    return folder


def settings(folder: Path, **given: str) -> KafkaSection:
    named = {name: value if name == "ssl_password" else str(folder / value) for name, value in given.items()}
    return KafkaSection.model_validate({"security_protocol": "SSL", "bootstrap_servers": "a:1"} | named, strict=False)


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({}, {}),
        ({"ssl_cafile": "one.pem", "ssl_certfile": "one.pem", "ssl_keyfile": "one.key"}, {}),
        ({"ssl_cafile": "text"}, {"ssl_cafile": NO_CERTIFICATE}),
        ({"ssl_cafile": "one.key"}, {"ssl_cafile": NO_CERTIFICATE}),
        ({"ssl_certfile": "one.key", "ssl_keyfile": "one.key"}, {"ssl_certfile": NO_CERTIFICATE}),
        ({"ssl_certfile": "one.pem", "ssl_keyfile": "one.pem"}, {"ssl_keyfile": "no private key in PEM"}),
        ({"ssl_certfile": "one.pem", "ssl_keyfile": "two.key"}, {"ssl_keyfile": "fits the certificate"}),
        ({"ssl_certfile": "one.pem"}, {"ssl_certfile": "no private key that can be read; give kafka.ssl_keyfile"}),
        ({"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key"}, {}),
        ({"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key", "ssl_password": "hunter2"}, {}),
        (
            {"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key", "ssl_password": "canary"},
            {"ssl_keyfile": "SHOAL_KAFKA__SSL_PASSWORD is missing or wrong"},
        ),
        (
            {"ssl_cafile": "absent", "ssl_certfile": ".", "ssl_keyfile": "text"},
            {"ssl_cafile": "cannot be read: No such file", "ssl_certfile": "cannot be read: Is a directory"},
        ),
        ({"metadata_key_file": "absent"}, {"metadata_key_file": "cannot be read: No such file"}),
        ({"metadata_key_file": "text"}, {"metadata_key_file": "32 random bytes"}),
        ({"metadata_key_file": "metadata"}, {}),
    ],
)
def test_what_is_wrong_with_a_file_is_told_by_field(files: Path, given: dict[str, str], faults: dict[str, str]) -> None:
    found = {fault.field: fault for fault in check_files(settings(files, **given), has_secrets=False)}
    assert found.keys() == faults.keys()
    for field, words in faults.items():
        assert words in found[field].message
        assert "canary" not in found[field].message
        assert found[field].is_unread == ("cannot be read" in words)


def test_an_encrypted_key_needs_its_password_where_secrets_must_be_there(files: Path) -> None:
    (fault,) = check_files(settings(files, ssl_certfile="secret.pem", ssl_keyfile="secret.key"))
    assert "SHOAL_KAFKA__SSL_PASSWORD is missing or wrong" in fault.message


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o440, False), (0o640, False), (0o644, True), (0o660, True), (0o604, True)]
)
def test_a_secret_that_others_can_read_or_change_is_found(files: Path, mode: int, is_open: bool) -> None:  # noqa: FBT001
    secret = files / "shared"
    secret.write_text("canary")
    secret.chmod(mode)
    fields = ("sasl_username_file", "sasl_password_file", "ssl_password_file", "ssl_keyfile")
    given = settings(files, ssl_cafile="one.pem", ssl_certfile="one.pem", **dict.fromkeys(fields, "shared"))
    assert open_secret_files(given) == (list(fields) if is_open else [])


def test_a_certificate_without_a_file_of_its_key_holds_the_key(files: Path) -> None:
    assert open_secret_files(settings(files, ssl_certfile="one.pem")) == ["ssl_certfile"]
    assert open_secret_files(settings(files, ssl_certfile="absent")) == []


def test_a_worker_warns_of_files_when_it_starts(files: Path) -> None:
    given = settings(files, ssl_cafile="one.pem", ssl_certfile="one.pem", ssl_keyfile="one.key")
    context = WorkerContext(
        policy_with(attribute("city", Scale.NOMINAL), k=2, delta=6),
        given,
        Metrics(),
        Health(),
        StartOptions(),
        NO_ENCRYPTION,
    )
    (files / "one.key").chmod(0o644)
    with capture_logs() as logs:
        context.report_settings()
    assert [(line["event"], line["setting"]) for line in logs] == [
        ("other users of this machine can read or change a secret: chmod 640, or 600", "kafka.ssl_keyfile")
    ]


def test_a_pipe_is_not_read(files: Path) -> None:
    os.mkfifo(files / "pipe")
    assert list(check_files(settings(files, ssl_cafile="pipe"))) == []


def test_files_are_not_read_without_tls(files: Path) -> None:
    plain = settings(files, ssl_cafile="absent").model_copy(update={"security_protocol": "PLAINTEXT"})
    assert list(check_files(plain)) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl_cafile": "absent"}, "kafka.ssl_cafile: the file cannot be read: No such file or directory"),
        ({"ssl_certfile": "secret.pem", "ssl_keyfile": "secret.key"}, "SHOAL_KAFKA__SSL_PASSWORD is missing or wrong"),
    ],
)
async def test_a_client_names_the_file_and_asks_for_no_password(files: Path, given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer(settings(files, **given))
    assert words in str(caught.value)
