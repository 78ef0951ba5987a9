"""Kafka settings: section ``kafka`` of the policy, overridden by environment variables.

No other module reads environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from pydantic import ValidationError

from shoal.errors import Fault, PolicyError
from shoal.policy import KafkaSection, Policy, check_connection, check_names, describe_fault

__all__ = ["PREFIX", "REQUIRED", "kafka_settings"]

PREFIX = "SHOAL_KAFKA__"
REQUIRED = ("bootstrap_servers", "input", "output", "group")


def kafka_settings(
    policy: Policy,
    environment: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
    required: Sequence[str] = REQUIRED,
    has_secrets: bool = True,
) -> KafkaSection:
    """Return connection, topics and timings. ``SHOAL_KAFKA__NAME`` overrides field ``name`` of the policy.

    Parameters
    ----------
    policy : Policy
    environment : mapping, optional
        Environment variables; by default those of the process.
    defaults : mapping, optional
        Values of fields that neither the policy nor the environment sets.
    required : sequence of str
        Fields that must be set.
    has_secrets : bool
        Whether credentials must be there too. `shoal check` may run where the environment does not hold them.

    Raises
    ------
    PolicyError
        Lists every invalid variable, or every missing or unusable field; never contains a value.
    """
    environment = os.environ if environment is None else environment
    overrides = {
        key.removeprefix(PREFIX).lower(): value for key, value in environment.items() if key.startswith(PREFIX)
    }
    in_policy = {} if policy.kafka is None else policy.kafka.model_dump(exclude_unset=True)
    try:
        settings = KafkaSection.model_validate({**(defaults or {}), **in_policy, **overrides}, strict=False)
    except ValidationError as error:
        raise PolicyError(_faults_of(error, overrides), "settings") from None
    faults = [
        Fault(("kafka", name), f"missing; set it in the policy or as {PREFIX}{name.upper()}")
        for name in required
        if not getattr(settings, name)
    ]
    topics = [settings.input, settings.output, settings.quarantine, settings.clusters, settings.evidence]
    named = [topic for topic in topics if topic]
    if len(set(named)) != len(named):
        faults.append(Fault(("kafka",), "one topic is named twice; give each field a topic of its own"))
    found = chain(check_names(settings), check_connection(settings, has_secrets=has_secrets))
    faults += [Fault(path, message) for path, message in found]
    if faults:
        raise PolicyError(faults, "settings")
    return settings


def _faults_of(error: ValidationError, overrides: Mapping[str, str]) -> list[Fault]:
    """Convert validation errors to faults that name the variable or the field, without the value."""
    by_name: dict[str, list[Any]] = {}
    for detail in error.errors(include_input=False, include_url=False):
        by_name.setdefault(str(detail["loc"][0]) if detail["loc"] else "", []).append(detail)
    return [
        Fault(
            (PREFIX + name.upper(),) if name in overrides else ("kafka", name),
            describe_fault(details, KafkaSection, overrides),
        )
        for name, details in by_name.items()
    ]
