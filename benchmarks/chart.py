"""A bar chart as SVG, written by hand: shares of a whole in groups, each bar with its name and percentage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 860, 250, 60  # pixels: all, for names, for percentages
TOP, BAR, GAP, GROUP_GAP, TITLE = 58, 16, 4, 14, 20
GRID = (0, 25, 50, 75, 100)
COLOURS = {"ours": "#1f6fb2", "peer": "#b0b0b0"}


@dataclass(frozen=True)
class Bar:
    """One bar: `share` from 0 to 1, and whose it is, `ours` or `peer`."""

    name: str
    share: float
    whose: str


@dataclass(frozen=True)
class Group:
    """Bars under one title."""

    title: str
    bars: tuple[Bar, ...]


def chart(title: str, subtitle: str, groups: Sequence[Group]) -> str:
    """The SVG document."""
    body: list[str] = []
    y = TOP
    for group in groups:
        y += TITLE
        body.append(_text(12, y - 6, group.title, weight="bold"))
        for bar in group.bars:
            body += _bar(y, bar)
            y += BAR + GAP
        y += GROUP_GAP
    grid = [line for percent in GRID for line in _grid_line(percent, y)]
    height = y + 24
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(12, 24, title, size=16, weight="bold"),
        _text(12, 44, subtitle, colour="#555555"),
    ]
    return "\n".join([*head, *grid, *body, "</svg>"]) + "\n"


def _bar(y: int, bar: Bar) -> list[str]:
    length = max(1.0, _scale(bar.share * 100) - LEFT)
    return [
        _text(LEFT - 8, y + BAR - 4, bar.name, anchor="end"),
        f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{COLOURS[bar.whose]}"/>',
        _text(LEFT + length + 6, y + BAR - 4, f"{bar.share:.0%}"),
    ]


def _grid_line(percent: int, bottom: int) -> list[str]:
    x = _scale(percent)
    return [
        f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#dddddd"/>',
        _text(x, bottom + 16, f"{percent} %", anchor="middle", colour="#555555"),
    ]


def _scale(percent: float) -> float:
    """Where a percentage lies, in pixels; what exceeds the chart ends at its edge."""
    return LEFT + min(percent, 105.0) / 100 * (WIDTH - LEFT - RIGHT)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "start",
    colour: str = "#222222",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
    )
