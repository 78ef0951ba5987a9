"""The subject of these tests is the code of the benchmarks: it is importable here, and nowhere else in the tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
