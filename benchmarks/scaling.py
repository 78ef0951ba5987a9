"""The ways to scale distances that ADR 26 weighed for mixed streams, each beside tables of delta records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from balance import Losses, by_pipe, by_tables, geometric, losses_of
from mixed_streams import MixedStream, mixed_streams
from part import Part
from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.policy import Policy
from shoal.scales import Scaling, embedding
from shoal.streams import pipeline, spreads
from shoal.streams.spreads import Spreads

__all__ = ["CANDIDATES", "scaled_by", "scaling_part"]

BY_BOUNDS = {"steering": {"scaling": "bounds"}}


class _FromTheBounds(Spreads):
    """Bounds scale until enough clusters are published."""

    def scaling_of_held(self, values: Float64Matrix) -> Scaling:
        del values
        return Scaling(self._initial, self._middles)


class _AlwaysHeld(Spreads):
    """The spreads of the held records scale each decision, as in a table of them."""

    @property
    def are_learned(self) -> bool:
        return False


class _ByLosses(Spreads):
    """Weights follow the losses of released clusters: attributes that lose more than the mean count for more."""

    def partial_fit(self, published: Float64Matrix, sizes: Int64Vector) -> None:
        super().partial_fit(published, sizes)
        between = np.nanvar(published[:, self.columns], axis=0) if len(published) > 1 else np.zeros(len(self.columns))
        known = getattr(self, "between", between)
        self.between = known + 0.05 * (between - known)

    def update_scaling(self) -> bool:
        changed = super().update_scaling()
        if changed:
            kept = np.clip(self.between / np.maximum(self._learned.variances, 1e-300), 0.05, 1.0)
            widths = self._scaling.widths * np.sqrt(kept / kept.mean())
            self._scaling = Scaling(widths, self._scaling.centers)
        return changed


class _True(Spreads):
    """The standard deviations of the whole stream, which no stream knows."""

    widths: Float64Vector
    centers: Float64Vector

    @property
    def scaling(self) -> Scaling:
        return Scaling(self.widths, self.centers)

    def scaling_of_held(self, values: Float64Matrix) -> Scaling:
        del values
        return self.scaling

    def update_scaling(self) -> bool:
        return False


def _true_spreads(stream: MixedStream, policy: Policy) -> type[Spreads]:
    """Return the class of the true deviations of a stream; a clock's are those within delta records, and count half."""
    values = JsonDecoder(policy, encoder=JsonEncoder(policy)).decode(stream.lines()).values
    windows = np.arange(len(values)) // (stream.delta + 1)
    widths, centers = [], []
    for column, attribute in enumerate(policy.quasi_identifiers):
        if attribute.is_nominal:
            continue
        is_known = ~np.isnan(values[:, column])
        known, of_window, weight = values[is_known, column], windows[is_known], 1.0
        centers.append(float(known.mean()))
        if attribute.name in stream.clocks:
            known = known - (np.bincount(of_window, known) / np.maximum(np.bincount(of_window), 1))[of_window]
            weight = spreads.CLOCK_WEIGHT
        widths.append(spreads.UNIFORM * float(known.std()) / weight)
    return type("True", (_True,), {"widths": np.array(widths), "centers": np.array(centers)})


@dataclass(frozen=True)
class _Candidate:
    """A way to scale: constants of the engine in place of its own, another class, or another policy."""

    name: str
    constants: dict[tuple[Any, str], float] = field(default_factory=dict)
    kind: Callable[[MixedStream, Policy], type[Spreads]] = lambda _stream, _policy: Spreads
    wider: float = 1.0
    sections: dict[str, Any] = field(default_factory=dict)


def _own(kind: type[Spreads]) -> Callable[[MixedStream, Policy], type[Spreads]]:
    return lambda _stream, _policy: kind


CANDIDATES = (
    _Candidate("as it is"),
    _Candidate("as it is, bounds ten times too wide", wider=10.0),
    _Candidate("by bounds", sections=BY_BOUNDS),
    _Candidate("by bounds ten times too wide", wider=10.0, sections=BY_BOUNDS),
    _Candidate("true standard deviations", kind=_true_spreads),
    _Candidate("bounds until 32 clusters are published", kind=_own(_FromTheBounds)),
    _Candidate("the same, bounds ten times too wide", kind=_own(_FromTheBounds), wider=10.0),
    _Candidate("always the spreads of held records", kind=_own(_AlwaysHeld)),
    _Candidate("weights that follow the losses of clusters", kind=_own(_ByLosses)),
    *(
        _Candidate(f"two categories {apart:g} variances apart", {(embedding, "VARIANCES_APART"): apart})
        for apart in (0.5, 1.0, 4.0)
    ),
    *(
        _Candidate(f"a missing number {apart:g} variances away", {(embedding, "MISSING_APART"): apart})
        for apart in (0.25, 2.0)
    ),
    *(_Candidate(f"a clock counts {weight:g}", {(spreads, "CLOCK_WEIGHT"): weight}) for weight in (0.01, 0.25, 1.0)),
    *(
        _Candidate(f"deviations up to {most:g} spreads", {(spreads, "MAX_DEVIATION"): most})
        for most in (2.5, 4.0, 100.0)
    ),
)


@contextmanager
def scaled_by(candidate: _Candidate, kind: type[Spreads]) -> Iterator[None]:
    """Let the engine scale as a candidate does."""
    before = [(module, name, getattr(module, name)) for module, name in candidate.constants]
    for (module, name), value in candidate.constants.items():
        setattr(module, name, value)
    try:
        with patch.object(pipeline, "Spreads", kind):
            yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _released(candidate: _Candidate, stream: MixedStream) -> Losses:
    policy = stream.policy(candidate.wider, **candidate.sections)
    with scaled_by(candidate, candidate.kind(stream, policy)):
        return losses_of(stream, by_pipe(stream, policy))


def scaling_part() -> Part:
    """Measure, and return the lines about the ways to scale."""
    streams = list(mixed_streams())
    tables = [losses_of(stream, by_tables(stream)) for stream in streams]
    lines = [
        "## Ways to scale distances",
        "",
        f"The first {len(streams)} streams of the part above: geometric mean of the loss beside tables of δ records,",
        "and the worst stream; *after trend* as above. Each line changes one thing of the first one",
        "([ADR 26](../adr/0026-learned-spreads.md)).",
        "",
        "| scaling | loss | worst | after trend |",
        "|---|---|---|---|",
    ]
    for candidate in CANDIDATES:
        found = [_released(candidate, stream) for stream in streams]
        ratios = [one.mean / table.mean for one, table in zip(found, tables, strict=True)]
        trends = [one.mean_after_trend / table.mean_after_trend for one, table in zip(found, tables, strict=True)]
        lines.append(f"| {candidate.name} | {geometric(ratios):.3f} | {max(ratios):.2f} | {geometric(trends):.3f} |")
        print(f"scaling: {candidate.name}", file=sys.stderr, flush=True)
    return Part([*lines, ""], [])


if __name__ == "__main__":
    print("\n".join(scaling_part().lines))
