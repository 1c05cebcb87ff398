"""Tags for the core's own values that occur among users' values."""

from dataflow.serialization import read_as, written_as
from dataflow.value_tags import tag_attrs, tag_enums, tag_others
from runners.core.ground.cells import EmittedPane, Nothing
from runners.core.ground.lineage import CarriedPane, TracedPane, fields_of_pane
from runners.core.partials.signed_combine import NaN
from runners.core.side_inputs.arriving_views import ArrivingView

tag_attrs({"emitted": EmittedPane})
tag_others({"arriving view": (ArrivingView, ("version", "count", "contents", "buckets"))})
# What is stored of a pane is the pane.
written_as("pane", TracedPane, fields_of_pane)
# But for one that is carried through state with its origin.
written_as("carried pane", CarriedPane, lambda pane: pane.stored)
read_as("carried pane", CarriedPane.of_fields)
tag_enums({"nothing": Nothing, "nan": NaN})
