"""Files that the Kafka settings name: checked before a command connects, so that faults are named with their place."""

from __future__ import annotations

from shoal.kafka import check_files
from shoal.policy import KafkaSection, Policy
from shoal.settings import settings_error

__all__ = ["require_files"]


def require_files(policy: Policy, settings: KafkaSection) -> None:
    """Refuse settings whose certificates and keys cannot be used.

    Raises
    ------
    PolicyError
        Names each file by its variable, or by its field and line.
    """
    faults = [(("kafka", fault.field), fault.message) for fault in check_files(settings)]
    if faults:
        raise settings_error(faults, policy)
