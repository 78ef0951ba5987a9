"""What a policy promises and what it makes of each field, in words. No value of a record is in them."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.policy import Attribute, Policy, Role, Scale, explain

_NOMINAL = {
    "mode": "the most frequent category of its cluster",
    "ancestor": "what the categories of its cluster have in common in the taxonomy",
    "median": "the lowest node of the taxonomy above more than half of its cluster",
}
_MISSING = {
    "group": "; where most of a cluster lack a value, nobody in it has one",
    "mean": "; a record without a value takes that of its cluster",
    "quarantine": "",
}
WARNINGS = {
    "identifier_copy": "is published unchanged and nearly always equals an identifier",
    "other_person": "counts people otherwise than the subject of the policy, and by it clusters have fewer than k",
    "near_duplicate_subjects": "some people of a cluster may be spellings of one person",
    "identifier_like": "is published unchanged and nearly all of its values are unique texts",
    "known_outside": "is published unchanged, and by its name others know it of a person",
    "known_together": "with the published values, these fields single out rows",
    "may_be_person": "may name a person, whom many subjects are, and by it clusters have fewer than k",
    "left_out": "many records are not in the release, so it need not show what the original shows",
    "clipped": "many values were outside the bounds and count as the bound",
    "unique_values": "is published unchanged and has many unique values",
    "order_of_arrival": "is published unchanged and follows the order of arrival",
    "held": "most records may still be held",
    "summary": "the summary of the run does not account for everything",
}
"""Warnings of the judge by code, without its counts."""


def fields_in_words(policy: Policy) -> list[dict[str, str]]:
    """Return name, role and fate of each field, in the order of the policy."""
    return [
        {"name": one.name, "role": one.role.value.replace("_", "-"), "becomes": _fate(policy, one)}
        for one in policy.attributes
    ]


def promises(policy: Policy, *, is_table: bool) -> Iterator[str]:
    """Yield a sentence for each promise of the policy."""
    k, subject = policy.k, "every record is a person of its own" if policy.subject is None else policy.subject.name
    by = subject if policy.subject is None else f"people are told apart by {subject}"
    yield f"k = {k}: each released record has the same quasi-identifiers as those of at least {k} people ({by})."
    yield f"No person has more than {100 * policy.max_share:.3g} % of the records of a cluster."
    for name, text in explain(policy).items():
        if name in {"privacy.l", "privacy.t", "privacy.max_value_share"}:
            yield f"{text[:1].upper()}{text[1:]}."
    if policy.confidential and not policy.protects_values:
        names = ", ".join(one.name for one in policy.confidential)
        yield f"Nothing is promised of confidential values ({names}): all records of a cluster can have the same one."
    if policy.per_subject is not None:
        most, window = policy.per_subject.max, policy.per_subject.window
        yield f"At most {most} of the records of one person are released from each window of {window} offsets."
    if policy.min_population is not None:
        yield f"A time limit or the end releases nothing while fewer than {policy.min_population} people are held."
    if policy.stream is None or is_table:
        yield "The records are released as a finished table."
        return
    stream = policy.stream
    seconds = "" if stream.max_delay_s is None else f", nor longer than {stream.max_delay_s:g} seconds"
    yield f"delta = {stream.delta}: no record waits for more than {stream.delta} later ones{seconds}."
    order = "in the order of the input" if stream.is_ordered else "cluster by cluster"
    yield f"Records are released as a stream, {order}; rule {stream.rule}."


def _fate(policy: Policy, one: Attribute) -> str:
    match one.role:
        case Role.IDENTIFIER:
            return "left out; people are counted by it" if one.subject else "left out"
        case Role.STEERING:
            return "left out; clusters are formed by it, too"
        case Role.QUASI_IDENTIFIER:
            return f"replaced by {_of_cluster(one)}{_MISSING[one.missing]}"
        case Role.CONFIDENTIAL:
            limits = ", ".join(limit.removeprefix("privacy.") for limit in policy.value_limits)
            return f"published unchanged, protected by {limits}" if one in policy.protected else "published unchanged"
        case _:
            return "published unchanged: whoever knows it can link records by it"


def _of_cluster(one: Attribute) -> str:
    match one.scale:
        case Scale.NUMERIC:
            bounds = "" if one.bounds is None else f", from {one.bounds[0]:,.15g} to {one.bounds[1]:,.15g}"
            step = one.resolution
            return f"the mean of its cluster{'' if not step else f' in steps of {step}'}{bounds}"
        case Scale.TIME:
            return "the mean time of its cluster, rounded as the policy says"
        case Scale.ORDINAL:
            return "the median category of its cluster"
        case _:
            return _NOMINAL[one.publish]
