"""What is protected and how strongly: attributes, guarantees, steering, delays."""

from shoal.policy.choice import RULES, chosen_rule, keeps_dominance
from shoal.policy.dialect import CsvDialect
from shoal.policy.model import Attribute, PerSubject, Policy, Stream
from shoal.policy.rules import LARGEST_DELTA
from shoal.policy.sections import FieldType, KafkaSection, Role, Scale
from shoal.policy.sources import Place, Source

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
