"""Kafka settings: section ``kafka`` of the policy, overridden by environment variables.

No other module reads environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from pydantic import ValidationError

from shoal.errors import Fault, PolicyError
from shoal.policy import FieldPath, KafkaSection, Policy, check_connection, check_names, describe_fault

__all__ = ["PREFIX", "REQUIRED", "kafka_settings", "settings_error"]

PREFIX = "SHOAL_KAFKA__"
Finding: TypeAlias = tuple[FieldPath, str]
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
        Lists every invalid variable and every missing or unusable field: variables by their names, fields of the policy
        with the file and their lines. It never contains a value.
    """
    environment = os.environ if environment is None else environment
    overrides = {
        key.removeprefix(PREFIX).lower(): value for key, value in environment.items() if key.startswith(PREFIX)
    }
    in_policy = {} if policy.kafka is None else policy.kafka.model_dump(exclude_unset=True)
    settings, faults = _merge({**(defaults or {}), **in_policy, **overrides}, overrides)
    missing = (
        (
            ("kafka", name),
            "is empty; give a value, or unset the variable"
            if name in overrides
            else f"missing; set it in the policy or as {PREFIX}{name.upper()}",
        )
        for name in required
        if not getattr(settings, name)
    )
    found = chain(missing, check_names(settings), check_connection(settings, has_secrets=has_secrets))
    # A field of the wrong kind was removed: it is not missing, too.
    known = {path for path, _ in faults}
    faults += [finding for finding in found if finding[0] not in known]
    if faults:
        raise settings_error(faults, policy, environment)
    return settings


def settings_error(
    found: Sequence[Finding], policy: Policy, environment: Mapping[str, str] | None = None
) -> PolicyError:
    """Return an error that names the variable of each fault, or the file of the policy and the line.

    Parameters
    ----------
    found : sequence of (path, message)
        At least one.
    policy : Policy
    environment : mapping, optional
        As for `kafka_settings`.
    """
    variables = {name.upper() for name in (os.environ if environment is None else environment)}
    faults = []
    for path, message in found:
        variable = (PREFIX + path[-1].upper(),) if path else ()
        if variable and variable[0] in variables:
            faults.append(Fault(variable, message))
        else:
            faults.append(Fault(path, message, None if policy.origin is None else policy.origin.line_of(path)))
    source = "settings" if policy.origin is None else policy.origin.source
    are_variables = all(fault.path and fault.path[0] in variables for fault in faults)
    return PolicyError(faults, "environment" if are_variables else source)


def _merge(content: dict[str, Any], overrides: Mapping[str, str]) -> tuple[KafkaSection, list[Finding]]:
    """Return the settings without the fields of the wrong kind, and what is wrong with those."""
    faults: list[Finding] = []
    while True:
        try:
            return KafkaSection.model_validate(content, strict=False), faults
        except ValidationError as error:
            by_name: dict[str, list[Any]] = {}
            for detail in error.errors(include_input=False, include_url=False):
                by_name.setdefault(str(detail["loc"][0]), []).append(detail)
            faults += [
                (("kafka", name), describe_fault(details, KafkaSection, overrides)) for name, details in by_name.items()
            ]
            content = {name: value for name, value in content.items() if name not in by_name}
