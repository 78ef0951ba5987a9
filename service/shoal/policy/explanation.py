"""What `shoal check` says of a valid policy: what its requirements mean, and which settings need a decision.

No sentence contains a value of a record or of a reference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from shoal.policy.attribute import SCALE_RULES, Attribute, MessagePart, Reference
from shoal.policy.policy import Diversity, Policy
from shoal.policy.schema import Scale
from shoal.policy.texts import fold_text

_DISTANCES = {
    "ordered": "values are compared by their rank",
    "equal": "all values are equally far from each other",
    "hierarchical": "values are compared by the taxonomy",
    None: "values are compared by rank if all are numbers",
}


def explain(policy: Policy) -> dict[str, str]:
    """Return a sentence for each decision that the policy leaves to Shoal or that needs a definition, by field."""
    found: dict[str, str] = {}
    if policy.stream is not None and policy.stream.reason:
        found["stream.rule"] = policy.stream.reason
    if not policy.protects_values:
        return found
    *names, last = [attribute.name for attribute in policy.protected]
    where = f"{', '.join(names)} and {last}" if names else last
    if policy.diversity is not None:
        found["privacy.l"] = f"{_diversity_of(policy.diversity, policy.k)}, for {where}"
    if policy.max_value_share is not None:
        share = policy.max_value_share
        found["privacy.max_value_share"] = f"at most {share:g} of the people of a cluster have one value, for {where}"
    if policy.t is not None:
        what = "; ".join(_closeness_of(attribute) for attribute in policy.protected)
        found["privacy.t"] = f"t-closeness, t = {policy.t:g}: {what}"
    if policy.stream is None:
        words = "every algorithm keeps this: records are exchanged and clusters are merged until all clusters do"
        found["privacy"] = words
    else:
        found["privacy"] = (
            f"rule {policy.stream.rule} keeps this, as every rule does: a cluster grows until it does, and if it "
            "cannot, its oldest record is suppressed"
        )
    return found


def advise(policy: Policy) -> Iterator[str]:
    """Yield a sentence for each setting to decide on. It names fields of the policy, never a value of a record."""
    if unchanged := _names(attribute for attribute in policy.unchanged_fields if attribute.publish_unchanged):
        yield (
            f"{unchanged}: published unchanged. Fields with few values, too, can single people out together "
            "with the published values and with each other: shoal verify measures it on a release "
            "(joint_unique_share); a field that others may know should be a quasi_identifier"
        )
    if policy.subject is not None and _may_hold_names(policy.subject):
        yield (
            f"attributes.{policy.subject.name}: if the subject is a name or an address, set normalize: "
            "[nfkc, casefold, spaces, invisible], or each spelling counts as a person; if it is a code in which case "
            "matters, set normalize: []"
        )
    yield from _advise_on_fields(policy)
    yield from _advise_on_missing(policy)
    yield from _advise_on_confidential(policy)
    yield from _advise_on_categories(policy)
    for attribute in policy.quasi_identifiers:
        if attribute.integer and attribute.resolution is not None and attribute.resolution % 1:
            yield (
                f"attributes.{attribute.name}: integer is true, but the resolution is a fraction, so published values "
                "are not whole numbers; give resolution: 1 or more, or integer: false"
            )
    if policy.subject is None:
        yield (
            "subject: every_record: a record that its producer sends twice counts as two people; use it only if "
            "every person has one record and producers are idempotent"
        )


def left_open(policy: Policy) -> list[str]:
    """Return which attack each choice of the policy leaves open, in at most ten sentences.

    Each concerns a point of SECURITY.md, and a choice that the policy can make otherwise.
    """
    found = (
        *_open_values(policy),
        *(_open_to_followers(policy), _open_to_guesses(policy), _open_to_order(policy)),
        *_open_categories(policy),
        *(_open_to_missing(policy), _open_to_means(policy)),
    )
    return [sentence for sentence in found if sentence]


def least_records(levels: Sequence[Sequence[float]], t: float, most: int) -> int | None:
    """Return a number of records below which no cluster is within t of a reference; None if it is above ``most``.

    ``levels`` has the shares of the nodes of each level of a taxonomy, or of the values alone. With a taxonomy, the
    distance is at least the mean of those over its levels; without one, the number is exact.

    >>> least_records([[0.5, 0.3, 0.2]], 0.05, 100)
    4
    """
    for n in range(1, most + 1):
        if sum(_least_distance(shares, n) for shares in levels) / len(levels) <= t + _ROUNDING:
            return n
    return None


def _diversity_of(diversity: Diversity, k: int) -> str:
    l = f"l = {diversity.l:g}"  # noqa: E741 - of l-diversity
    if diversity.kind == "entropy":
        return f"entropy l-diversity, {l}: the entropy of a cluster's values is at least log({diversity.l:g})"
    if diversity.kind == "recursive":
        return f"recursive (c, l)-diversity, c = {diversity.c:g}, {l}"
    # p-sensitive k-anonymity is defined for p up to k only.
    name = f" (with k = {k} also called p-sensitive k-anonymity, p = {diversity.l:g})"
    return f"distinct l-diversity, {l}{name if diversity.l <= k else ''}"


def _closeness_of(attribute: Attribute) -> str:
    reference = attribute.reference
    source = "the values of the table" if reference is None else f"a reference of {len(reference.texts)} values"
    return f"{attribute.name} against {source}, where {_DISTANCES[attribute.distance]}"


def _names(attributes: Iterable[Attribute]) -> str:
    return ", ".join(f"attributes.{attribute.name}" for attribute in attributes)


# ---------------------------------------------------------------- attacks that stay possible


def _open_to_order(policy: Policy) -> str:
    stream = policy.stream
    if stream is None:
        return "table.keep_order: the number of a row shows whose it is" if policy.keep_order else ""
    if stream.reveal_order:
        return "stream.reveal_order: who knows when the record of a person arrived knows its row"
    if stream.is_ordered:
        return (
            "stream.release ordered: the place of a row shows when a record of its cluster arrived, and a cluster of "
            "which a part is published shows fewer than k people"
        )
    is_pulled = policy.position > 0 or policy.target_span is not None
    choice = f"stream.delta {stream.delta}{', steering.position' if is_pulled else ''}"
    if stream.rule == "block":
        return f"{choice}: who knows when the record of a person arrived knows which clusters were released together"
    return (
        f"{choice}: who knows when the record of a person arrived can {'often tell' if is_pulled else 'guess'} its "
        "cluster, because each is released when its oldest record is due"
    )


def _open_to_followers(policy: Policy) -> str:
    if policy.subject is None:
        return "subject every_record: a record that is sent k times is a cluster, and publishes its own values"
    quota = policy.per_subject
    if quota is None:
        return (
            "privacy.per_subject (not set): a person with several records is in several clusters, and a value that "
            "stays the same shows which rows are the person's"
        )
    return (
        f"privacy.per_subject: up to {quota.max} of a person's records are released from each {quota.window} offsets "
        "of a partition, and a value that stays the same shows which rows these are"
    )


def _open_to_guesses(policy: Policy) -> str:
    return (
        f"privacy.k {policy.k}, max_share {policy.max_share:g}: who knows the cluster of a person names one of "
        f"the person's rows with a chance of 1 in {policy.k}, or up to {policy.max_share:g} if the person has many; "
        "who knows the values of all others in it computes those of the last"
    )


def _open_values(policy: Policy) -> Iterator[str]:
    bare = [attribute for attribute in policy.confidential if attribute not in policy.protected]
    if bare:
        yield f"{_listed(bare)}: all people of a cluster can have the same value, which then is known of each"
    if policy.protected:
        suppressed = "" if policy.stream is None else ", and a suppressed record,"
        yield (
            f"{_listed(policy.protected)} ({', '.join(policy.value_limits)}): {_open_guess(policy)}; a member that is "
            f"far from the others of its cluster{suppressed} shows more"
        )
    if policy.unchanged_fields:
        yield (
            f"{_listed(policy.unchanged_fields)}: published unchanged; who knows a value of a person finds all rows "
            "that have it, and a rare value is in one row"
        )


def _open_guess(policy: Policy) -> str:
    """Return how often the value of a person is guessed right by the limits of values alone."""
    if policy.max_value_share is not None and policy.max_value_share < 1:
        return f"a guessed value is right for up to {policy.max_value_share:g} of the people of a cluster"
    if policy.t is not None:
        more = "by more than" if any(one.distance != "equal" for one in policy.protected) else "by up to"
        return f"the share of a value in a cluster can exceed that in the reference {more} {policy.t:g}"
    return "most people of a cluster can have the same value"


def _open_categories(policy: Policy) -> Iterator[str]:
    members = [a for a in policy.quasi_identifiers if SCALE_RULES[a.scale].member_published(a)]
    if members:
        yield f"{_listed(members)}: the published category is that of a member, perhaps of only one"
    trees = [a for a in policy.quasi_identifiers if a.taxonomy is not None and a.publish == "ancestor"]
    if trees:
        unknown = "; a value that the taxonomy lacks is published as it is" if _may_be_unknown(trees) else ""
        yield (
            f"{_listed(trees)}: a published leaf is the value of all members, and a published group says that they "
            f"have several of its branches{unknown}"
        )


def _may_be_unknown(trees: Iterable[Attribute]) -> bool:
    return any(attribute.unknown == "root" for attribute in trees)


def _open_to_missing(policy: Policy) -> str:
    missing = [attribute for attribute in policy.quasi_identifiers if attribute.may_be_missing]
    return f"{_listed(missing)}: null shows that at least half of a cluster have no value" if missing else ""


def _open_to_means(policy: Policy) -> str:
    found = [(a.name, words) for a in policy.quasi_identifiers if (words := _fine_mean(a, table=policy.stream is None))]
    if not found:
        return ""
    listed = ", ".join(f"{name} ({words})" for name, words in found)
    return f"{listed}: a value far above all others can be worked out from the mean of its cluster"


def _fine_mean(attribute: Attribute, *, table: bool) -> str:
    """Return why a mean shows much of single values; nothing if bounds and steps limit it, or it is no mean."""
    if attribute.scale is Scale.TIME:
        return "" if attribute.time_step.is_date else "finer than a day"
    if attribute.scale is not Scale.NUMERIC:
        return ""
    reasons = ["no bounds"] if attribute.bounds is None else []
    return ", ".join([*reasons, *(["exact mean"] if attribute.publication_step(table=table) == 0 else [])])


def _listed(attributes: Iterable[Attribute]) -> str:
    return ", ".join(attribute.name for attribute in attributes)


# ---------------------------------------------------------------- confidential attributes

MOST_RECORDS = 2000
"""Largest cluster whose distance from a reference is computed in advance."""
_ROUNDING = 1e-9


def _advise_on_confidential(policy: Policy) -> Iterator[str]:
    if policy.confidential and not policy.protects_values:
        yield (
            f"{_names(policy.confidential)}: k alone does not protect a confidential value, because all records of a "
            "cluster can have the same one; shoal verify measures in how many clusters they do "
            "(single_value_share.NAME), and of how many records (single_value_records.NAME). Set privacy.l, privacy.t "
            "or privacy.max_value_share, or accept this"
        )
    if not policy.protects_values:
        return
    yield from _advise_on_diversity(policy)
    yield from _advise_on_values(policy)
    for attribute in policy.protected:
        if policy.t is not None and attribute.reference is not None:
            yield from _advise_on_reference(policy, policy.t, attribute, attribute.reference)
    if unprotected := _names(attribute for attribute in policy.confidential if attribute not in policy.protected):
        yield (
            f"{unprotected}: not protected, because other attributes have protect: true; all people of a cluster can "
            "have the same value"
        )


def _advise_on_diversity(policy: Policy) -> Iterator[str]:
    diversity, share = policy.diversity, policy.max_value_share
    if diversity is not None and diversity.kind == "distinct" and share is not None and share >= 1:
        yield (
            "privacy.max_value_share: 1 sets no limit, and distinct l alone is weak: all people of a cluster but "
            "l - 1 can have one value, and the size of a cluster or a suppressed record can show which ones do; leave "
            "it out (0.5), or give a share below 1"
        )
    if share is not None and share * policy.k < 1:
        yield (
            "privacy.max_value_share: below 1/k, so that no cluster of k records has it; clusters have at least "
            f"{math.ceil(1 / share)} records, which costs precision"
        )
    if diversity is not None and diversity.l > policy.k:
        yield (
            "privacy.l: above k, so that no cluster of k records has it; clusters have at least "
            f"{math.ceil(diversity.l)} records, which costs precision"
        )
    if policy.dependence and diversity is not None:
        yield (
            "steering.dependence: draws records with similar confidential values together, and privacy.l keeps equal "
            "ones apart; clusters grow and more records are suppressed than with one of the two"
        )


def _advise_on_values(policy: Policy) -> Iterator[str]:
    """Yield advice on what counts as one value."""
    numbers = _names(a for a in policy.protected if a.distance == "ordered" and not a.order)
    if numbers and policy.t is None:
        yield (
            f"{numbers}: privacy.l and privacy.max_value_share count different numbers, however near they are: "
            "50000 and 50001 are two values; privacy.t compares how they are distributed"
        )
    if whole := _names(attribute for attribute in policy.protected if attribute.type == "json"):
        yield (
            f"{whole}: an object or a list is one value, so two that differ in any part are different values; "
            "declare the part to be protected as an attribute of its own"
        )


def _advise_on_reference(policy: Policy, t: float, attribute: Attribute, reference: Reference) -> Iterator[str]:
    """Yield advice if a taxonomy lacks values of the reference, or if t, not k, sets the size of clusters."""
    place, leaves = f"attributes.{attribute.name}", _leaves(attribute)
    lacking = sum(text is not None and fold_text(text, attribute.type) not in leaves for text in reference.texts)
    if attribute.taxonomy is not None and lacking:
        yield (
            f"{place}: {lacking} values of its reference are not in its taxonomy, so each is as far as possible from "
            "all others; add them to the taxonomy, or correct their spelling"
        )
    if attribute.distance not in {"equal", "hierarchical"}:
        return
    most = MOST_RECORDS if policy.stream is None else min(policy.stream.delta + 1, MOST_RECORDS)
    least = least_records(_shares_by_level(attribute, reference), t, most)
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


def _leaves(attribute: Attribute) -> dict[object, int]:
    """Return the place of each leaf of the taxonomy by its folded text: 1 and 1.0 are one value."""
    leaves = {} if attribute.taxonomy is None else attribute.taxonomy.leaves
    return {fold_text(text, attribute.type): place for text, place in leaves.items()}


def _shares_by_level(attribute: Attribute, reference: Reference) -> list[list[float]]:
    """Return the shares of the nodes of each level of the taxonomy; without one, those of the values."""
    taxonomy = attribute.taxonomy
    if taxonomy is None:
        return [list(reference.shares)]
    levels: list[dict[object, float]] = [{} for _ in range(taxonomy.levels)]
    leaves = _leaves(attribute)
    for text, share in zip(reference.texts, reference.shares, strict=True):
        leaf = leaves.get(fold_text(text, attribute.type))
        path = [(text,)] * taxonomy.levels if leaf is None else taxonomy.paths[leaf]
        for level, node in zip(levels, path, strict=True):
            level[node] = level.get(node, 0.0) + share
    return [list(level.values()) for level in levels]


def _least_distance(shares: Sequence[float], n: int) -> float:
    """Return the distance of the nearest cluster of n records, if all values are equally far from each other."""
    exact = [share * n for share in shares]
    whole = [math.floor(count + _ROUNDING) for count in exact]
    rests = sorted((count - floor for count, floor in zip(exact, whole, strict=True)), reverse=True)
    return 1 - (sum(whole) + sum(max(rest, 0.0) for rest in rests[: n - sum(whole)])) / n


# ---------------------------------------------------------------- other attributes

_CODE_WORDS = {
    *("account", "code", "guid", "hash", "iban", "id", "imei", "key", "mac", "no", "nr", "num", "number", "pseudonym"),
    *("serial", "ssn", "token", "uuid"),
}
"""Words in the name of a field whose values are codes, not names of people."""
MANY_LEAVES = 20
"""From this number of categories on, two random records rarely have the same one."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _advise_on_fields(policy: Policy) -> Iterator[str]:
    for attribute in policy.attributes:
        if "." in attribute.name and attribute.path == (attribute.name,):
            yield (
                f"attributes.{attribute.name}: the name of one field, dots included; if it is a field inside an "
                f"object, say so with from: value.{attribute.name}"
            )
    if whole := _names(attribute for attribute in policy.confidential if attribute.type == "json"):
        yield (
            f"{whole}: published whole, with every field inside it; names, dates and numbers in there can identify "
            "people, so declare single fields by their paths where that is enough"
        )


