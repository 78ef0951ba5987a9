"""Advice on a valid policy: settings that are allowed, and that a privacy officer should decide on knowingly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shoal.policy.attribute import Attribute
from shoal.policy.protection_advice import advise_on_confidential
from shoal.policy.resolved import Policy
from shoal.policy.schema import Scale
from shoal.policy.value_source import MessagePart

__all__ = ["advise"]

_CODE_WORDS = {
    *("account", "code", "guid", "hash", "iban", "id", "imei", "key", "mac", "no", "nr", "num", "number", "pseudonym"),
    *("serial", "ssn", "token", "uuid"),
}
"""Words in the name of a field whose values are codes, not names of people."""
MANY_LEAVES = 20
"""From this number of categories on, two random records rarely have the same one."""
SAFE_SHARE = 0.5
"""With a larger share, one person can have more than half of the records of a cluster."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def advise(policy: Policy) -> Iterator[str]:
    """Yield a sentence for each setting to decide on. It names fields of the policy, never a value of a record."""
    unchanged = [f"attributes.{attribute.name}" for attribute in policy.unchanged_fields if attribute.publish_unchanged]
    if unchanged:
        yield (
            f"{', '.join(unchanged)}: published unchanged. Fields with few values, too, can single people out together "
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
    yield from advise_on_confidential(policy)
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


def _advise_on_fields(policy: Policy) -> Iterator[str]:
    """Yield advice on the fields of messages and on missing values."""
    for attribute in policy.attributes:
        if "." in attribute.name and attribute.path == (attribute.name,):
            yield (
                f"attributes.{attribute.name}: the name of one field, dots included; if it is a field inside an "
                f"object, say so with from: value.{attribute.name}"
            )
    whole = [f"attributes.{attribute.name}" for attribute in policy.confidential if attribute.type == "json"]
    if whole:
        yield (
            f"{', '.join(whole)}: published whole, with every field inside it; names, dates and numbers in there can "
            "identify people, so declare single fields by their paths where that is enough"
        )
    missing = [f"attributes.{attribute.name}" for attribute in policy.quasi_identifiers if attribute.may_be_missing]
    if missing and policy.max_share > SAFE_SHARE:
        yield (
            f"{', '.join(missing)}: a cluster publishes a value if more than half of its records have one; with "
            "privacy.max_share above 0.5 these can all be records of one person; give max_share: 0.5 or less"
        )
    if policy.missing_values != ("",) and not any(attribute.may_be_missing for attribute in policy.clustered):
        yield (
            "missing_values: a record with one of them in a quasi-identifier is quarantined; set missing: group at the "
            "attributes that may lack a value, to release such records too"
        )
    categories = [a for a in policy.clustered if a.scale in {Scale.NOMINAL, Scale.ORDINAL}]
    if "" not in policy.missing_values and categories:
        names = ", ".join(f"attributes.{attribute.name}" for attribute in categories)
        yield (
            f'missing_values: does not contain "", so an empty text or cell is no missing value of {names}: it is a '
            'category (nominal) or invalid (ordinal); add "" to the list'
        )


def _advise_on_categories(policy: Policy) -> Iterator[str]:
    """Yield advice on attributes whose values are not numbers."""
    real = [
        f"attributes.{attribute.name}"
        for attribute in policy.quasi_identifiers
        if attribute.scale is Scale.ORDINAL or (attribute.is_nominal and attribute.publish != "ancestor")
    ]
    if real:
        yield (
            f"{', '.join(real)}: a cluster publishes a category that one of its people has (the median or the most "
            "frequent one), not a mean of all: it shows that such a person is there. A nominal attribute with a "
            "taxonomy and publish: ancestor publishes what all have in common"
        )
    for attribute in policy.clustered:
        taxonomy = attribute.taxonomy
        if taxonomy is not None and taxonomy.may_lack_header and taxonomy.header[0] != attribute.name:
            yield (
                f"attributes.{attribute.name}: the first line of its taxonomy is taken as the header. If it is a leaf, "
                "add a header; if it is none, give its first cell the name of the attribute, or all rows one last name"
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
