"""All errors of Shoal. The class decides how an error is handled; its text never holds an attribute value.

ShoalError                      has a stable ``code``, which is also a metric label, and an ``exit_code``
├─ ConfigError                  the process does not start, exit 2
│  ├─ PolicyError                   faults of the policy file, all at once, each with its line
│  └─ ParameterError                k < 2, delta < k - 1, an array of the wrong shape
├─ InputError                   unusable input, exit 2: a file, a format, invalid committed progress
├─ GuaranteeError               the process stops and sends nothing more, exit 1; caught by the command line only
│  ├─ AnonymityViolation            a cluster with too few subjects would be released
│  └─ DelayViolation                a record would be held for more than delta positions
└─ BrokerError                  retried with backoff if ``retriable``, otherwise the process stops, exit 3
   ├─ BrokerUnavailableError        retriable
   └─ FencedError                   retriable: another worker has taken over the partition
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

__all__ = [
    "AnonymityViolation",
    "BrokerError",
    "BrokerUnavailableError",
    "ConfigError",
    "DelayViolation",
    "Fault",
    "FencedError",
    "GuaranteeError",
    "InputError",
    "ParameterError",
    "PolicyError",
    "ShoalError",
]


class ShoalError(Exception):
    """Base class of all errors of Shoal.

    It has no context: the text of the exception that it replaces could quote an attribute value.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.__suppress_context__ = True  # the interpreter's own traceback printer does not read the property below

    @property
    def __context__(self) -> None:
        return None

    @__context__.setter
    def __context__(self, _: object) -> None:
        """Discard the context."""


class ConfigError(ShoalError):
    """The configuration is invalid, so the process does not start."""

    code = "config"
    exit_code = 2


class Fault(NamedTuple):
    """One fault of a policy: path of the field, message, and line (None if it is not known)."""

    path: tuple[str, ...]
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Return line, field and message as one line of text."""
        where = f"line {self.line}: " if self.line is not None else ""
        field = ".".join(self.path)
        return f"{where}{field}: {self.message}" if field else f"{where}{self.message}"


class PolicyError(ConfigError):
    """A policy has faults; ``faults`` holds all of them in the order of their lines."""

    code = "policy"

    def __init__(self, faults: list[Fault], source: str = "policy") -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line or 0)
        self.source = source
        count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
        super().__init__("\n  ".join([f"{source}: {count}", *map(str, self.faults)]))


class ParameterError(ConfigError):
    """A parameter or an array is outside its domain."""

    code = "parameter"


class InputError(ShoalError):
    """The input cannot be used; the message names the location and the remedy."""

    code = "input"
    exit_code = 2


class GuaranteeError(ShoalError):
    """A guarantee would be broken: nothing more is sent and the process stops."""

    code = "guarantee"
    exit_code = 1


class AnonymityViolation(GuaranteeError):  # noqa: N818 - violation is the term of the literature
    """A cluster with fewer than k subjects, or with a subject above its share, would be released."""

    code = "anonymity"


class DelayViolation(GuaranteeError):  # noqa: N818
    """A record would be held for more than delta positions."""

    code = "delay"


class BrokerError(ShoalError):
    """The broker refuses a request, or does not support what the service needs."""

    code = "broker"
    exit_code = 3


class BrokerUnavailableError(BrokerError):
    """The broker cannot be reached at the moment."""

    code = "broker_unavailable"
    retriable = True


class FencedError(BrokerError):
    """Another worker has taken over the partition; this one must discard its state and join the group again."""

    code = "fenced"
    retriable = True
