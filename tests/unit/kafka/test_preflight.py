"""Start checks where the cluster itself is not all there."""

from __future__ import annotations

from typing import Any, cast

import pytest
from shoal.errors import BrokerUnavailableError
from shoal.kafka import preflight as checks

pytestmark = pytest.mark.unit


async def test_a_cluster_that_names_no_broker_is_asked_again_later() -> None:
    """So answers a broker that has just come back, as long as its controller takes it for dead."""

    class Waking:
        async def describe_cluster(self) -> dict[str, Any]:
            return {"brokers": []}

    with pytest.raises(BrokerUnavailableError, match="no broker"):
        await checks._broker(cast("Any", Waking()))
