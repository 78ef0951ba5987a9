"""The text of the demo's second half on standard error: visits before and after, verdict, and an outside count."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from patients import MISSING_SHARE, leaves
from report import SHOWN, number, say, smallest_cluster
from shoal.policy import Policy
from topics import Line

__all__ = ["beginning", "codes_by_level", "compare", "verdict"]

LEVELS = ("code", "block", "chapter", "any")
"""Levels of the taxonomy of diagnoses, from the leaves to the root."""


def beginning(messages: Sequence[dict[str, Any]], k: int) -> None:
    """Describe the input and the required output."""
    rows = [message["after"] for message in messages]
    people = len({row["patient"]["id"] for row in rows})
    say(
        f"\nThe second half. In: {number(len(rows))} hospital visits of {number(people)} patients, artificial (a "
        "generator, no real person), in Debezium's\nenvelope and nested, "
        f"{100 * MISSING_SHARE:.0f} % of the values missing:\n"
        f"  {json.dumps(messages[0])[:110]}...\n"
        f"Out: the visits in clusters of at least {k} patients that have one sex, postcode, diagnosis (ICD-10),\n"
        "number of days, date of birth and of admission; of diagnoses that differ, the block or the chapter."
    )


def compare(policy: Policy, lines: dict[str, list[Line]]) -> None:
    """Show visits of one of the smallest clusters before and after, one table below the other."""
    paths = {attribute.name: attribute.path for attribute in policy.published}

    def flat(text: str) -> dict[str, Any]:
        row = json.loads(text)["after"]
        return {name: _at(row, path) for name, path in paths.items()}

    before, after = smallest_cluster(policy, lines, flat)
    rows = [[_cell(record[name]) for name in paths] for record in (*before[:SHOWN], *after[:SHOWN])]
    widths = [max(map(len, column)) for column in zip(paths, *rows, strict=True)]
    shown = [
        "".join(f"  {cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in ([*paths], *rows)
    ]
    say("\nFive visits before, and five of the same cluster after, in another order")
    say("\n".join([*shown[: SHOWN + 1], "  " + "-" * (len(shown[0]) - 2), *shown[SHOWN + 1 :]]))


def _at(row: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - a JSON value
    """Return the value of a path; None if there is none."""
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _cell(value: Any) -> str:  # noqa: ANN401 - a JSON value
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else number(value)


def codes_by_level(records: Iterable[str]) -> dict[str, float]:
    """Return how large a share of the published diagnoses, without missing ones, is on each level of the taxonomy."""
    level_of = {name: level for row in leaves("icd") for level, name in zip(LEVELS, row, strict=True)}
    found = [json.loads(record)["icd"] for record in records]
    # A code that the taxonomy lacks is published as it is if the whole cluster has it.
    counts = Counter(level_of.get(value, "code") for value in found if value is not None)
    return {level: counts[level] / max(counts.total(), 1) for level in LEVELS}


def verdict(found: dict[str, Any], figures: dict[str, Any], published: Sequence[str], classes: int) -> None:
    """Print the verdict and the outside count in one paragraph."""
    examined = [check for check in found["checks"] if check["status"] != "not examined"]
    broken = "; ".join(check["claim"] for check in examined if check["failed"])
    checks = (
        f"all {len(examined)} checks hold" if figures["verified"] else f"{found['outcome']}: {broken or 'see below'}"
    )
    levels = ", ".join(f"{level} {100 * share:.0f} %" for level, share in codes_by_level(published).items())
    text = (
        f"{'Verified' if figures['verified'] else 'NOT verified'}: {checks}. {number(figures['records_in'])} visits "
        f"went in, {number(figures['released'])} came out, {figures['suppressed'] or 'none'} were held back. A count "
        f"that uses nothing of Shoal (deploy/demo/outside.py) finds {number(classes)} classes of equal values; "
        f"the smallest has {figures['smallest_class']} visits. Diagnoses are published as {levels}."
    )
    say("\n" + textwrap.fill(text, 118))
