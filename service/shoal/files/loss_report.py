"""The loss of a release in words: the mean, the attribute that loses most, and what would keep more of it.

Numbers have two significant digits: more could reveal a value by a difference. Names of attributes and numbers of
categories are shown, and no value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shoal.pipeline.attribute_loss import MOST_CATEGORIES, mean_loss
from shoal.policy import Attribute, Policy, Scale

__all__ = ["LossReport", "percent"]

NEEDS_REASON, NEEDS_CHANGE = 0.5, 0.8
"""Above these losses, the last line gives a reason, and `shoal check` says what would keep more."""


@dataclass(frozen=True, slots=True)
class LossReport:
    """The loss of a release under a policy.

    Attributes
    ----------
    policy : Policy
    losses : mapping of str to (float or None)
        Loss of each quasi-identifier in its own measure; None if it has none.
    categories : mapping of str to int
        Number of categories of the released records, by nominal attribute.
    clocks : collection of str
        Times of which a trend was removed.
    is_table : bool
        Whether this is the release of a table, which has no delta.
    """

    policy: Policy
    losses: Mapping[str, float | None]
    categories: Mapping[str, int]
    clocks: Collection[str] = ()
    is_table: bool = False

    @property
    def mean(self) -> float | None:
        """Mean of the losses; None if no attribute has one."""
        return mean_loss(self.losses)

    @property
    def worst(self) -> list[tuple[Attribute, float]]:
        """Attributes that have a loss, the largest first."""
        found = [(one, loss) for one in self.policy.quasi_identifiers if (loss := self.losses[one.name]) is not None]
        return sorted(found, key=lambda pair: -pair[1])

    def summary(self) -> str:
        """Return the mean and the worst attribute with the reason; an empty text if no attribute has a loss."""
        if self.mean is None:
            return ""
        attribute, loss = self.worst[0]
        text = f"mean loss {percent(self.mean)}"
        if loss == 0:
            return text
        text += f"; worst {attribute.name} {percent(loss)}"
        if loss <= NEEDS_REASON:
            return text
        if attribute.is_nominal and self._are_many(attribute):
            limit = f"k {self.policy.k}" if self.is_table else f"delta {self.policy.require_stream().delta}"
            return f"{text}: {self._values_of(attribute)}, {limit} keeps few (docs/numbers.md)"
        # Nothing is left of a clock whose published step is wider than a window.
        key = "resolution" if loss >= 1 and attribute.scale is Scale.TIME else "weight"
        return f"{text}: see {key} in docs/policy.md"

    def lines(self) -> list[str]:
        """Return the mean, each attribute, the worst first, and what would keep more of those that lose most."""
        if self.mean is None:
            return ["mean loss: none, because no attribute has one"]
        found = [f"mean loss {percent(self.mean)}"]
        for attribute, loss in self.worst:
            found.append(f"{attribute.name} {percent(loss)}" + self._note_on(attribute))
        found += [
            f"{name}: no loss, because its values do not vary" for name, loss in self.losses.items() if loss is None
        ]
        return found + [self._advice_on(attribute) for attribute, loss in self.worst if loss > NEEDS_CHANGE]

    def _note_on(self, attribute: Attribute) -> str:
        return " of what is left after its trend" if attribute.name in self.clocks else ""

    def _are_many(self, attribute: Attribute) -> bool:
        """Return whether clusters of k records each would need more categories than are held, if they were pure."""
        count = self.categories.get(attribute.name, 0)
        return self.is_table or count * self.policy.k > self.policy.require_stream().delta + 1

    def _values_of(self, attribute: Attribute) -> str:
        count = self.categories.get(attribute.name, 0)
        if count > MOST_CATEGORIES:
            return f"over {MOST_CATEGORIES} values"
        return f"{count} value{'' if count == 1 else 's'}"

    def _advice_on(self, attribute: Attribute) -> str:
        """Return that the policy cannot keep an attribute, and what would help."""
        limits = f"k {self.policy.k}"
        changes = ["a smaller k", "a larger weight"]
        if not self.is_table:
            limits = f"delta {self.policy.require_stream().delta} and {limits}"
            changes.insert(0, "a larger delta")
        if attribute.scale is Scale.TIME:
            changes.append("a finer resolution")
        if attribute.is_nominal and attribute.taxonomy is None:
            changes.append("a taxonomy")
        kept = f"its {self._values_of(attribute)}" if attribute.is_nominal else "it"
        reason = f"{limits} cannot keep {kept}"
        if attribute.is_nominal and not self._are_many(attribute):
            reason = f"{limits} could keep {kept}, but the other attributes outweigh it"
        return f"{attribute.name}: {reason}; what helps: {', '.join(changes)}, or leave it out"


def percent(loss: float) -> str:
    """Return a loss in percent.

    Examples
    --------
    >>> percent(0.2841), percent(0.0), percent(0.00001), percent(0.998), percent(1.216)
    ('28 %', '0 %', 'below 0.01 %', '100 %', '122 %')
    """
    number = 100 * loss
    if 0 < number < 0.01:  # noqa: PLR2004
        return "below 0.01 %"
    return f"{number:.2g} %" if number < 99.5 else f"{number:,.0f} %"  # noqa: PLR2004 - 1e+02 is no percentage
