"""Steps of transactions that fail in the client, before or after the broker has done its work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

STEPS = ("send_batch", "send_offsets_to_transaction", "commit_transaction")
Plan = tuple[str, bool] | None
"""The step that fails, and whether it does so after its work."""


def fail_steps(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], Plan]) -> list[str]:
    """Let a step of each transaction with records fail for which a plan is drawn; tell which steps did."""
    failed: list[str] = []
    plans: dict[int, Plan] = {}

    def wrap(name: str) -> None:
        real: Callable[..., Awaitable[Any]] = getattr(AIOKafkaProducer, name)

        async def failing(self: Any, *arguments: Any, **options: Any) -> Any:
            if name == "send_batch" and id(self) not in plans:
                plans[id(self)] = draw()
            due = plans.get(id(self))
            is_due = due is not None and due[0] == name
            done = None if is_due and due == (name, False) else await real(self, *arguments, **options)
            if name == "commit_transaction" or is_due:
                plans.pop(id(self), None)
            if is_due:
                failed.append(f"{name} {'after' if due == (name, True) else 'before'}")
                raise OSError("torn")
            return done

        monkeypatch.setattr(AIOKafkaProducer, name, failing)

    for name in STEPS:
        wrap(name)
    return failed
