"""Certificates for tests: a certificate authority, and what it signs, as PEM files."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]

DAY = dt.timedelta(days=1)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


@dataclass
class Authority:
    """A certificate authority that keeps its files in a folder."""

    folder: Path
    name: str = "test authority"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        basic = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = self._signed(self.name, self.key, (-DAY, 30 * DAY), (basic, True))
        self.file = self.folder / "authority.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def client_context(self) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority.

        It is not the default context: from Python 3.13 on that one wants extensions that these certificates lack.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.file)
        return context

    def issue(self, common: str, *, valid: dt.timedelta = 7 * DAY, begins: dt.timedelta = -DAY) -> tuple[Path, Path]:
        """Return the files of a certificate for this name and 127.0.0.1, and of its private key.

        It is valid from ``begins`` to ``valid`` from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), address])
        certificate = self._signed(common, key, (begins, valid), (names, False))
        files = self.folder / f"{common}.pem", self.folder / f"{common}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def _signed(
        self,
        common: str,
        key: ec.EllipticCurvePrivateKey,
        valid: tuple[dt.timedelta, dt.timedelta],
        extension: tuple[x509.ExtensionType, bool],
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid[0])
            .not_valid_after(now + valid[1])
            .add_extension(extension[0], critical=extension[1])
            .sign(self.key, hashes.SHA256())
        )
