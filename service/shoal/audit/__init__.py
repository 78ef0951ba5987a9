"""The judge: looks at what was released and at what it was made of, and shares no arithmetic with the engine."""

from shoal.audit.check_counter import Check
from shoal.audit.verdict import Verdict
from shoal.audit.verify import verify

__all__ = ["Check", "Verdict", "verify"]
