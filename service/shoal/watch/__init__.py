"""What an operator sees: every metric in one table, health, structured logs."""

from shoal.watch.health import Health
from shoal.watch.logs import code_of, guard, guard_loop, join_logs, logger, place_of, set_up_logs, visible
from shoal.watch.metrics import Metrics
from shoal.watch.server import serve

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
