"""How the figures look, in light and in dark.

Colours are written out and not kept in CSS variables, which many programs that show SVG do not know; these programs
show the light picture.  The card has a ground of its own because a page may be dark where the system is light.
"""

_LIGHT = {
    "ground": "#ffffff",
    "edge": "#d1d9e0",
    "ink": "#1f2328",
    "quiet": "#59636e",
    "grid": "#e4e8ec",
    "pane": "#0969da",
    "actual": "#1a7f37",
    "late": "#ffd8a8",
    "taken-back": "#cf222e",
}
_DARK = {
    "ground": "#0d1117",
    "edge": "#3d444d",
    "ink": "#f0f6fc",
    "quiet": "#9198a1",
    "grid": "#21262d",
    "pane": "#4493f8",
    "actual": "#3fb950",
    "late": "#7a4a00",
    "taken-back": "#ff7b72",
}

_FORMS = """\
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:15px}
.middle{text-anchor:middle}
.end{text-anchor:end}
.title{font-size:20px;font-weight:600}
.axis-name{font-size:16px}
.value{font-size:14px;font-weight:600}
.sum{font-size:21px;font-weight:700;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.taken-back{font-size:17px;font-weight:600}
.strike{stroke-width:2px}
polyline{fill:none}
.grid{stroke-width:1px}
.axis{stroke-width:1.5px}
.pane{fill-opacity:.13;stroke-width:1.2px;stroke-opacity:.75}
.withdrawn{stroke-dasharray:4 3}
.said{stroke-width:3px}
.ideal{stroke-width:1.6px;stroke-dasharray:2 5;stroke-linecap:round}
.actual{stroke-width:2.4px;stroke-dasharray:9 4;stroke-linejoin:round}
.point{stroke-width:1.6px}
"""


def _colours(of: dict[str, str]) -> str:
    return f"""\
.card{{fill:{of["ground"]};stroke:{of["edge"]}}}
text{{fill:{of["ink"]}}}
.tick,.legend,.axis-name{{fill:{of["quiet"]}}}
.sum{{fill:{of["pane"]};stroke:{of["ground"]}}}
.taken-back{{fill:{of["taken-back"]}}}
.strike{{stroke:{of["taken-back"]}}}
.grid{{stroke:{of["grid"]}}}
.axis,.ideal{{stroke:{of["quiet"]}}}
.pane{{fill:{of["pane"]};stroke:{of["pane"]}}}
.said{{stroke:{of["pane"]}}}
.actual{{stroke:{of["actual"]}}}
.point{{fill:{of["ground"]};stroke:{of["ink"]}}}
.late{{fill:{of["late"]}}}
"""


CSS = f"{_FORMS}{_colours(_LIGHT)}@media (prefers-color-scheme:dark){{\n{_colours(_DARK)}}}\n"
