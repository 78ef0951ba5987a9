"""Settings of topics and brokers, as far as the principal may see them; and a warning of what was not checked.

A refused request gives no setting, so a check of it would pass. Reading settings takes DESCRIBE_CONFIGS, which a worker
does not need otherwise: without it the worker starts, and says once what it did not check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from shoal.errors import BrokerUnavailableError
from shoal.observability import logger

__all__ = ["UncheckedSettings", "broker_configs", "topic_configs"]

log = logger("kafka")


async def topic_configs(client: AIOKafkaAdminClient, topics: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings of each of these topics that the principal may see; the others are missing."""
    return await _configs(client, ConfigResourceType.TOPIC, topics)


async def broker_configs(client: AIOKafkaAdminClient) -> dict[str, str] | None:
    """Return the settings of one broker; None if the principal may not see them.

    Raises
    ------
    BrokerUnavailableError
        No broker is alive.
    """
    brokers = (await client.describe_cluster())["brokers"]
    if not brokers:
        raise BrokerUnavailableError("the cluster names no broker that is alive")
    node = str(brokers[0]["node_id"])
    return (await _configs(client, ConfigResourceType.BROKER, [node])).get(node)


@dataclass(slots=True)
class UncheckedSettings:
    """Warns of settings that were not checked: once in a process, although each consumer loop checks again."""

    _reported: set[str] = field(default_factory=set)

    def warn(self, text: str, **fields: str) -> None:
        """Log a warning, unless this process has logged one with this text."""
        if text not in self._reported:
            self._reported.add(text)
            log.warning(text, **fields)


async def _configs(
    client: AIOKafkaAdminClient, kind: ConfigResourceType, names: list[str]
) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    responses = await client.describe_configs([ConfigResource(kind, name) for name in names])
    found: dict[str, dict[str, str]] = {}
    for response in responses:
        for error_code, _, _, name, entries in response.resources:
            # With an error the list is empty, as if the resource had no settings.
            if not error_code:
                listed: list[Any] = entries
                found[name] = {entry[0]: entry[1] or "" for entry in listed}
    return found
