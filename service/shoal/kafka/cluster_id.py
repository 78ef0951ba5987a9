"""Which cluster somebody is connected with: addresses do not tell, for one cluster has many."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.metadata import MetadataRequest

from shoal.kafka.client import admin
from shoal.policy import KafkaSection

__all__ = ["broker_cluster_id", "client_cluster_id"]


async def broker_cluster_id(settings: KafkaSection) -> str | None:
    """Id of the cluster at these settings; none if its brokers do not say."""
    async with admin(settings) as client:
        return await client_cluster_id(client._client)  # noqa: SLF001 - as in the clean-up of `connection`


async def client_cluster_id(client: Any) -> str | None:  # noqa: ANN401 - the client has no types
    """Id of the cluster that a client is connected with; to be awaited in the loop of the client."""
    answer = await client.send(client.get_random_node(), MetadataRequest([]))
    name: str | None = answer.to_object().get("cluster_id")
    return name
