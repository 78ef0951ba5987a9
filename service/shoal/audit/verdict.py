"""The result of an audit. It holds counts and numbers of clusters, rows and records, and never a value or a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Status: TypeAlias = Literal["holds", "broken", "not examined"]
MAX_PLACES = 10  # failed cases that a check lists
_SMALLEST_FIXED = 0.001  # smaller numbers are printed with two significant digits, others with up to four decimals


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name, claim : str
        Its name in the JSON verdict, and what it claims of the release.
    status : {"holds", "broken", "not examined"}
        "broken" if any case failed.
    examined, failed : int
        Number of cases.
    worst : float or None
        The examined value that is nearest to the limit or farthest beyond it, if the check has such a value.
    unit : str
        What a case is: a row, a cluster, a record, a reference, a window or a field.
    places : tuple of int or str
        Where the first failed cases are: numbers of rows, clusters, records or references, or names of fields.
    note : str
        Why it was not examined, or what limits its result.
    lines : tuple of int
        Lines of the numbered places in their file, from 1, a CSV header included; empty if they have none.
    """

    name: str
    claim: str
    status: Status
    examined: int
    failed: int
    worst: float | None = None
    unit: str = "row"
    places: tuple[int | str, ...] = ()
    note: str = ""
    lines: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; ``lines`` only if there are any."""
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields}
        return {name: value for name, value in plain.items() if name != "lines" or value}


@dataclass(slots=True)
class CheckCounter:
    """Counts the cases of one check while it runs; `result` returns the `Check`."""

    name: str
    claim: str
    unit: str = "row"
    examined: int = 0
    failed: int = 0
    worst: float | None = None
    places: list[int | str] = field(default_factory=list)
    note: str = ""
    skip_reason: str = ""

    def expect(self, condition: bool, place: int | str) -> None:  # noqa: FBT001 - reads like an assertion
        """Count one case; ``place`` names its row, cluster, record, reference or field if the condition is false."""
        self.examined += 1
        if not condition:
            self.fail(place)

    def expect_each(self, conditions: Iterable[bool], places: Iterable[int | str]) -> None:
        """Count one case for each condition, with its place."""
        for condition, place in zip(conditions, places, strict=True):
            self.expect(condition, place)

    def expect_all(self, conditions: npt.NDArray[np.bool_], place_of: Callable[[int], int | str]) -> None:
        """Count one case for each condition; ``place_of``: from the index of a case to its place."""
        self.examined += len(conditions)
        for index in np.flatnonzero(~conditions).tolist():
            self.fail(place_of(index))

    def fail(self, place: int | str) -> None:
        """Count one failure and keep the first few places."""
        self.failed += 1
        if len(self.places) < MAX_PLACES and place not in self.places:
            self.places.append(place)

    def skip(self, reason: str) -> None:
        """Record why the check cannot be examined. Failures counted before or after still break it."""
        self.skip_reason = reason

    def result(self) -> Check:
        """Return the check. One without any case is not examined: it does not hold."""
        reason = self.skip_reason or ("" if self.examined else "there was nothing to examine")
        status: Status = "broken" if self.failed else "not examined" if reason else "holds"
        note = reason if status == "not examined" else self.note
        return Check(
            self.name, self.claim, status, self.examined, self.failed, self.worst, self.unit, tuple(self.places), note
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A warning, or the cause of broken checks. No value of a record is in it.

    Attributes
    ----------
    code : str
        What was found, for programs.
    text, remedy : str
        The same for people, and what to do.
    figures : mapping of str to number
        What was counted.
    fields : tuple of str
        Names of the fields that it is about.
    """

    code: str
    text: str
    remedy: str = ""
    figures: Mapping[str, float | int] = field(default_factory=dict)
    fields: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = {"code": self.code, "text": self.text, "remedy": self.remedy}
        return plain | {"figures": dict(self.figures), "fields": list(self.fields)}

    def line(self) -> str:
        """Return text and remedy."""
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


