"""A local Kafka cluster of three brokers with TLS, SCRAM and ACLs, to try a secured set-up on one machine.

``up`` starts it and prints what a worker needs, as variables of the environment; client.env has the same lines.
Repeated, it starts the brokers again that have ended. ``down`` stops it and removes its data, certificates and
passwords. The user `admin` may do everything; every other user needs ACLs. Among themselves, the brokers use listeners
without security on the loopback interface: this is no example for a cluster that others can reach.
Standard library only; the certificates are made by keytool of Java.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from local import BUILD, BrokerFailedError, cluster, down, find_java, homes, listeners

__all__ = ["main", "up"]

HOME = BUILD / "secured"
USERS = ("admin", "shoal")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "365")


def up(home: Path) -> dict[str, str]:
    """Start the cluster of a folder; return the variables of the environment of a worker.

    Raises
    ------
    BrokerFailedError
        Java or Maven is missing, or a broker does not start.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    passwords = {user: _password(home / f"{user}.password") for user in USERS}
    if not (home / "broker.p12").exists():
        _make_certificates(home, _password(home / "store.password"))
    store = (home / "store.password").read_text(encoding="utf-8")
    cluster(
        home,
        protocols=("SASL_SSL",),
        settings=_settings(home, store),
        users=[f"SCRAM-SHA-512=[name={user},password={password}]" for user, password in passwords.items()],
    )
    _write(home / "admin.properties", _properties(home, "admin", passwords["admin"]))
    variables = {
        "SHOAL_KAFKA__BOOTSTRAP_SERVERS": ",".join(listeners(folder)["SASL_SSL"] for folder in homes(home)),
        "SHOAL_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "SHOAL_KAFKA__SSL_CAFILE": str(home / "ca.pem"),
        "SHOAL_KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
        "SHOAL_KAFKA__SASL_USERNAME": "shoal",
        "SHOAL_KAFKA__SASL_PASSWORD_FILE": str(home / "shoal.password"),
    }
    _write(home / "client.env", "".join(f"{name}={value}\n" for name, value in variables.items()))
    return variables


def _password(path: Path) -> str:
    """Return the password in a file, which is made if it is missing."""
    if not path.exists():
        _write(path, secrets.token_hex(16))
    return path.read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _make_certificates(home: Path, password: str) -> None:
    """Write the certificate of a new authority, ca.pem, and the key store of the brokers, broker.p12."""

    def keytool(store: str, *arguments: str) -> None:
        _keytool([*arguments, "-keystore", str(home / store), "-storepass:env", "STORE_PASSWORD"], password)

    request, signed, ca = (str(home / name) for name in ("broker.csr", "broker.pem", "ca.pem"))
    authority = ("-ext", "bc:c", "-ext", "ku:c=keyCertSign,cRLSign")
    names = ("-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "ku:c=digitalSignature")
    keytool("ca.p12", "-genkeypair", "-alias", "ca", "-dname", "CN=authority of a local cluster", *KEY, *authority)
    keytool("ca.p12", "-exportcert", "-rfc", "-alias", "ca", "-file", ca)
    keytool("broker.p12", "-genkeypair", "-alias", "broker", "-dname", "CN=localhost", *KEY)
    keytool("broker.p12", "-certreq", "-alias", "broker", "-file", request)
    keytool("ca.p12", "-gencert", "-rfc", "-alias", "ca", "-infile", request, "-outfile", signed, *names)
    keytool("broker.p12", "-importcert", "-noprompt", "-alias", "ca", "-file", ca)
    keytool("broker.p12", "-importcert", "-noprompt", "-alias", "broker", "-file", signed)


def _keytool(arguments: Sequence[str], password: str) -> None:
    program = Path(find_java()).resolve().with_name("keytool")
    done = subprocess.run(
        [str(program), *arguments],
        env={**os.environ, "STORE_PASSWORD": password},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BrokerFailedError(f"keytool cannot make the certificates: {done.stdout[-500:]}")


def _settings(home: Path, password: str) -> list[str]:
    """Return the lines of server.properties for the listener of clients, and for ACLs."""
    return [
        f"ssl.keystore.location={home / 'broker.p12'}",
        f"ssl.keystore.password={password}",
        "ssl.keystore.type=PKCS12",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512",
        f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={SCRAM} required;",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin;User:ANONYMOUS",
    ]


def _properties(home: Path, user: str, password: str) -> str:
    """Return the settings of Kafka's own tools for a user."""
    return "\n".join(
        [
            "security.protocol=SASL_SSL",
            "sasl.mechanism=SCRAM-SHA-512",
            f'sasl.jaas.config={SCRAM} required username="{user}" password="{password}";',
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={home / 'ca.pem'}",
            "",
        ]
    )


def main() -> int:
    """Read the command line and run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("up", "down"))
    parser.add_argument("--home", type=Path, default=HOME, help="folder of data, certificates and passwords")
    arguments = parser.parse_args()
    home = arguments.home.resolve()
    try:
        if arguments.command == "up":
            print("".join(f"{name}={value}\n" for name, value in up(home).items()), end="")
        else:
            down(home)
            shutil.rmtree(home, ignore_errors=True)
    except BrokerFailedError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
