"""Figures of the page as SVG, the same bytes for the same numbers."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from papers.common import Figure

__all__ = ["draw"]

WIDTH, HEIGHT = 4.6, 3.4
LEGEND = 14
"""Most curves that have a legend."""


def draw(figure: Figure, folder: Path, prefix: str = "papers-") -> None:
    """Write ``papers-NAME.svg``, or with another prefix."""
    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    mpl.rcParams.update({"svg.hashsalt": "shoal", "svg.fonttype": "none"})  # letters as letters: a tenth of the bytes
    drawn, every = plt.subplots(1, len(figure.panels), figsize=(WIDTH * len(figure.panels), HEIGHT), squeeze=False)
    for axes, panel in zip(every[0], figure.panels, strict=True):
        for curve in panel.curves:
            marker = "o" if len(curve.x) <= LEGEND else None
            axes.plot(curve.x, curve.y, label=curve.label, marker=marker, markersize=3, linewidth=1)
        axes.set_title(panel.title, fontsize=9)
        axes.set_xlabel(panel.across, fontsize=8)
        axes.set_ylabel(panel.up, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        if any(curve.label for curve in panel.curves):
            axes.legend(fontsize=6, frameon=False)
    drawn.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    drawn.savefig(folder / f"{prefix}{figure.name}.svg", metadata={"Date": None})
    plt.close(drawn)
