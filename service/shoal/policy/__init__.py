"""Read, check and resolve a policy: the attributes of the records, the privacy requirements and the release rule.

`Policy.load` works in four steps:

1. `loader` parses YAML or TOML and notes the line of every field.
2. `schema` checks the type of each field.
3. `validation` checks the rules that involve more than one field, and collects all faults.
4. `resolved` fills in every default. A resolved policy is never changed.
"""

from shoal.policy.attribute import Attribute, Reference
from shoal.policy.checks import (
    MAX_DELTA,
    RULES,
    check_connection,
    check_names,
    missing_credentials,
    resolve_rule,
)
from shoal.policy.diversity import Diversity
from shoal.policy.document import FieldPath, describe_fault, did_you_mean
from shoal.policy.explanation import advise, explain
from shoal.policy.messages import CsvDialect, MessagePart, Source
from shoal.policy.policy import PerSubject, Policy, Stream, shown_settings
from shoal.policy.references import REFERENCE_HEADER
from shoal.policy.schema import EpochUnit, FieldType, KafkaSection, Missing, NormalizeStep, Role, Scale
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.texts import BLANKS, JSON_NUMBER, MAX_CATEGORY_BYTES
from shoal.policy.times import FIRST_MS, LAST_MS, MS_PER_UNIT, TimeStep

__all__ = [
    "BLANKS",
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
    "advise",
    "check_connection",
    "check_names",
    "describe_fault",
    "did_you_mean",
    "explain",
    "missing_credentials",
    "resolve_rule",
    "shown_settings",
]
