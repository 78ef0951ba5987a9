"""Shoal: streams and tables of personal records made k-anonymous while they move."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.audit import verify
    from shoal.frames import anonymize_table
    from shoal.policy import Policy
    from shoal.streams import StreamAggregator
    from shoal.tables import microaggregate

__all__ = ["Policy", "StreamAggregator", "anonymize_table", "microaggregate", "verify"]

if not TYPE_CHECKING:
    _PACKAGES = {
        "Policy": "shoal.policy",
        "StreamAggregator": "shoal.streams",
        "anonymize_table": "shoal.frames",
        "microaggregate": "shoal.tables",
        "verify": "shoal.audit",
    }
    _MODULES = ("arrays", "audit", "errors", "policy", "streams", "tables")

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: no command needs all of these packages."""
        if name in _MODULES:
            return import_module(f"shoal.{name}")
        if name not in _PACKAGES:
            raise AttributeError(f"module 'shoal' has no attribute '{name}'")
        found = globals()[name] = getattr(import_module(_PACKAGES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted([*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))])
