"""Advice on a valid policy: settings that are allowed, and that a privacy officer should decide on knowingly."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shoal.policy.attribute import Attribute
from shoal.policy.resolved import Policy
from shoal.policy.value_source import MessagePart

__all__ = ["advise"]

_CODE_WORDS = {
    *("account", "code", "guid", "hash", "iban", "id", "imei", "key", "mac", "no", "nr", "num", "number", "pseudonym"),
    *("serial", "ssn", "token", "uuid"),
}
"""Words in the name of a field whose values are codes, not names of people."""
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
    dotted = [f"attributes.{a.name}" for a in policy.attributes if "." in a.name and a.source.part is MessagePart.VALUE]
    if dotted:
        yield (
            f"{', '.join(dotted)}: the name of one field, dots included; fields inside objects are not read, so they "
            "must be moved to the top level of the record"
        )
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


def _may_hold_names(subject: Attribute) -> bool:
    """Whether a subject may be the name of a person: a text in the value whose field is not called a code."""
    if subject.normalize is not None or subject.type not in {"string", "any"}:
        return False
    words = [word.lower() for word in _WORD.findall(subject.name)]
    is_code = not words or words[-1].endswith("id") or not _CODE_WORDS.isdisjoint(words)
    return subject.source.part is MessagePart.VALUE and not is_code
