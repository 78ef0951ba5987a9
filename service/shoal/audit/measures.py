"""What is reported and not judged: things k-anonymity does not promise and a reader should know."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shoal.audit.clusters import Clusters
from shoal.audit.fields import decimal_number
from shoal.audit.originals import Originals
from shoal.policy import Policy, Role

__all__ = ["measure", "warnings_about"]

FEWEST = 30
"""Below this many records, everything is unique and every order looks meant."""
UNIQUE_SHARE = 0.05
CORRELATION = 0.5


def measure(policy: Policy, originals: Originals, clusters: Clusters) -> dict[str, float | int | None]:
    """Releases per subject, and the share of clusters that agree on a confidential value.

    Returns
    -------
    dict
        ``releases_per_subject_max``, ``releases_per_subject_mean`` (over released subjects), and for each
        confidential attribute ``single_value_share.NAME``; None without clusters.
    """
    members = [index for cluster in clusters.found for index in cluster.members]
    counts = np.bincount(originals.subjects[members]) if members else np.zeros(0, dtype=np.int64)
    released = counts[counts > 0]
    found: dict[str, float | int | None] = {
        "releases_per_subject_max": int(released.max()) if released.size else None,
        "releases_per_subject_mean": float(released.mean()) if released.size else None,
    }
    for column, attribute in enumerate(policy.kept):
        if attribute.role is Role.CONFIDENTIAL:
            single = sum(len({text.split("\x00")[column] for text in cluster.kept}) == 1 for cluster in clusters.found)
            found[f"single_value_share.{attribute.name}"] = single / len(clusters.found) if clusters.found else None
    return found


def warnings_about(policy: Policy, originals: Originals) -> list[str]:
    """Fields published unchanged by which a record can be found: unique values, values that tell the order."""
    told = []
    usable = [index for index, text in enumerate(originals.kept) if text is not None]
    if len(usable) < FEWEST:
        return []
    texts = [text.split("\x00") for text in originals.kept_of(usable)]
    parts = originals.partitions[usable]
    for column, attribute in enumerate(policy.kept):
        values = [text[column] for text in texts]
        unique = _unique_share(values)
        if unique > UNIQUE_SHARE:
            told.append(
                f"{attribute.name} is published unchanged and {unique:.0%} of its values are unique: "
                "whoever knows one finds the record"
            )
        ranks = _ranks(values)
        steady = max((abs(_correlation(ranks[parts == part])) for part in np.unique(parts)), default=0.0)
        if steady > CORRELATION:
            told.append(
                f"{attribute.name} is published unchanged and follows the order of arrival "
                f"(rank correlation {steady:.2f}): it tells when a record came"
            )
    return told


def _unique_share(values: Sequence[str]) -> float:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    counts.pop("null", None)
    return sum(count == 1 for count in counts.values()) / len(values)


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
