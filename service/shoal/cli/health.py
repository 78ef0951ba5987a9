"""`shoal health`: ask a worker whether it is alive or ready. The console script runs it without this package."""

from __future__ import annotations

from shoal.health_check import SUMMARY, add_arguments, execute

__all__ = ["SUMMARY", "add_arguments", "execute"]
