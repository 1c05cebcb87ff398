"""Tags for the core's own values that occur among users' values."""

from dataflow.value_tags import tag_attrs, tag_enums, tag_others
from runners.core.ground.cells import EmittedPane, Nothing
from runners.core.partials.signed_combine import NaN
from runners.core.side_inputs.arriving_views import ArrivingView

tag_attrs({"emitted": EmittedPane})
tag_others({"arriving view": (ArrivingView, ("version", "count", "contents", "buckets"))})
tag_enums({"nothing": Nothing, "nan": NaN})
