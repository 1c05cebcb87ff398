"""Templates: pages as HTML.

Jinja escapes everything but the pictures, which are made here and escape for themselves.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from dataflow.times import in_words
from runners.observability.why.words import instant, length, shown_tree
from runners.ui import pictures
from runners.ui.pages import JobPage, WindowsPage, graph_of, lines_of
from windowing.timestamps import MAX_TIMESTAMP_US, format_timestamp

_TEMPLATES = files(__package__) / "templates"
UNKNOWN = "unknown"
_DAY_US = 86_400_000_000
#: Lengths below the first are shown to the second.
_ROUNDED_US = (
    (10_000_000, 100_000),
    (3_600_000_000, 1_000_000),
    (_DAY_US, 60_000_000),
    (10 * _DAY_US, 3_600_000_000),
)


def address(*parts: str) -> str:
    """The address of a page.

    Args:
        parts: of the path, not quoted.
    """
    # Not the dots that pages end with: those of names are theirs.
    return "/" + "/".join(quote(part, safe="").replace(".", "%2E") for part in parts)


def shown_length(length_us: int | None) -> str:
    """A length of time by its two largest units, short enough for a table.

    Args:
        length_us: in microseconds; None: not known.
    """
    if length_us is None:
        return UNKNOWN
    exact_to = next((unit for up_to, unit in _ROUNDED_US if length_us < up_to), _DAY_US)
    return in_words(length_us // exact_to * exact_to)


def shown_instant(at_us: int | None) -> str:
    """An instant, to the second.

    Args:
        at_us: in microseconds since 1970; None: not known.
    """
    if at_us is None:
        return UNKNOWN
    text = instant(at_us - at_us % 1_000_000)
    return text.replace("T", " ").removesuffix("+00:00")


def format_bound(at_us: int) -> str:
    """The end of a window.

    Args:
        at_us: in microseconds since 1970.
    """
    return "the end of time" if at_us >= MAX_TIMESTAMP_US else format_timestamp(at_us)


def shown_number(value: float | None, digits: int = 0) -> str:
    """A number.

    Args:
        value: None: not known.
        digits: behind the point.
    """
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def _source(name: str | None) -> str | None:
    path = _TEMPLATES / (name or "")
    return path.read_text(encoding="utf-8") if path.is_file() else None


_ENVIRONMENT = Environment(
    loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_ENVIRONMENT.filters |= {
    "length": shown_length,
    "instant": shown_instant,
    "number": shown_number,
    "bound": format_bound,
    "tree": shown_tree,
    "words": length,
}
_ENVIRONMENT.globals |= {"address": address, "UNKNOWN": UNKNOWN}


def render(template: str, values: Mapping[str, Any]) -> str:
    """A page as HTML.

    Args:
        template: file in ``templates/``.
        values: that it shows; ``page`` is a value of `runners.ui.pages`.
    """
    return _ENVIRONMENT.get_template(template).render({**values, **_pictures(values.get("page"))})


def _pictures(page: object) -> Mapping[str, Markup]:
    if isinstance(page, JobPage):
        job = page.head.job
        nodes, edges = graph_of(
            page, lambda stage: f"{address('jobs', job)}?transform={quote(stage)}"
        )
        return {
            "graph": _safe(pictures.graph(f"Stages of {job}", nodes, edges)),
            "chart": _safe(
                pictures.event_time_chart("Event time against processing time", lines_of(page))
            ),
        }
    if isinstance(page, WindowsPage) and page.spans:
        return {
            "line": _safe(pictures.time_line("Time line of the key", page.spans, page.event_us))
        }
    return {}


def _safe(svg: str) -> Markup:
    return Markup(svg)  # noqa: S704 - ElementTree has escaped it
