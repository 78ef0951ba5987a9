"""Checks of the Kafka settings that need no broker.

`check_connection` applies to the merged settings of policy and environment, because each may hold a part of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.policy.loader import FieldPath
from shoal.policy.schema import KafkaSection

__all__ = ["check_connection"]

_ENVIRONMENT = "SHOAL_KAFKA__"


def check_connection(settings: KafkaSection, *, has_secrets: bool) -> Iterator[tuple[FieldPath, str]]:
    """Yield the faults of the security settings, as path and message without a value.

    Parameters
    ----------
    settings : KafkaSection
        Policy and environment together.
    has_secrets : bool
        Whether the environment holds the credentials. `shoal check` may run where it does not.
    """
    if "security_protocol" not in settings.model_fields_set:
        yield from _check_unused(settings)
    elif has_secrets and settings.security_protocol.startswith("SASL"):
        for name in ("sasl_username", "sasl_password"):
            secret = getattr(settings, name)
            if secret is None or not secret.get_secret_value():
                yield (
                    ("kafka", name),
                    f"missing: {settings.security_protocol} needs it; set it as {_ENVIRONMENT}{name.upper()}",
                )


def _check_unused(settings: KafkaSection) -> Iterator[tuple[FieldPath, str]]:
    """Refuse security settings without a protocol: the client would connect without them, in plain text."""
    given = [name for name in type(settings).model_fields if getattr(settings, name) is not None]
    for name in given:
        if name.startswith(("sasl_", "ssl_")):
            protocols = "SASL_SSL (or SASL_PLAINTEXT)" if name.startswith("sasl_") else "SSL or SASL_SSL"
            yield (
                ("kafka", name),
                f"has no effect without kafka.security_protocol: the connection would be plain text; set {protocols}",
            )
