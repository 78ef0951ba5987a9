"""Every error of Shoal; the class decides what happens, the text never holds an attribute value.

ShoalError                      stable ``code``, also the metric label; ``exit_code`` of the process
├─ ConfigError                  refuse to start, exit 2
│  ├─ PolicyError                   the policy file: all faults at once, each with its line
│  └─ ParameterError                k < 2, delta < k - 1, an array of the wrong shape
├─ InputError                   unusable input, exit 2: a file, a format, progress that cannot be trusted
├─ GuaranteeError               stop, send nothing, exit 1; never caught below the command line
│  ├─ AnonymityViolation            a cluster of fewer than k subjects was about to leave
│  └─ DelayViolation                a record would outlive delta
└─ BrokerError                  retry with backoff if ``retriable``, else stop, exit 3
   ├─ BrokerUnavailableError        retriable
   └─ FencedError                   retriable: another instance took this partition over
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
    """Root of the tree.

    It leads to no other exception: whatever it was raised in place of may quote a value.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.__suppress_context__ = True  # for printers that do not ask the property below

    @property
    def __context__(self) -> None:
        return None

    @__context__.setter
    def __context__(self, _: object) -> None:
        """Forget it."""


class ConfigError(ShoalError):
    """What was asked for cannot be started."""

    code = "config"
    exit_code = 2


class Fault(NamedTuple):
    """One fault of a policy: where, in words, and on which line (None when it cannot be told)."""

    path: tuple[str, ...]
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Say line, field and remedy on one line."""
        where = f"line {self.line}: " if self.line is not None else ""
        field = ".".join(self.path)
        return f"{where}{field}: {self.message}" if field else f"{where}{self.message}"


class PolicyError(ConfigError):
    """A policy with at least one fault; ``faults`` holds all of them in order of their lines."""

    code = "policy"

    def __init__(self, faults: list[Fault], source: str = "policy") -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line or 0)
        self.source = source
        count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
        super().__init__("\n  ".join([f"{source}: {count}", *map(str, self.faults)]))


class ParameterError(ConfigError):
    """A parameter or an array outside its domain."""

    code = "parameter"


class InputError(ShoalError):
    """Input that cannot be used as it is: the message names the place and the remedy."""

    code = "input"
    exit_code = 2


class GuaranteeError(ShoalError):
    """The guarantee is about to be broken: nothing is sent, the process stops."""

    code = "guarantee"
    exit_code = 1


class AnonymityViolation(GuaranteeError):  # noqa: N818 - a violation is the field's word
    """A cluster of fewer than k subjects, or with a subject above its share, was about to leave."""

    code = "anonymity"


class DelayViolation(GuaranteeError):  # noqa: N818
    """A record would be held for more than delta positions."""

    code = "delay"


class BrokerError(ShoalError):
    """The broker refused, or cannot do, what the service needs."""

    code = "broker"
    exit_code = 3


class BrokerUnavailableError(BrokerError):
    """The broker cannot be reached now."""

    code = "broker_unavailable"
    retriable = True


class FencedError(BrokerError):
    """Another instance took the partition over; this one must drop its state and join again."""

    code = "fenced"
    retriable = True
