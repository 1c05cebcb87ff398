"""Tags for the core's own values that occur among users' values."""

from dataflow.value_tags import tag_attrs, tag_enums
from runners.core.ground.cells import EmittedPane, Nothing
from runners.core.partials.signed_combine import NaN

tag_attrs({"emitted": EmittedPane})
tag_enums({"nothing": Nothing, "nan": NaN})
