"""Figures of the page as SVG, the same bytes for the same numbers; readable without colour."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes

from papers.common import LIMIT, PRINTED, Curve, Figure

__all__ = ["draw"]

WIDTH, HEIGHT, ACROSS = 4.6, 3.4, 3
"""Size of a panel, and most panels side by side."""
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
MARKS = ("o", "s", "^", "D", "v")
CROSSES = ("x", "+", "1", "2")
MOST_MARKS = 14
"""Most marks of a line, so that they do not cover it."""


def draw(figure: Figure, folder: Path, prefix: str = "papers-") -> None:
    """Write ``papers-NAME.svg``, or with another prefix."""
    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    mpl.rcParams.update({"svg.hashsalt": "shoal", "svg.fonttype": "none"})  # letters as letters: a tenth of the bytes
    across = min(len(figure.panels), ACROSS if len(figure.panels) != ACROSS + 1 else 2)
    down = -(-len(figure.panels) // across)
    drawn, every = plt.subplots(down, across, figsize=(WIDTH * across, HEIGHT * down), squeeze=False)
    for axes in every.flat[len(figure.panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(every.flat, figure.panels, strict=False):
        ours, printed = count(), count()
        for curve in panel.curves:
            _add(axes, curve, next(printed if curve.kind == PRINTED else ours) if curve.kind != LIMIT else 0)
        axes.set_title(panel.title, fontsize=9)
        axes.set_xlabel(panel.across, fontsize=8)
        axes.set_ylabel(panel.up, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        if any(curve.label for curve in panel.curves):
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.19), "ncols": 3}
            axes.legend(fontsize=6, frameon=False, handlelength=3, **below)
    drawn.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    drawn.savefig(folder / f"{prefix}{figure.name}.svg", metadata={"Date": None})
    plt.close(drawn)


def _add(axes: Axes, curve: Curve, place: int) -> None:
    """Draw one curve, if it has points, with the marks and dashes of its place among those of its kind."""
    if not curve.x:
        return
    if curve.kind == PRINTED:
        cross = CROSSES[place % len(CROSSES)]
        axes.plot(
            curve.x, curve.y, cross, label=curve.label, color="black", markersize=8, markeredgewidth=1.3, zorder=3
        )
    elif curve.kind == LIMIT:
        axes.plot(curve.x, curve.y, ":", label=curve.label, color="grey", linewidth=1)
    else:
        style: dict[str, Any] = {"linestyle": LINES[place % len(LINES)], "linewidth": 1, "label": curve.label}
        style |= {"marker": MARKS[place % len(MARKS)], "markersize": 3, "color": f"C{place % 10}"}
        if curve.high:
            middle = [(low + high) / 2 for low, high in zip(curve.y, curve.high, strict=True)]
            half = [(high - low) / 2 for low, high in zip(curve.y, curve.high, strict=True)]
            axes.errorbar(curve.x, middle, half, capsize=3, **style)
        else:
            axes.plot(curve.x, curve.y, markevery=max(1, -(-len(curve.x) // MOST_MARKS)), **style)
