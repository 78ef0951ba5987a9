"""Settings that all property tests of a partition share."""

from __future__ import annotations

import pytest
from shoal.streams import spreads


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scalings change often in the short streams of these tests."""
    monkeypatch.setattr(spreads, "MIN_EPOCH", 5)
    monkeypatch.setattr(spreads, "WARMUP", 3)
