"""The judge: looks at what was released and at what it was made of, and shares no arithmetic with the engine."""

from shoal.audit.judge import verify
from shoal.audit.tally import Check
from shoal.audit.verdict import Verdict

__all__ = ["Check", "Verdict", "verify"]
