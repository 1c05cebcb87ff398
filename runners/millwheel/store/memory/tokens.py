"""Tokens of the store in memory."""

from collections.abc import Iterator

import attrs


@attrs.define
class Tokens(Iterator[int]):
    """Numbers from 1 on, each given out once; unlike `itertools.count` a value that can be copied, for backups.

    Attributes:
        last: the one that was given out last.
    """

    last: int = 0

    def __next__(self) -> int:
        self.last += 1
        return self.last
