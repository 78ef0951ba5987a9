"""The text of the demo on standard error: input, five records before and after, verdict, next steps."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from shoal.policy import Policy
from topics import Line

__all__ = ["SHOWN", "beginning", "compare", "end", "number", "progress", "say", "smallest_cluster", "verdict"]

SHOWN = 5
"""Number of records of a cluster that are shown before and after."""
NEXT = """
What to do next:
  build/demo/output.jsonl                         what was published; evidence.jsonl tells which records are together
  build/demo/patients/output.jsonl                the same of the second half
  deploy/demo/{policy,patients}.yaml              the policies; `shoal check` prints one in full
  .venv/bin/shoal pipe POLICY -i FILE -o FILE     the same with a file of yours
  .venv/bin/shoal run POLICY                      the same with a topic of yours; README.md shows a first policy"""


def say(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr, flush=True)


def number(value: float) -> str:
    """Return a number with commas between thousands and at most four decimal places.

    Examples
    --------
    >>> number(4360), number(1.7314169999999998), number(0.05), number(-0.0)
    ('4,360', '1.7314', '0.05', '0')
    """
    text = f"{value:,.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def beginning(records: list[dict[str, Any]], partitions: int, k: int) -> None:
    """Describe the input and the required output."""
    years = sorted({record["year"] for record in records})
    men = len({record["nr"] for record in records})
    say(
        f"\nIn: {number(len(records))} records of {men} men, one a year from {years[0]} to {years[-1]}, "
        f"in a Kafka topic of {partitions} partitions.\n"
        f"Out: a topic of the same records in clusters of at least {k} men; in a cluster all have one schooling,\n"
        "experience, number of hours and wage. Identifiers and years are not published."
    )


def progress(done: int, total: int) -> None:
    """Print how many records are published."""
    say(f"  {number(done)} of {number(total)} records are published")


def compare(policy: Policy, lines: dict[str, list[Line]]) -> None:
    """Show records of one of the smallest clusters before and after, side by side."""
    before, after = smallest_cluster(policy, lines, json.loads)
    names = [attribute.name for attribute in policy.published]
    width = 11 * len(names)
    say(f"\n{'Five records before':<{width}}    The same five after, in another order")
    say("".join(f"{name:>11}" for name in names) + "   |" + "".join(f"{name:>11}" for name in names))
    for left, right in list(zip(before, after, strict=True))[:SHOWN]:
        cells = ["".join(f"{number(record[name]):>11}" for name in names) for record in (left, right)]
        say("   |".join(cells))


def smallest_cluster(
    policy: Policy, lines: dict[str, list[Line]], decode: Callable[[str], dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the members of one of the smallest clusters, as they came and as they were published.

    ``decode`` returns the fields of an input message by the names of the policy.
    """
    about = min((json.loads(line.text) for line in lines["evidence"]), key=lambda cluster: len(cluster["offsets"]))
    members = {(about["partition"], offset) for offset in about["offsets"]}
    before = [decode(line.text) for line in lines["input"] if (line.partition, line.offset) in members]
    after = [json.loads(line.text) for line in lines["output"] if line.partition == about["partition"]]
    return before, _published(policy, before, after)


def _published(policy: Policy, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the published records of a cluster: consecutive, equal, with the confidential values of its members."""
    known = [attribute.name for attribute in policy.quasi_identifiers]
    unchanged = [attribute.name for attribute in policy.published if attribute.name not in known]

    def texts(records: list[dict[str, Any]], names: list[str]) -> list[str]:
        # 45.0 is published as 45.
        return sorted(json.dumps([_as_float(record[name]) for name in names]) for record in records)

    size, kept = len(before), texts(before, unchanged)
    for start in range(len(after) - size + 1):
        found = after[start : start + size]
        if texts(found, unchanged) == kept and len(set(texts(found, known))) == 1:
            return found
    raise SystemExit("demo: a cluster is not in the output")


def _as_float(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return float(value) if isinstance(value, int) else value


def verdict(found: dict[str, Any], figures: dict[str, Any]) -> None:
    """Print the verdict and the information loss in one paragraph."""
    examined = [check for check in found["checks"] if check["status"] != "not examined"]
    broken = "; ".join(check["claim"] for check in examined if check["failed"])
    checks = (
        f"all {len(examined)} checks hold" if figures["verified"] else f"{found['outcome']}: {broken or 'see below'}"
    )
    held_back = sum(figures["suppressed"].values()) + sum(figures["quarantined"].values())
    once = ", each of them once, although a worker was killed" if figures["verified"] else ""
    text = (
        f"{'Verified' if figures['verified'] else 'NOT verified'}: {checks}. {number(figures['records_in'])} records "
        f"went in, {number(figures['released'])} came out{once}, and {held_back or 'none'} were held back. They are in "
        f"{number(figures['clusters'])} clusters of at least {figures['subjects']['min']} men. "
        f"{number(round(figures['information_loss'], 1))} % of the information is lost, a record moved by "
        f"{number(round(figures['displacement']['mean']))} places on average, and the workers processed "
        f"{number(round(figures['records_per_s']))} records per second, with the kill and the restart."
    )
    say("\n" + textwrap.fill(text, 118))


def end(*, verbose: bool) -> None:
    """Print the next steps."""
    more = "" if verbose else "\n  make demo V=1                                   each check of the verdict"
    say(f"{NEXT}{more}")
