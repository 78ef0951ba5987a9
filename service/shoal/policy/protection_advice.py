"""Advice on confidential attributes: what the settings of a policy leave unprotected, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from shoal.policy.attribute import Attribute
from shoal.policy.folded_text import fold_text
from shoal.policy.reference import Reference
from shoal.policy.resolved import Policy

__all__ = ["advise_on_confidential", "least_records"]

MOST_RECORDS = 2000
"""Largest cluster whose distance from a reference is computed in advance."""
_ROUNDING = 1e-9


def advise_on_confidential(policy: Policy) -> Iterator[str]:
    """Yield a sentence for each setting to decide on. It names fields of the policy, never a value."""
    if not policy.confidential:
        return
    if not policy.protects_values:
        yield (
            f"{_names(policy.confidential)}: k alone does not protect a confidential value, because all records of a "
            "cluster can have the same one; shoal verify measures in how many clusters they do "
            "(single_value_share.NAME), and of how many records (single_value_records.NAME). Set privacy.l, privacy.t "
            "or privacy.max_value_share, or accept this"
        )
        return
    yield from _advise_on_diversity(policy)
    yield from _advise_on_references(policy)
    unprotected = [attribute for attribute in policy.confidential if attribute not in policy.protected]
    if unprotected:
        yield (
            f"{_names(unprotected)}: not protected, because other attributes have protect: true; all records of a "
            "cluster can have the same value"
        )


def _advise_on_diversity(policy: Policy) -> Iterator[str]:
    diversity, share = policy.diversity, policy.max_value_share
    is_distinct = diversity is not None and diversity.kind == "distinct"
    if is_distinct and share is not None and share >= 1:
        yield (
            "privacy.max_value_share: 1 sets no limit, and distinct l alone is weak: all records of a cluster but "
            "l - 1 can have one value, and the size of a cluster or a suppressed record can show which ones do; leave "
            "it out (0.5), or give a share below 1"
        )
    if share is not None and share * policy.k < 1:
        least = math.ceil(1 / share)
        yield (
            f"privacy.max_value_share: below 1/k, so that no cluster of k records has it; clusters have at "
            f"least {least} records, which costs precision"
        )
    if diversity is not None and diversity.l > policy.k:
        yield (
            f"privacy.l: above k, so that no cluster of k records has it; clusters have at least "
            f"{math.ceil(diversity.l)} records, which costs precision"
        )
    if policy.dependence and diversity is not None:
        yield (
            "steering.dependence: draws records with similar confidential values together, and privacy.l keeps equal "
            "ones apart; clusters grow and more records are suppressed than with one of the two"
        )
    numbers = [a for a in policy.protected if a.distance == "ordered" and not a.order]
    if numbers and policy.t is None:
        yield (
            f"{_names(numbers)}: privacy.l and privacy.max_value_share count different numbers, however near they are: "
            "50000 and 50001 are two values; privacy.t compares how they are distributed"
        )
    whole = [attribute for attribute in policy.protected if attribute.type == "json"]
    if whole:
        yield (
            f"{_names(whole)}: an object or a list is one value, so two that differ in any part are different values; "
            "declare the part to be protected as an attribute of its own"
        )


def _advise_on_references(policy: Policy) -> Iterator[str]:
    for attribute in policy.protected if policy.t is not None else ():
        reference, place = attribute.reference, f"attributes.{attribute.name}"
        if reference is None:
            continue
        if attribute.taxonomy is not None:
            leaves = _leaves(attribute)
            lacking = sum(text is not None and fold_text(text, attribute) not in leaves for text in reference.texts)
            if lacking:
                yield (
                    f"{place}: {lacking} values of its reference are not in its taxonomy, so each is as far as "
                    "possible from all others; add them to the taxonomy, or correct their spelling"
                )
        if attribute.distance in {"equal", "hierarchical"}:
            yield from _advise_on_size(policy, place, _shares_by_level(attribute, reference))


def _shares_by_level(attribute: Attribute, reference: Reference) -> list[list[float]]:
    """Return the shares of the nodes of each level of the taxonomy; without one, those of the values."""
    taxonomy = attribute.taxonomy
    if taxonomy is None:
        return [list(reference.shares)]
    levels: list[dict[object, float]] = [{} for _ in range(taxonomy.levels)]
    leaves = _leaves(attribute)
    for text, share in zip(reference.texts, reference.shares, strict=True):
        leaf = leaves.get(fold_text(text, attribute))
        path = [(text,)] * taxonomy.levels if leaf is None else taxonomy.paths[leaf]
        for level, node in zip(levels, path, strict=True):
            level[node] = level.get(node, 0.0) + share
    return [list(level.values()) for level in levels]


def _leaves(attribute: Attribute) -> dict[object, int]:
    """Return the place of each leaf of the taxonomy by its folded text: 1 and 1.0 are one value."""
    leaves = {} if attribute.taxonomy is None else attribute.taxonomy.leaves
    return {fold_text(text, attribute): place for text, place in leaves.items()}


def _advise_on_size(policy: Policy, place: str, levels: Sequence[Sequence[float]]) -> Iterator[str]:
    """Yield advice if t, not k, sets the size of clusters."""
    most = MOST_RECORDS if policy.stream is None else min(policy.stream.delta + 1, MOST_RECORDS)
    least = least_records(levels, policy.t or 0.0, most)
    if least is None:
        yield (
            f"{place}: no cluster of up to {most} records is within privacy.t of its reference; give a larger t, a "
            "larger delta in a stream, or a scale or taxonomy by which some values are near each other"
        )
    elif least > policy.k:
        yield (
            f"{place}: a cluster within privacy.t of its reference has at least {least} records, more than k; a larger "
            "t, or a scale or taxonomy by which some values are near each other, costs less precision"
        )


def least_records(levels: Sequence[Sequence[float]], t: float, most: int) -> int | None:
    """Return a number of records below which no cluster is within t of a reference; exact without a taxonomy.

    Of n records, as many as possible have each value in proportion; the others fill the largest remainders. Their
    distance is 1 less the sum of all min(count / n, share). With a taxonomy, the distance is at least the mean of these
    distances over its levels.

    Parameters
    ----------
    levels : sequence of sequences of float
        Shares of the nodes of each level of a taxonomy, or of the values alone; the sum of each is 1.
    t : float
    most : int
        Largest number of records that is tried.

    Returns
    -------
    int or None
        None if no number up to ``most`` fits.

    Notes
    -----
    Cost: O(nodes log nodes) per number of records.

    Examples
    --------
    >>> least_records([[0.5, 0.3, 0.2]], 0.05, 100)
    4
    """
    for n in range(1, most + 1):
        if sum(_least_distance(shares, n) for shares in levels) / len(levels) <= t + _ROUNDING:
            return n
    return None


def _least_distance(shares: Sequence[float], n: int) -> float:
    """Return the distance of the nearest cluster of n records, if all values are equally far from each other."""
    exact = [share * n for share in shares]
    whole = [math.floor(count + _ROUNDING) for count in exact]
    rests = sorted((count - floor for count, floor in zip(exact, whole, strict=True)), reverse=True)
    return 1 - (sum(whole) + sum(max(rest, 0.0) for rest in rests[: n - sum(whole)])) / n


def _names(attributes: tuple[Attribute, ...] | list[Attribute]) -> str:
    return ", ".join(f"attributes.{attribute.name}" for attribute in attributes)
