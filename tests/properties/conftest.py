"""Settings that all property tests of a partition share."""

from __future__ import annotations

import pytest
from shoal.pipeline import online_scaler


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges change often in the short streams of these tests."""
    monkeypatch.setattr(online_scaler, "MIN_EPOCH", 5)
    monkeypatch.setattr(online_scaler, "WARMUP_CLUSTERS", 3)
