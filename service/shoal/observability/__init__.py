"""What an operator sees: every metric in one table, health, structured logs."""

from shoal.observability.health import Health
from shoal.observability.http import serve
from shoal.observability.logs import code_of, guard, guard_loop, join_logs, logger, place_of, set_up_logs, visible
from shoal.observability.metrics import Metrics

__all__ = [
    "Health",
    "Metrics",
    "code_of",
    "guard",
    "guard_loop",
    "join_logs",
    "logger",
    "place_of",
    "serve",
    "set_up_logs",
    "visible",
]
