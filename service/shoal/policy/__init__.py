"""Read, check and resolve a policy: the attributes of the records, the privacy requirements and the release rule.

`Policy.load` works in four steps:

1. `document` parses YAML or JSON and notes the line of every field.
2. `schema` checks the type and the range of each field.
3. `checks` checks the rules that involve several fields. All faults are reported at once.
4. `Policy` fills in every default. A resolved policy is never changed.
"""

from shoal.policy.attribute import Attribute, MessagePart, Reference, Source, WrittenNumbers
from shoal.policy.checks import check_connection, check_names, is_follow_up, missing_credentials
from shoal.policy.document import DECIDE
from shoal.policy.explanation import advise, explain, left_open
from shoal.policy.policy import RULES, CsvDialect, Diversity, PerSubject, Policy, Stream, resolve_rule, shown_settings
from shoal.policy.references import REFERENCE_HEADER
from shoal.policy.schema import (
    MAX_DELTA,
    EpochUnit,
    FieldPath,
    FieldType,
    KafkaSection,
    Missing,
    NormalizeStep,
    Role,
    Scale,
    did_you_mean,
    missing_keys,
    validate,
)
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.texts import BLANKS, FIRST_MS, JSON_NUMBER, LAST_MS, MAX_CATEGORY_BYTES, MS_PER_UNIT, TimeStep

__all__ = [
    "BLANKS",
    "DECIDE",
    "FIRST_MS",
    "JSON_NUMBER",
    "LAST_MS",
    "MAX_CATEGORY_BYTES",
    "MAX_DELTA",
    "MS_PER_UNIT",
    "REFERENCE_HEADER",
    "RULES",
    "Attribute",
    "CsvDialect",
    "Diversity",
    "EpochUnit",
    "FieldPath",
    "FieldType",
    "KafkaSection",
    "MessagePart",
    "Missing",
    "NormalizeStep",
    "PerSubject",
    "Policy",
    "Reference",
    "Role",
    "Scale",
    "Source",
    "Stream",
    "Taxonomy",
    "TimeStep",
    "WrittenNumbers",
    "advise",
    "check_connection",
    "check_names",
    "did_you_mean",
    "explain",
    "is_follow_up",
    "left_open",
    "missing_credentials",
    "missing_keys",
    "resolve_rule",
    "shown_settings",
    "validate",
]