@dataclass(frozen=True, slots=True)
class Worth:
    """What a release is worth; None where the files do not show it.

    Attributes
    ----------
    k, k_promised : int or None
        Fewest people in a cluster, and what the policy promises.
    people, rows, records : int or None
        People of whom a record was released, released rows, records of the original.
    left_out : float or None
        Share of the records that were suppressed or refused.
    mean_loss : float or None
        Unweighted mean of the losses of the quasi-identifiers.
    worst_attribute, worst_loss : str, float or None
        The quasi-identifier that lost most.
    l, t : float or None
        What the policy promises, if it does; the checks ``diversity`` and ``closeness`` have what was reached.
    """

    k_promised: int
    k: int | None = None
    people: int | None = None
    rows: int = 0
    records: int = 0
    left_out: float | None = None
    mean_loss: float | None = None
    worst_attribute: str | None = None
    worst_loss: float | None = None
    l: float | None = None  # noqa: E741 - the name of the field
    t: float | None = None

    def parts(self, reached: Mapping[str, float | None], show: Callable[[int], str] = str) -> list[str]:
        """Return what a person reads; ``reached``: the worst figures of the checks; ``show``: writes other counts."""
        k = "unknown" if self.k is None else str(self.k)
        people = "" if self.people is None else f", of {counted(self.people, 'person', 'people', show)}"
        found = [f"k is {k}, promised {self.k_promised}"]
        # If all were released, their rows show how many there are.
        records = counted(self.records, "record", show=str if self.records == self.rows else show)
        found.append(f"{self.rows} of {records} released{people}")
        if self.left_out is not None:
            found.append(f"{percent(self.left_out)} suppressed or refused")
        if self.mean_loss is not None and self.worst_loss is not None:
            worst = f" (worst: {self.worst_attribute}, {percent(self.worst_loss)})"
            found.append(f"mean loss {percent(self.mean_loss)}{worst}")
        for name, promised, check in (("l", self.l, "diversity"), ("t", self.t, "closeness")):
            if promised is not None:
                found.append(f"{name} is {_readable(reached.get(check))}, promised {_readable(promised)}")
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an audit.

    Attributes
    ----------
    checks : tuple of Check
        In the order in which they are printed.
    counts : dict
        Numbers of ``records``, of ``dropped`` messages (only if the policy drops some), of ``usable`` and ``unusable``
        records, of ``rows``, of ``clusters``, of records that were or may have been ``suppressed``, of records that are
        ``claimed``, and of records that may still be ``held`` (None if unknown). Records that are claimed to be
        suppressed count as both.
    measures : dict
        Figures that are reported and not checked.
    warnings : tuple of Finding
        What does not break the release, and a person should know; what weighs most is first.
    undecided : tuple of str
        Why the result is undecided, and which input would decide it.
    not_examined : tuple of str
        Questions that the inputs cannot answer.
    claimed : tuple of str
        What only the run states: the files show that it is possible, and not that it is so.
    partial : bool
        Whether only a part was judged: unpublished records were not examined.
    early_decisions : int or None
        Fewest decisions before delta that the claimed suppressions need: flushes, time limits, or a limit of the offset
        metadata, each of one partition. 0 if none is claimed; None if it is not stated which records were suppressed,
        or if unpublished records were not examined.
    causes : tuple of Finding
        Why checks are broken, where one fault of the files breaks many.
    worth : Worth or None
        What the release is worth.
    """

    checks: tuple[Check, ...]
    counts: dict[str, int | None]
    measures: dict[str, float | int | None]
    warnings: tuple[Finding, ...] = ()
    undecided: tuple[str, ...] = ()
    not_examined: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()
    partial: bool = False
    early_decisions: int | None = None
    causes: tuple[Finding, ...] = ()
    worth: Worth | None = None

    @property
    def outcome(self) -> Literal["holds", "broken", "undecided"]:
        """The result in one word. A broken check takes precedence over an undecided question."""
        if any(check.status == "broken" for check in self.checks):
            return "broken"
        return "undecided" if self.undecided else "holds"

    @property
    def verified(self) -> bool:
        """Whether the outcome is "holds"."""
        return self.outcome == "holds"

    @property
    def exit_code(self) -> int:
        """Exit code of `shoal verify`: 0 for "holds", 1 for "broken", 2 for "undecided"."""
        return {"holds": 0, "broken": 1, "undecided": 2}[self.outcome]

    def __getitem__(self, name: str) -> Check:
        """Return the check of this name."""
        return next(check for check in self.checks if check.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "outcome": self.outcome,
            "verified": self.verified,
            "exit_code": self.exit_code,
            "worth": None if self.worth is None else asdict(self.worth),
            "causes": [cause.as_dict() for cause in self.causes],
            "counts": dict(self.counts),
            "checks": [check.as_dict() for check in self.checks],
            "measures": dict(self.measures),
            "warnings": [warning.as_dict() for warning in self.warnings],
            "undecided": list(self.undecided),
            "not_examined": list(self.not_examined),
            "claimed": list(self.claimed),
            "early_decisions": self.early_decisions,
            "partial": self.partial,
        }

    def __str__(self) -> str:
        """Return `text`."""
        return self.text(more="text(verbose=True)")

    def text(self, *, verbose: bool = False, more: str = "-v") -> str:
        """Return the verdict as lines to be printed, with rounded numbers: its worth, warnings, then checks.

        Checks that hold are printed only if ``verbose``, and so are broken ones that have a cause. ``more`` is what
        shows them.
        """
        hidden: set[Status] = set() if verbose else {"holds", "broken"} if self.causes else {"holds"}
        broken = [check.name for check in self.checks if check.status == "broken"]
        lines = [self.headline()]
        lines += [f"  cause: {cause.line()}" for cause in self.causes]
        lines += [f"  broken as well: {', '.join(broken)} ({more} shows the cases)"] if "broken" in hidden else []
        lines += [f"  warning: {warning.line()}" for warning in self.warnings]
        lines += [_check_line(check) for check in self.checks if check.status not in hidden]
        lines += [f"  claimed: {statement}" for statement in self.claimed]
        lines += [f"  undecided: {question}" for question in self.undecided]
        lines += [f"  not examined: {question}" for question in self.not_examined]
        if verbose:
            lines.append("  counted: " + ", ".join(_count_text(name, count) for name, count in self.counts.items()))
            lines += [f"  measured: {name} = {_readable(value)}" for name, value in self.measures.items()]
        else:
            number = sum(check.status in hidden for check in self.checks)
            lines.append(f"  {more} shows {counted(number, 'more check')}, the counts and the measures")
        return "\n".join(lines)

    def headline(self, show: Callable[[int], str] = str) -> str:
        """Return in one sentence the outcome, what the release is worth, and how many checks hold.

        ``show`` writes the counts of records and people that the released rows do not show.
        """
        statuses = [check.status for check in self.checks]
        parts = [] if self.worth is None else self.worth.parts({check.name: check.worst for check in self.checks}, show)
        examined = len(statuses) - statuses.count("not examined")
        parts.append(f"{statuses.count('holds')} of {counted(examined, 'check')} hold")
        parts += [f"{show(number)} {name}" for name in ("claimed", "held") if (number := self.counts.get(name))]
        if self.warnings:
            parts.append(counted(len(self.warnings), "warning"))
        return f"{self.outcome}{' (a part)' if self.partial else ''}: {'; '.join(parts)}"


def counted(count: int, noun: str, nouns: str = "", show: Callable[[int], str] = str) -> str:
    """Return a number, as ``show`` writes it, with its noun; 1 with the singular."""
    shown = show(count)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {nouns or f'{noun}s'}"


def percent(share: float) -> str:
    """Return a share in per cent: below 10 with two significant digits, else as a whole number."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 or value == round(value) else f"{value:.2g} %"  # noqa: PLR2004


def _count_text(name: str, count: int | None) -> str:
    return f"{_readable(count)} {name.removesuffix('s') if count == 1 else name}"


def _check_line(check: Check) -> str:
    line = f"  {check.status.upper() if check.failed else check.status}: {check.claim}"
    if check.status != "not examined":
        failed = f", {check.failed} failed" if check.failed else ""
        worst = f", worst {_readable(check.worst)}" if check.worst is not None else ""
        line += f" ({check.examined} examined{failed}{worst})"
    if check.places:
        more = ", ..." if check.failed > len(check.places) else ""
        line += f"; {_places_text(check)}{more}"
    return line + (f"; {check.note}" if check.note else "")


def _places_text(check: Check) -> str:
    """Return where the listed cases are: their lines in the file if known, else their numbers or names."""
    if not check.lines:
        return f"{check.unit} {', '.join(map(str, check.places))}"
    named = [place for place in check.places if isinstance(place, str)]
    return ", ".join([*named, f"line {', '.join(map(str, check.lines))}"])


def _readable(value: float | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, int):
        return str(value)
    if 0 < abs(value) < _SMALLEST_FIXED:
        return f"{value:.2g}"
    return f"{value:.4f}".rstrip("0").rstrip(".")
