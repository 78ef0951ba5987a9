"""Signs a page with Ed25519 (RFC 8032), so that its reader can tell whether it was changed and who signed it.

The signature is the last line of the page, a comment of HTML. It covers every byte before that line.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from shoal.errors import ConfigError, GuaranteeError, InputError
from shoal.secret_files import read_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_LINE = re.compile(rb"\n<!-- Ed25519 signature of all lines above: ([A-Za-z0-9+/]{86}==) -->\n\Z")


def signed(page: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return a page with its signature as the last line."""
    signature = base64.b64encode(key.sign(page))
    return page + b"\n<!-- Ed25519 signature of all lines above: " + signature + b" -->\n"


def require_signature(page: bytes, key: Ed25519PublicKey, name: str) -> None:
    """Raise unless the owner of the key signed a page as it is; ``name``: of its file.

    InputError if it has no signature, GuaranteeError if the signature is of another page or key.
    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - slow to load

    found = _LINE.search(page)
    if found is None:
        why = "it was never signed (shoal report --sign KEY), or was changed since"
        raise InputError(f"{name}: its last line is no signature: {why}")
    try:
        key.verify(base64.b64decode(found[1]), page[: found.start()])
    except InvalidSignature:
        raise GuaranteeError(f"{name}: was changed after it was signed, or was signed with another key") from None


def private_key(path: str) -> Ed25519PrivateKey:
    """Return the key in a PEM file. ConfigError, which quotes nothing, if it has none."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to load
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    made = "make one with: openssl genpkey -algorithm ed25519 -out key.pem"
    data = read_secret("--sign", path).encode()
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except TypeError:
        raise ConfigError("--sign: the key has a password; give a file without one, which only you can read") from None
    except ValueError:
        raise ConfigError(f"--sign: the file holds no private key in PEM; {made}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"--sign: the key is not one of Ed25519; {made}")
    return key


def public_key(path: str) -> Ed25519PublicKey:
    """Return the public key in a PEM file. ConfigError if it has none."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to load
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        key = serialization.load_pem_public_key(read_secret("--public-key", path).encode())
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        made = "openssl pkey -in key.pem -pubout -out public.pem"
        raise ConfigError(f"--public-key: the file holds no public key of Ed25519; make one with: {made}")
    return key
