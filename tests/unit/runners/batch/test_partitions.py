"""Into how many parts a batch divides its input where nobody says."""

from collections.abc import Sequence

import attrs
import pytest

import dataflow as df
from dataflow.io.memory import MemorySource
from runners.batch.runner import partitions_of

MIB = 1 << 20


@attrs.define
class Sized(MemorySource):
    """A source that says how large it is."""

    size: int | None

    def __attrs_post_init__(self) -> None:
        super().__init__([1])

    def estimate_size(self) -> int | None:
        return self.size


@pytest.mark.parametrize(
    ("sizes", "partitions"),
    [
        ([0], 3),
        ([3 * 256 * MIB], 3),
        ([3 * 256 * MIB + 1], 6),
        ([2 * 256 * MIB, 256 * MIB], 3),
        ([2 * 256 * MIB, 256 * MIB, 1], 6),
        ([None], 6),
        ([0, None], 6),
        ([None, 0], 6),
    ],
)
def test_one_for_each_core_where_all_is_known_to_be_small(
    sizes: Sequence[int | None], partitions: int
) -> None:
    p = df.Pipeline()
    for size in sizes:
        p | df.Read(Sized(size)) | df.Map(print)

    assert partitions == partitions_of(p.graph(), 3)
