"""What is protected and how strongly: attributes, guarantees, steering, delays."""

from shoal.policy.csv_dialect import CsvDialect
from shoal.policy.resolved import Attribute, PerSubject, Policy, Stream
from shoal.policy.rule_choice import RULES, resolve_rule, supports_dominance
from shoal.policy.schema import FieldType, KafkaSection, Role, Scale
from shoal.policy.validation import MAX_DELTA
from shoal.policy.value_source import MessagePart, Source

__all__ = [
    "MAX_DELTA",
    "RULES",
    "Attribute",
    "CsvDialect",
    "FieldType",
    "KafkaSection",
    "MessagePart",
    "PerSubject",
    "Policy",
    "Role",
    "Scale",
    "Source",
    "Stream",
    "resolve_rule",
    "supports_dominance",
]
