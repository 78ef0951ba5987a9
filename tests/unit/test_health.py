"""What the probe says of a worker."""

from __future__ import annotations

import pytest
from shoal.observability import Health

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("health", "status"),
    [
        (Health(joined=True, broker_reached=True), "ready"),
        (Health(joined=True, broker_reached=True, unassigned=True), "ready: in the group, no partition assigned"),
        (
            Health(broker_reached=True, compiling="compiling kernels, once: about 10 s"),
            "not ready: compiling kernels, once: about 10 s, not a member of the group yet",
        ),
        (
            Health(joined=True, broker_reached=True, leaders_away=True),
            "not ready: no leader of its partitions answers",
        ),
        (Health(joined=True, unassigned=True), "not ready: broker not reached"),
        (
            Health(joined=True, broker_reached=True, restoring={("visits", 2)}),
            "not ready: partitions are being restored",
        ),
    ],
)
def test_the_status_says_whether_a_worker_is_ready_and_why_not(health: Health, status: str) -> None:
    assert health.status == status
    assert health.ready == status.startswith("ready")