def _advise_on_missing(policy: Policy) -> Iterator[str]:
    if policy.missing_values != ("",) and not any(attribute.may_be_missing for attribute in policy.clustered):
        yield (
            "missing_values: a record with one of them in a quasi-identifier is quarantined; set missing: group at the "
            "attributes that may lack a value, to release such records too"
        )
    categories = _names(a for a in policy.clustered if not a.has_moments)
    if "" not in policy.missing_values and categories:
        yield (
            f'missing_values: does not contain "", so an empty text or cell is no missing value of {categories}: it is '
            'a category (nominal) or invalid (ordinal); add "" to the list'
        )


def _advise_on_categories(policy: Policy) -> Iterator[str]:
    members = {a: SCALE_RULES[a.scale].member_published(a) for a in policy.quasi_identifiers}
    if real := _names(a for a, words in members.items() if words):
        which = " or ".join(dict.fromkeys(filter(None, members.values())))
        yield (
            f"{real}: a cluster publishes a category that one of its people has ({which}), not a mean of all: "
            "it shows that such a person is there. A nominal attribute with a taxonomy and publish: ancestor "
            "publishes what all have in common"
        )
    for attribute in policy.clustered:
        taxonomy = attribute.taxonomy
        if taxonomy is not None and len(taxonomy.header) == taxonomy.levels and taxonomy.header[0] != attribute.name:
            yield (
                f"attributes.{attribute.name}: the first line of its taxonomy is taken as the header. If it is a leaf, "
                "add a header; if it is none, give its first cell the name of the attribute, or all rows one last name"
            )
        if taxonomy is not None and taxonomy.left_out:
            yield (
                f"attributes.{attribute.name}: {taxonomy.left_out} of its leaves are texts of missing_values, and left "
                "out of its taxonomy: such a value is missing"
            )
        if taxonomy is not None and taxonomy.levels == 1 and len(taxonomy.paths) > MANY_LEAVES:
            yield (
                f"attributes.{attribute.name}: its {len(taxonomy.paths)} categories are all equally far from each "
                "other, so most clusters can publish only the root or the most frequent one; a taxonomy with groups of "
                "categories loses less"
            )


def _may_hold_names(subject: Attribute) -> bool:
    """Whether a subject may be the name of a person: a text in the value whose field is not called a code."""
    if subject.normalize is not None or subject.type not in {"string", "any"}:
        return False
    words = [word.lower() for word in _WORD.findall(subject.name)]
    is_code = not words or words[-1].endswith("id") or not _CODE_WORDS.isdisjoint(words)
    return subject.source.part is MessagePart.VALUE and not is_code
