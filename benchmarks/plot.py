"""A picture of the ratios: for each case and peer the time of ours as a part of the peer's, on a logarithmic scale."""

from collections.abc import Sequence
from math import log10
from statistics import median

import attrs

from benchmarks import tables
from benchmarks.peers.registry import OURS, PEERS
from benchmarks.tables import Result
from runners.observability.drawing.style import CSS
from runners.observability.drawing.svg import SvgDrawing

_WIDTH, _LEFT, _RIGHT, _TOP = 800.0, 230.0, 700.0, 76.0
_ROW, _BAR, _FOOT = 30.0, 16.0, 60.0
_TITLE = "Time of ours as a part of the peer's"
#: Whole powers of ten on both sides of 1.
_DECADES_MIN = 1


@attrs.frozen
class Bar:
    """One comparison."""

    label: str
    ratios: Sequence[float]

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.ratios)


def bars(results: Sequence[Result]) -> list[Bar]:
    """All comparisons in the results, case by case."""
    found = []
    amounts = dict.fromkeys((each["case"], each["size"]) for each in results if each.get("size"))
    for case, size in amounts:
        for mine in OURS:
            for theirs in PEERS:
                if theirs not in OURS:
                    times = tables.ratios(results, mine, theirs, case, size)["seconds"]
                    if times:
                        found.append(Bar(f"{case} {size:,}: {mine} / {theirs}", times))
    return found


def draw(results: Sequence[Result]) -> str:
    """Draw the comparisons, and return them as SVG."""
    rows = bars([each for each in results if each.get("size")])
    bottom = _TOP + _ROW * max(len(rows), 1)
    described = "; ".join(f"{bar.label}: {tables.ratio_text(bar.ratios)}" for bar in rows)
    drawing = SvgDrawing(
        _WIDTH, bottom + _FOOT, title=_TITLE, description=described or "No comparison.", style=CSS
    )
    drawing.rect("card", 0.5, 0.5, _WIDTH - 1, bottom + _FOOT - 1, corner=8)
    drawing.text("title", (24, 40), _TITLE)
    decades = _decades(rows)

    def x(ratio: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (log10(ratio) + decades) / (2 * decades)

    for power in range(-decades, decades + 1):
        at = x(10.0**power)
        drawing.path("axis" if power == 0 else "grid", [(at, _TOP), (at, bottom)])
        drawing.text("tick middle", (at, bottom + 20), f"{10.0**power:g}")
    drawing.text("axis-name middle", (x(1), bottom + 44), "left of 1: ours takes less time")
    for number, bar in enumerate(rows):
        y = _TOP + _ROW * (number + 0.5)
        drawing.text("tick end", (_LEFT - 10, y + 5), bar.label)
        start, end = sorted((x(1), x(bar.middle)))
        drawing.rect("pane", start, y - _BAR / 2, end - start, _BAR)
        drawing.path("said", [(x(min(bar.ratios)), y), (x(max(bar.ratios)), y)])
        drawing.text("legend", (max(end, x(max(bar.ratios))) + 8, y + 5), f"{bar.middle:.2f}")
    return drawing.to_svg()


def _decades(rows: Sequence[Bar]) -> int:
    furthest = max((abs(log10(each)) for bar in rows for each in bar.ratios), default=0.0)
    return max(_DECADES_MIN, int(furthest) + 1)
