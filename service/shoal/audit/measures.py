"""What is reported and not judged: things k-anonymity does not promise and a reader should know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoal.audit.check_counter import CheckCounter
from shoal.audit.clusters import RecomputedClusters
from shoal.audit.fields import decimal_number
from shoal.audit.originals import Originals
from shoal.policy import Policy, Role

__all__ = ["Unchanged", "judge_unchanged", "look_at_unchanged", "measure"]

FEWEST = 30
"""Below this many records, everything is unique and every order looks meant."""
UNIQUE_SHARE = 0.05
CORRELATION = 0.5


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A field that is published as it came: how well a record can be found by it.

    ``unique`` is the share of values that only one record has (nulls and empty cells are none), ``steady`` the largest
    rank correlation with the order of arrival in a partition; both None where records are too few to tell.
    ``acknowledged``: the policy says ``publish_unchanged`` of it.
    """

    name: str
    unique: float | None
    steady: float | None
    acknowledged: bool

    def warnings(self) -> list[str]:
        """Say how a record can be found by it, in words without values."""
        remedy = "" if self.acknowledged else "; publish_unchanged: true says that this is meant"
        told = []
        if self.unique is not None and self.unique > UNIQUE_SHARE:
            told.append(
                f"{self.name} is published unchanged and {self.unique:.0%} of its values are unique: "
                f"whoever knows one finds the record{remedy}"
            )
        if self.steady is not None and self.steady > CORRELATION:
            told.append(
                f"{self.name} is published unchanged and follows the order of arrival "
                f"(rank correlation {self.steady:.2f}): it tells when a record came{remedy}"
            )
        return told


def measure(
    policy: Policy, originals: Originals, clusters: RecomputedClusters | None, unchanged: Sequence[Unchanged]
) -> dict[str, float | int | None]:
    """Releases per subject, the share of clusters that agree on a confidential value, fields that find a record.

    Returns
    -------
    dict
        ``releases_per_subject_max``, ``releases_per_subject_mean`` (over released subjects), ``largest_share`` of one
        subject in a cluster, and for each confidential attribute ``single_value_share.NAME``, unless the clusters are
        not known; for each field that is published as it came ``unique_share.NAME`` and ``order_correlation.NAME``.
    """
    found: dict[str, float | int | None] = {} if clusters is None else _measure_clusters(policy, originals, clusters)
    for field in unchanged:
        found[f"unique_share.{field.name}"] = field.unique
        found[f"order_correlation.{field.name}"] = field.steady
    return found


def _measure_clusters(
    policy: Policy, originals: Originals, clusters: RecomputedClusters
) -> dict[str, float | int | None]:
    members = [index for cluster in clusters.found for index in cluster.members]
    counts = np.bincount(originals.subjects[members]) if members else np.zeros(0, dtype=np.int64)
    released = counts[counts > 0]
    found: dict[str, float | int | None] = {
        "releases_per_subject_max": int(released.max()) if released.size else None,
        "releases_per_subject_mean": float(released.mean()) if released.size else None,
        "largest_share": clusters.largest_share,
    }
    for column, attribute in enumerate(policy.passthrough):
        if attribute.role is Role.CONFIDENTIAL:
            single = sum(len({text.split("\x00")[column] for text in cluster.kept}) == 1 for cluster in clusters.found)
            found[f"single_value_share.{attribute.name}"] = single / len(clusters.found) if clusters.found else None
    return found


def look_at_unchanged(policy: Policy, originals: Originals) -> list[Unchanged]:
    """Look at fields published unchanged by which a record can be found: unique values, values that tell the order."""
    usable = [index for index, text in enumerate(originals.kept) if text is not None]
    if len(usable) < FEWEST:
        return [Unchanged(attribute.name, None, None, attribute.publish_unchanged) for attribute in policy.passthrough]
    texts = [text.split("\x00") for text in originals.kept_of(usable)]
    parts = originals.partitions[usable]
    found = []
    for column, attribute in enumerate(policy.passthrough):
        values = [text[column] for text in texts]
        ranks = _ranks(values)
        steady = max((abs(_correlation(ranks[parts == part])) for part in np.unique(parts)), default=0.0)
        found.append(Unchanged(attribute.name, _unique_share(values), steady, attribute.publish_unchanged))
    return found


def judge_unchanged(unchanged: Sequence[Unchanged]) -> CheckCounter:
    """Judge that no field tells records apart without the policy's saying so."""
    claim = "no field by which records can be found is published unchanged, unless the policy says that this is meant"
    tally = CheckCounter("unchanged", claim, "field")
    for field in unchanged:
        tally.expect(field.acknowledged or not field.warnings(), field.name)
    if not unchanged:
        tally.leave("no field is published unchanged")
    return tally


def _unique_share(values: Sequence[str]) -> float:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    for nothing in ("null", '""'):  # the latter is how the cell of a table is empty
        counts.pop(nothing, None)
    return sum(count == 1 for count in counts.values()) / max(1, sum(counts.values()))


def _ranks(values: Sequence[str]) -> npt.NDArray[np.float64]:
    """Mean ranks, by number where every value is one and by code points otherwise; nulls are NaN."""
    known = sorted({value for value in values if value != "null"})
    numbers = {value: _as_number(value) for value in known}
    if all(number is not None for number in numbers.values()):
        known.sort(key=lambda value: numbers[value] or 0.0)
    codes = {value: code for code, value in enumerate(known)}
    column = np.array([codes.get(value, -1) for value in values], dtype=np.int64)
    counts = np.bincount(column[column >= 0], minlength=len(known))
    ranks = np.append(np.cumsum(counts) - (counts - 1) / 2, np.nan)
    return np.asarray(ranks[column], dtype=np.float64)


def _as_number(text: str) -> float | None:
    return decimal_number(json.loads(text) if text.startswith('"') else text)


def _correlation(ranks: npt.NDArray[np.float64]) -> float:
    """Correlation of ranks with positions; 0 where either does not vary."""
    places = np.flatnonzero(~np.isnan(ranks)).astype(np.float64)
    known = ranks[~np.isnan(ranks)]
    if known.size < FEWEST or np.ptp(known) == 0:
        return 0.0
    return float(np.corrcoef(known, places)[0, 1])
