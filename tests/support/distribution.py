"""How tests are distributed to processes: one by one, but those of some files stay together; long waits come early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from xdist.scheduler import LoadScopeScheduling

Item = TypeVar("Item")

TOGETHER = frozenset(
    {
        "tests/benchmarks/test_papers_steered.py",
        "tests/integration/test_credential_rotation.py",
        "tests/integration/test_outage.py",
        "tests/integration/test_security.py",
        "tests/privacy/test_attack_order.py",
        "tests/privacy/test_attack_values.py",
        "tests/properties/test_warm_up.py",
        "tests/unit/protection/test_diversity.py",
        "tests/unit/test_errors.py",
        "tests/unit/test_house_rules.py",
    }
)
"""Files of which one process runs all tests.

They share what is expensive to make: a broker, releases, tables, syntax trees, kernels that are read from the cache.
"""

TOGETHER_IN = ("tests/conformance/",)
"""Folders for whose files the same holds: each process would read the kernels of a file from the cache again."""

EARLY_SHARE = 0.7
"""The tests that wait are spread over this share of the others."""


def mixed(waiting: Sequence[Item], others: Sequence[Item]) -> list[Item]:
    """Spread tests that wait for a broker evenly over the first others: many at a time leave the processor idle."""
    end = EARLY_SHARE * len(others)
    places = [end * (number + 0.5) / len(waiting) for number in range(len(waiting))]
    keyed = [*zip(places, waiting, strict=True), *((float(number), one) for number, one in enumerate(others))]
    return [one for _, one in sorted(keyed, key=lambda pair: pair[0])]


class Distribution(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Distribute single tests, and the files in `TOGETHER` and `TOGETHER_IN` as one piece.

    This does not use ``--dist loadgroup``: pytest-xdist 3.8 passes a group inside the id of a test, and pytest 9.2 no
    longer lets it change that id.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in TOGETHER or file.startswith(TOGETHER_IN) else nodeid
