"""Drawings of a report: bars and a heat map as inline SVG. Each number stands beside its mark, so no colour is needed.

Colours are classes of the style sheet of the page, which has them for light, dark and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_LABEL, _BAR, _ROW, _NUMBER = 220, 360, 22, 110  # widths and height in pixels
_CELL = 64


def bars(title: str, labels: Sequence[str], series: Sequence[tuple[str, str, Sequence[float]]], unit: str) -> str:
    """Return horizontal bars; ``series``: class of the style sheet, name, and one number for each label."""
    most = max((max(values, default=0.0) for _, _, values in series), default=0.0) or 1.0
    height = len(labels) * (len(series) * _ROW * 0.6 + 8) + 4
    parts = [_begin(title, _LABEL + _BAR + _NUMBER, height)]
    top = 4.0
    for place, label in enumerate(labels):
        middle = top + len(series) * _ROW * 0.3
        parts.append(_text(_LABEL - 8, middle + 4, label, "end"))
        for style, name, values in series:
            length = _BAR * values[place] / most
            parts.append(
                f'<rect class="{style}" x="{_LABEL}" y="{top:.1f}" width="{length:.1f}" height="{_ROW * 0.6 - 2:.1f}">'
                f"<title>{escape(f'{label}, {name}: {values[place]:g} {unit}')}</title></rect>"
            )
            parts.append(_text(_LABEL + length + 5, top + _ROW * 0.6 - 4, f"{values[place]:g}", "start", "small"))
            top += _ROW * 0.6
        top += 8
    return "".join([*parts, "</svg>"])


def heat_map(title: str, names: Sequence[str], values: Sequence[Sequence[float | None]]) -> str:
    """Return a square of cells with numbers from -2 to 2; the larger the number, the darker the cell."""
    width, height = _LABEL + len(names) * _CELL, (len(names) + 1) * _ROW
    parts = [_begin(title, width, height)]
    parts += [
        _text(_LABEL + (place + 0.5) * _CELL, _ROW - 7, _short(name), "middle", "small")
        for place, name in enumerate(names)
    ]
    for line, (name, row) in enumerate(zip(names, values, strict=True), 1):
        parts.append(_text(_LABEL - 8, (line + 0.7) * _ROW, name, "end"))
        for place, value in enumerate(row):
            left, strength = _LABEL + place * _CELL, 0.0 if value is None else min(abs(value), 1.0)
            parts.append(
                f'<rect class="heat" x="{left}" y="{line * _ROW}" width="{_CELL - 2}" height="{_ROW - 2}" '
                f'fill-opacity="{0.75 * strength:.2f}"/>'
            )
            shown = "-" if value is None else f"{value:+.2f}"
            parts.append(_text(left + _CELL / 2 - 1, (line + 0.7) * _ROW, shown, "middle"))
    return "".join([*parts, "</svg>"])


def _begin(title: str, width: float, height: float) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
    )


def _text(x: float, y: float, text: str, anchor: str, style: str = "label") -> str:
    shown = escape(_short(text, 30))
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown}</text>'


def _short(text: str, most: int = 10) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"
