"""Read, check and resolve a policy: the attributes of the records, the privacy requirements and the release rule.

`Policy.load` works in four steps:

1. `loader` parses YAML or TOML and notes the line of every field.
2. `schema` checks the type of each field.
3. `validation` checks the rules that involve more than one field, and collects all faults.
4. `resolved` fills in every default. A resolved policy is never changed.
"""

from shoal.policy.advice import advise
from shoal.policy.attribute import Attribute
from shoal.policy.category_limit import MAX_CATEGORY_BYTES
from shoal.policy.connection import check_connection, check_names, missing_credentials
from shoal.policy.csv_dialect import CsvDialect
from shoal.policy.diversity import Diversity
from shoal.policy.explanation import explain
from shoal.policy.json_number import JSON_NUMBER
from shoal.policy.loader import FieldPath
from shoal.policy.reference import Reference
from shoal.policy.reference_file import REFERENCE_HEADER
from shoal.policy.resolved import Policy, shown_settings
from shoal.policy.resolved_sections import PerSubject, Stream
from shoal.policy.rule_choice import RULES, resolve_rule, supports_dominance
from shoal.policy.schema import EpochUnit, FieldType, KafkaSection, Missing, NormalizeStep, Role, Scale
from shoal.policy.schema_faults import describe_fault, did_you_mean
from shoal.policy.taxonomy import Taxonomy
from shoal.policy.text_checks import BLANKS
from shoal.policy.time_step import TimeStep
from shoal.policy.time_text import FIRST_MS, LAST_MS, MS_PER_UNIT
from shoal.policy.validation import MAX_DELTA
from shoal.policy.value_source import MessagePart, Source

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
    "supports_dominance",
]
