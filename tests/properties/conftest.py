"""What all random lives of a partition share."""

from __future__ import annotations

import pytest
from shoal.pipeline import online_scaler as ranges


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges change often in the short lives of these tests."""
    monkeypatch.setattr(ranges, "SHORTEST_EPOCH", 5)
    monkeypatch.setattr(ranges, "KNOWN", 3)
