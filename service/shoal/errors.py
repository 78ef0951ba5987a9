"""The errors of Shoal. The class decides how an error is handled, and no text contains an attribute value.

ShoalError                      has a stable ``code``, which logs contain, and the ``exit_code`` of the process
├─ ConfigError                  the configuration is invalid: refuse to start, exit 2
│  ├─ PolicyError                   the policy is invalid: reports all faults with their lines
│  └─ ParameterError                a parameter or an array is invalid, such as k < 2 or a wrong shape
├─ InputError                   a file, its format or the committed progress cannot be used: exit 2
├─ GuaranteeError               a guarantee would be violated: stop, send nothing of the block, exit 1; never caught
│  └─ AnonymityViolation            a cluster does not satisfy k or the maximum share
└─ BrokerError                  retry with backoff if ``retriable``, else stop, exit 3
   ├─ BrokerUnavailableError        retriable
   ├─ TopicsChangedError            retriable: a topic was deleted, or has other partitions than at the start
   └─ FencedError                   retriable: another worker owns the partition now
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class ShoalError(Exception):
    """Base class.

    The context of an error is removed, because the exception that caused it may contain a value.
    """

    code: str = "error"
    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False
    brief: str = ""
    """What readiness says of it. Everybody who reaches the port may read that, so it holds no name."""
    may_pass: bool = False
    """Whether it may be gone later, although it looks like a wrong setting: as while credentials are rotated."""

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        self.__suppress_context__ = True  # for code that prints tracebacks without reading the property below

    @property
    def __context__(self) -> None:
        return None

    @__context__.setter
    def __context__(self, _: object) -> None:
        """Ignore the exception."""


class ConfigError(ShoalError):
    """The configuration is invalid."""

    code = "config"
    exit_code = 2


class Fault(NamedTuple):
    """One fault of a policy: path of the field, message, and line (None if unknown)."""

    path: tuple[str, ...]
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Return line, field and message as one line of text."""
        where = f"line {self.line}: " if self.line is not None else ""
        field = ".".join(self.path)
        return f"{where}{field}: {self.message}" if field else f"{where}{self.message}"


class PolicyError(ConfigError):
    """A policy is invalid. ``faults`` contains all its faults, sorted by line."""

    code = "policy"

    def __init__(self, faults: list[Fault], source: str = "policy") -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line or 0)
        count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
        super().__init__("\n  ".join([f"{source}: {count}", *map(str, self.faults)]))


class ParameterError(ConfigError):
    """A parameter or an array is invalid."""

    code = "parameter"


class InputError(ShoalError):
    """The input cannot be used. The message names the location and the remedy."""

    code = "input"
    exit_code = 2


class GuaranteeError(ShoalError):
    """A guarantee would be violated. Nothing of the block is sent, and the process stops."""

    code = "guarantee"
    exit_code = 1


class AnonymityViolation(GuaranteeError):  # noqa: N818 - "violation" is the term of the field
    """A cluster has fewer than k subjects, or one subject exceeds its maximum share."""

    code = "anonymity"


class BrokerError(ShoalError):
    """The broker refused a request, or does not support it."""

    code = "broker"
    exit_code = 3


class BrokerUnavailableError(BrokerError):
    """The broker is not reachable."""

    code = "broker_unavailable"
    retriable = True


class TopicsChangedError(BrokerError):
    """A topic was deleted, or an input has another number of partitions than at the start."""

    code = "topics_changed"
    brief = "a topic was deleted, or the input has new partitions: all topics are checked again"
    retriable = True


class FencedError(BrokerError):
    """Another worker owns the partition now. This one drops its state and joins the group again."""

    code = "fenced"
    retriable = True
