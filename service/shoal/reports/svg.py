"""Drawings of a report as inline SVG: bars, curves, a heat map. Numbers and names stand beside marks: no colour needed.

Colours are classes of the style sheet of the page, which has them for light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_LABEL, _BAR, _ROW, _NUMBER = 220, 360, 22, 110  # widths and height in pixels
_CELL = 64
_DASHES = "none", "7 4", "2 4", "10 3 2 3", "1 6"  # of lines


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


def curves(title: str, x_label: str, y_label: str, lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> str:
    """Return lines through points; each is named at its end, and has its own dashes, so that no colour is needed."""
    left, top, width, height, right = 60, 26, 480, 260, 190
    points = [point for _, line in lines for point in line]
    most_x, most_y = (max(point[axis] for point in points) * 1.05 or 1.0 for axis in (0, 1))
    parts = [_begin(title, left + width + right, top + height + 46)]
    parts += _axes(left, top, width, height, most_x, most_y)
    parts.append(_text(left + width / 2, top + height + 38, x_label, "middle", most=60))
    parts.append(_text(left - 52, top - 12, y_label, "start", "small"))
    ends: list[tuple[float, float, str]] = []
    for number, (name, line) in enumerate(lines):
        places = [(left + width * x / most_x, top + height * (1 - y / most_y)) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="line" stroke-dasharray="{_DASHES[number % len(_DASHES)]}" points="{path}"/>')
        for (x, y), value in zip(places, line, strict=True):
            shown = escape(f"{name}: {value[0]:g}, {value[1]:.3g}")
            parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{shown}</title></circle>')
        ends.append((places[-1][1], places[-1][0], name))
    last = -_ROW * 1.0
    for y, x, name in sorted(ends):
        last = max(y + 4, last + 14)
        parts.append(_text(x + 8, last, name, "start", "small"))
    return "".join([*parts, "</svg>"])


def _axes(left: float, top: float, width: float, height: float, most_x: float, most_y: float) -> list[str]:
    """Return both axes, with round numbers from 0 on."""
    parts = [
        f'<line class="axis" x1="{left}" y1="{top + height}" x2="{left + width}" y2="{top + height}"/>',
        f'<line class="axis" x1="{left}" y1="{top}" x2="{left}" y2="{top + height}"/>',
    ]
    parts += [
        _text(left + width * mark / most_x, top + height + 16, f"{mark:g}", "middle", "small")
        for mark in _marks(most_x)
    ]
    return parts + [
        _text(left - 6, top + height * (1 - mark / most_y) + 4, f"{mark:g}", "end", "small") for mark in _marks(most_y)
    ]


def _marks(most: float) -> list[float]:
    """Return 0 and at most six multiples of 1, 2 or 5 times a power of ten, up to a number."""
    power = 10.0 ** math.floor(math.log10(most / 6))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= most / 6)
    return [round(number * step, 12) for number in range(int(most / step) + 1)]


def _begin(title: str, width: float, height: float) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
    )


def _text(x: float, y: float, text: str, anchor: str, style: str = "label", most: int = 30) -> str:
    shown = escape(_short(text, most))
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown}</text>'


def _short(text: str, most: int = 10) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"
