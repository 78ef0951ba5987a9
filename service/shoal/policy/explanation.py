"""Sentences on what a policy asks for confidential values: what `shoal check` prints beside the resolved policy."""

from __future__ import annotations

from shoal.policy.attribute import Attribute
from shoal.policy.resolved import Policy

__all__ = ["explain"]

_DISTANCES = {
    "ordered": "values are compared by their rank",
    "equal": "all values are equally far from each other",
    "hierarchical": "values are compared by the taxonomy",
    None: "values are compared by rank if all are numbers",
}


def explain(policy: Policy) -> dict[str, str]:
    """Return a sentence for each decision that the policy leaves to Shoal or that needs a definition, by field.

    No sentence contains a value of a record or of a reference.
    """
    found: dict[str, str] = {}
    if policy.stream is not None and policy.stream.reason:
        found["stream.rule"] = policy.stream.reason
    if not policy.protects_values:
        return found
    names = _joined([attribute.name for attribute in policy.protected])
    if policy.diversity is not None:
        found["privacy.l"] = f"{_diversity_of(policy)}, for {names}"
    if policy.max_value_share is not None:
        found["privacy.max_value_share"] = (
            f"at most {policy.max_value_share:g} of the records of a cluster have one value, for {names}"
        )
    if policy.t is not None:
        what = "; ".join(_closeness_of(attribute) for attribute in policy.protected)
        found["privacy.t"] = f"t-closeness, t = {policy.t:g}: {what}"
    found["privacy"] = _how(policy)
    return found


def _diversity_of(policy: Policy) -> str:
    diversity = policy.diversity
    if diversity is None:
        return ""
    if diversity.kind == "entropy":
        form = f"the entropy of a cluster's values is at least log({diversity.l:g})"
        return f"entropy l-diversity, l = {diversity.l:g}: {form}"
    if diversity.kind == "recursive":
        return f"recursive (c, l)-diversity, c = {diversity.c:g}, l = {diversity.l:g}"
    # p-sensitive k-anonymity is defined for p up to k only.
    p_sensitive = (
        f" (with k = {policy.k} also called p-sensitive k-anonymity, p = {diversity.l:g})"
        if diversity.l <= policy.k
        else ""
    )
    return f"distinct l-diversity, l = {diversity.l:g}{p_sensitive}"


def _closeness_of(attribute: Attribute) -> str:
    reference = attribute.reference
    source = "the values of the table" if reference is None else f"a reference of {len(reference.texts)} values"
    return f"{attribute.name} against {source}, where {_DISTANCES[attribute.distance]}"


def _how(policy: Policy) -> str:
    """Return how clusters come to keep l, t and the largest share."""
    if policy.stream is None:
        return "every algorithm keeps this: records are exchanged and clusters are merged until all clusters do"
    return (
        f"rule {policy.stream.rule} keeps this, as every rule does: a cluster grows until it does, and if it cannot, "
        "its oldest record is suppressed"
    )


def _joined(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
