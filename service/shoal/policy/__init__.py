"""What is protected and how strongly: attributes, guarantees, steering, delays."""

from shoal.policy.csv_dialect import CsvDialect
from shoal.policy.resolved import Attribute, PerSubject, Policy, Stream
from shoal.policy.rule_choice import RULES, chosen_rule, keeps_dominance
from shoal.policy.schema import FieldType, KafkaSection, Role, Scale
from shoal.policy.validation import LARGEST_DELTA
from shoal.policy.value_source import Place, Source

__all__ = [
    "LARGEST_DELTA",
    "RULES",
    "Attribute",
    "CsvDialect",
    "FieldType",
    "KafkaSection",
    "PerSubject",
    "Place",
    "Policy",
    "Role",
    "Scale",
    "Source",
    "Stream",
    "chosen_rule",
    "keeps_dominance",
]
