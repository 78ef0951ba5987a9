"""A broker for all integration tests of one run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_broker import broker


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Address of a real broker."""
    with broker() as address:
        yield address
