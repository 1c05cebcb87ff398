"""IdCounts: what a worker has done with the ids of records, for its report."""

import attrs


@attrs.define(kw_only=True)
class IdCounts:
    """Counts since a worker started.

    Attributes:
        duplicates: records dropped, because they had been read before.
        passed: new ids that the filter let through.
        maybes: ids that the table was asked for because the filter was not sure.
        false_maybes: the maybes that were new.  Queries while a filter is loaded are not counted.
        kept: ids in the filters now.
    """

    duplicates: int = 0
    passed: int = 0
    maybes: int = 0
    false_maybes: int = 0
    kept: int = 0

    def __add__(self, other: "IdCounts") -> "IdCounts":
        mine, theirs = attrs.astuple(self), attrs.astuple(other)
        names = [field.name for field in attrs.fields(IdCounts)]
        return IdCounts(**dict(zip(names, map(sum, zip(mine, theirs, strict=True)), strict=True)))

    def of_the_past(self) -> "IdCounts":
        """The counts of a worker that is gone, together with its filters."""
        return attrs.evolve(self, kept=0)

    @property
    def false_positive_rate(self) -> float:
        """The part of the new ids that the table was asked for; 0 if there were none."""
        new = self.passed + self.false_maybes
        return self.false_maybes / new if new else 0.0
