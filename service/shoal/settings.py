"""Process settings: the policy's ``kafka`` section with the environment laid over it. The only reader of env."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from shoal.errors import Fault, PolicyError
from shoal.policy import KafkaSection, Policy

__all__ = ["REQUIRED", "kafka_settings"]

PREFIX = "SHOAL_KAFKA__"
REQUIRED = ("bootstrap_servers", "input", "output", "group")


def kafka_settings(
    policy: Policy,
    environment: Mapping[str, str] | None = None,
    *,
    given: Mapping[str, str] | None = None,
    required: Sequence[str] = REQUIRED,
) -> KafkaSection:
    """Connection, topics and timings: what the policy says, overruled by ``SHOAL_KAFKA__NAME`` variables.

    ``given`` holds what is so where neither says anything.

    Raises
    ------
    PolicyError
        With every variable that does not fit and every required field that stands nowhere; never with a value.
    """
    environment = os.environ if environment is None else environment
    overrides = {
        key.removeprefix(PREFIX).lower(): value for key, value in environment.items() if key.startswith(PREFIX)
    }
    written = {} if policy.kafka is None else policy.kafka.model_dump(exclude_unset=True)
    faults: list[Fault] = []
    try:
        settings = KafkaSection.model_validate({**(given or {}), **written, **overrides}, strict=False)
    except ValidationError as error:
        for detail in error.errors(include_input=False, include_url=False, include_context=False):
            name = str(detail["loc"][0]) if detail["loc"] else ""
            where = (PREFIX + name.upper(),) if name in overrides else ("kafka", name)
            unknown = detail["type"] == "extra_forbidden"
            faults.append(Fault(where, "unknown setting; check its spelling" if unknown else detail["msg"]))
        raise PolicyError(faults, "settings") from None
    faults += [
        Fault(("kafka", name), f"missing: say it in the policy or as {PREFIX}{name.upper()}")
        for name in required
        if not getattr(settings, name)
    ]
    topics = [settings.input, settings.output, settings.quarantine, settings.clusters, settings.evidence]
    named = [topic for topic in topics if topic]
    if len(set(named)) != len(named):
        faults.append(Fault(("kafka",), "the same topic is named twice: each of them needs its own"))
    if faults:
        raise PolicyError(faults, "settings")
    return settings
