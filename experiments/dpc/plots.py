"""Plots as SVG text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float]

WIDTH: Final = 760
HEIGHT: Final = 360
_LEFT: Final = 64
_RIGHT: Final = 190
_TOP: Final = 34
_BOTTOM: Final = 46
_COLOURS: Final = (
    "#1f6feb",
    "#d1242f",
    "#1a7f37",
    "#9a6700",
    "#8250df",
    "#57606a",
    "#bf3989",
    "#0a7ea4",
)
_TICKS_MAX: Final = 8
_CANDIDATES: Final = [step * 10.0**power for power in range(-9, 9) for step in (1.0, 2.0, 5.0)]


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one name, joined or not."""

    name: str
    points: Sequence[Point]
    is_joined: bool = True
    is_dashed: bool = False


def plot(
    title: str,
    x_name: str,
    y_name: str,
    lines: Sequence[Line],
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """One plot. ``marks``: vertical lines with a word each."""
    points = [point for line in lines for point in line.points]
    xs, ys = [x for x, _ in points] or [0.0, 1.0], [y for _, y in points] or [1.0]
    x_ticks, y_ticks = _ticks(min(0.0, *xs), max(xs)), _ticks(0.0, max(ys))
    x_low = min(x_ticks[0], *xs)
    x_high = max(x_ticks[-1], *xs)
    y_high = max(y_ticks[-1], *ys)

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return _LEFT + across * (x - x_low) / (x_high - x_low or 1), HEIGHT - _BOTTOM - up * y / (
            y_high or 1
        )

    body = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            ' font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 20, title, "start", 'font-size="14" font-weight="bold"'),
    ]
    for tick in y_ticks:
        (x1, y1), (x2, _) = at(x_low, tick), at(x_high, tick)
        body += [_stroke(x1, y1, x2, y1, "#d8dee4"), _text(x1 - 6, y1 + 4, f"{tick:g}", "end")]
    for tick in x_ticks:
        x1, y1 = at(tick, 0)
        body += [_stroke(x1, y1, x1, y1 + 4, "#24292f"), _text(x1, y1 + 18, f"{tick:g}", "middle")]
    for x, word in marks:
        (x1, y1), (_, y2) = at(x, 0), at(x, y_high)
        body += [
            _stroke(x1, y1, x1, y2, "#57606a", 'stroke-dasharray="3 3"'),
            _text(x1 + 3, y2 + 10, word, "start", 'fill="#57606a"'),
        ]
    for number, line in enumerate(lines):
        body += _drawn(
            line, [at(x, y) for x, y in line.points], _COLOURS[number % len(_COLOURS)], number
        )
    body += [
        _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, x_name, "middle"),
        _text(
            14,
            (HEIGHT + _TOP - _BOTTOM) / 2,
            y_name,
            "middle",
            f'transform="rotate(-90 14 {(HEIGHT + _TOP - _BOTTOM) / 2:.0f})"',
        ),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _drawn(line: Line, places: Sequence[Point], colour: str, number: int) -> list[str]:
    dash = 'stroke-dasharray="6 4"' if line.is_dashed else ""
    y, x = _TOP + 12 + 18 * number, WIDTH - _RIGHT + 14
    found = [
        _stroke(x, y, x + 18, y, colour, f'stroke-width="2" {dash}'),
        _text(x + 24, y + 4, line.name, "start"),
    ]
    if line.is_joined:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        found.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" {dash}/>'
        )
    radius = 2 if len(places) > 20 else 3.5
    found += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>' for x, y in places
    ]
    return found


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'
    )


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from at most ``low`` to at least ``high``, eight or nine at most."""
    span = max(high - low, 1e-9)
    step = next(candidate for candidate in _CANDIDATES if span / candidate <= _TICKS_MAX)
    first = int(low // step)
    ticks = [first * step]
    while ticks[-1] < high - step * 1e-6:
        ticks.append((first + len(ticks)) * step)
    return [round(tick, 9) for tick in ticks]
