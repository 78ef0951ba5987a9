"""Kafka settings: section ``kafka`` of the policy, overridden by environment variables.

A variable holds the text of a field. ``SHOAL_KAFKA__TOPICS`` and ``SHOAL_KAFKA__SASL_OAUTH_COMMAND`` hold lists in
JSON.

`shoal.cli.options` reads the variables of command options, and `shoal.health_check` the one of the address. No other
module reads variables of Shoal.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from shoal.errors import Fault, PolicyError
from shoal.policy import (
    FieldPath,
    KafkaSection,
    Policy,
    check_connection,
    check_names,
    is_follow_up,
    missing_keys,
    validate,
)

PREFIX = "SHOAL_KAFKA__"
EMPTY = "is empty; give a value, or unset the variable"
Finding: TypeAlias = tuple[FieldPath, str]
LISTS = {"topics": '[{"input": "TOPIC", "output": "TOPIC"}]', "sasl_oauth_command": '["PROGRAM", "ARGUMENT"]'}
"""Fields that are lists, with the form of their variables."""
REQUIRED = ("bootstrap_servers", "input", "output", "group")


def kafka_settings(
    policy: Policy | None,
    environment: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
    required: Sequence[str] = REQUIRED,
    has_secrets: bool = True,
    no_topics: str = "",
) -> KafkaSection:
    """Return connection, topics and timings. ``SHOAL_KAFKA__NAME`` overrides field ``name`` of the policy, if any.

    ``defaults`` are values of fields that neither the policy nor the environment sets. Without ``has_secrets``
    credentials may be missing: `shoal check` may run where the environment does not hold them. ``no_topics`` is why
    ``kafka.topics`` is refused; empty if it is not.

    PolicyError lists every invalid variable and every missing or unusable field: variables by their names, fields of
    the policy with the file and their lines. It never contains a value.
    """
    environment = os.environ if environment is None else environment
    overrides = {
        key.removeprefix(PREFIX).lower(): value for key, value in environment.items() if key.startswith(PREFIX)
    }
    in_policy = {} if policy is None or policy.kafka is None else policy.kafka.model_dump(exclude_unset=True)
    texts = KafkaSection.model_fields.keys() - LISTS.keys()
    empty = {name for name, value in overrides.items() if not value.strip() and name in texts}
    overrides = {name: value for name, value in overrides.items() if name not in empty}
    content = {**(defaults or {}), **in_policy, **_with_lists(overrides)}
    faults: list[Finding] = [(("kafka", name), EMPTY) for name in sorted(empty)]
    if no_topics and content.pop("topics", None) is not None:
        faults.append((("kafka", "topics"), no_topics))
    settings, misfits = validate(KafkaSection, content, strict=False)
    for path, message in misfits:
        is_list = len(path) == 1 and path[0] in LISTS and path[0] in overrides
        faults.append((("kafka", *path), f"must be a list in JSON: {LISTS[path[0]]}" if is_list else message))
    # A field of the wrong kind was removed: it is not missing, too.
    known = {path for path, _ in faults}
    has_faulty_topics = any(path[1] == "topics" for path in known)
    missing = (
        (("kafka", name), f"missing; set it in the policy or as {PREFIX}{name.upper()}")
        for name in missing_settings(settings, required, has_topics=has_faulty_topics)
    )
    # What the other security settings should be follows from these.
    is_known = empty.isdisjoint({"security_protocol", "sasl_mechanism"})
    of_connection = check_connection(settings, has_secrets=has_secrets) if is_known else ()
    found = chain(missing, missing_keys(settings, ("kafka",)), check_names(settings), of_connection)
    faults += [
        (path, message) for path, message in found if not any(is_follow_up(path, message, other) for other in known)
    ]
    if faults:
        raise settings_error(faults, policy, environment)
    return settings


def missing_settings(
    settings: KafkaSection, required: Sequence[str] = REQUIRED, *, has_topics: bool = False
) -> list[str]:
    """Return the names of the required fields that are not set. With ``topics``, input and output are not required."""
    of_topics = () if settings.topics is None and not has_topics else ("input", "output")
    return [name for name in required if name not in of_topics and not getattr(settings, name)]


def require_no_fault(policy: Policy | None, found: Iterable[tuple[str, str, bool]]) -> None:
    """Raise `settings_error` for what is wrong with the files of the settings: field, message, and what follows."""
    if faults := [(("kafka", field), message) for field, message, _ in found]:
        raise settings_error(faults, policy)


def settings_error(
    found: Sequence[Finding], policy: Policy | None, environment: Mapping[str, str] | None = None
) -> PolicyError:
    """Return an error that names the variable of each fault (path, message), or the file of the policy and the line."""
    variables = {name.upper() for name in (os.environ if environment is None else environment)}
    origin = None if policy is None else policy.origin
    faults = []
    for path, message in found:
        variable = PREFIX + path[1].upper() if path else ""
        if variable in variables:
            faults.append(Fault((variable, *path[2:]), message))
        else:
            faults.append(Fault(path, message, None if origin is None else origin.line_of(path)))
    source = "settings" if origin is None else origin.source
    are_variables = all(fault.path and fault.path[0] in variables for fault in faults)
    return PolicyError(faults, "environment" if are_variables else source)


def _with_lists(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables with lists parsed; a text that is no JSON stays, and is a fault of the kind."""
    parsed: dict[str, Any] = dict(overrides)
    for name in LISTS:
        with contextlib.suppress(KeyError, ValueError, RecursionError):
            parsed[name] = json.loads(parsed[name])
    return parsed
