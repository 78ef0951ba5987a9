"""Certificates for tests: a certificate authority, and what it signs, as PEM files."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)
_UNUSED = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("encipher_only", "decipher_only"),
)
_SIGNS_CERTIFICATES = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **dict.fromkeys(_UNUSED, False))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


@dataclass
class Authority:
    folder: Path
    name: str = "test authority"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        extensions = (x509.BasicConstraints(ca=True, path_length=0), True), (_SIGNS_CERTIFICATES, True)
        self.certificate = self._signed(self.name, self.key.public_key(), (-DAY, 30 * DAY), extensions)
        self.file = self.folder / "authority.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def client_context(self) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority, with the strict checks of Python 3.13."""
        context = ssl.create_default_context(cafile=self.file)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    def issue(
        self, common: str, *, valid: dt.timedelta = 7 * DAY, begins: dt.timedelta = -DAY, password: str | None = None
    ) -> tuple[Path, Path]:
        """Return the files of a certificate for this name and 127.0.0.1, and of its key, encrypted with a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), address])
        certificate = self._signed(common, key.public_key(), (begins, valid), ((names, False),))
        files = self.folder / f"{common}.pem", self.folder / f"{common}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        files[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return files

    def _signed(
        self,
        common: str,
        key: ec.EllipticCurvePublicKey,
        valid: tuple[dt.timedelta, dt.timedelta],
        extensions: Iterable[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid[0])
            .not_valid_after(now + valid[1])
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        return builder.sign(self.key, hashes.SHA256())
