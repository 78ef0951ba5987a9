"""What is protected and how strongly: attributes, guarantees, steering, delays."""

from shoal.policy.model import Attribute, Policy, Stream
from shoal.policy.sections import FieldType, KafkaSection, Role, Scale

__all__ = ["Attribute", "FieldType", "KafkaSection", "Policy", "Role", "Scale", "Stream"]
