"""Tags for the core's own values that occur among users' values."""

from typing import Any

from dataflow.serialization import read_as, written_as
from dataflow.value_tags import tag_attrs, tag_enums
from runners.core.ground.cells import EmittedPane, Nothing
from runners.core.ground.lineage import CarriedPane, TracedPane, fields_of_pane
from runners.core.partials.signed_combine import NaN
from runners.core.side_inputs.arriving_views import ArrivingView

tag_attrs({"emitted": EmittedPane})

#: What was added to the fields of a class later, as it is by default.
_ARRIVING_BY_DEFAULT: tuple[Any, ...] = (
    *(None, False, [], None, 0, []),
    *(False, 0, [], 0),
    *([], 0),
)


def _fields_of_arriving(view: ArrivingView) -> tuple[Any, ...]:
    """The last ones are left out where they are as by default, so that the bytes are those of earlier versions."""
    later = [view.expected, view.has_end, view.placeless, view.made, view.made_buckets, view.rest]
    later += [view.is_signed, view.former_read, view.owed, view.kept]
    later += [view.parts, view.made_parts]
    while later and later[-1] == _ARRIVING_BY_DEFAULT[len(later) - 1]:
        later.pop()
    return (view.version, view.count, view.contents, view.buckets, *later)


written_as("arriving view", ArrivingView, _fields_of_arriving)
read_as("arriving view", ArrivingView)
# What is stored of a pane is the pane.
written_as("pane", TracedPane, fields_of_pane)
# But for one that is carried through state with its origin.
written_as("carried pane", CarriedPane, lambda pane: pane.stored)
read_as("carried pane", CarriedPane.of_fields)
tag_enums({"nothing": Nothing, "nan": NaN})
