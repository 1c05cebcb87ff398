"""Witness: a range that is gone because it was merged away is not taken for a commit that is lost."""

import attrs
import pytest

from runners.errors import LostCommitsError
from runners.millwheel.master.witness import Witness
from runners.millwheel.model.ids import CommitMark, RangeId
from runners.millwheel.model.key_range import even_ranges
from runners.millwheel.store.port import JobRow, RangeRow

FIRST, SECOND = RangeId("count", 0), RangeId("count", 1)
(KEYS,) = even_ranges(1)


def row(range_id: RangeId, *, bundle: int = 0) -> RangeRow:
    return RangeRow(
        range_id=range_id, keys=KEYS, split=None, token=7, bundle=bundle, owner=None,
        position=None, watermark_us=None, is_finished=False,
    )  # fmt: skip


def job(*rows: RangeRow) -> JobRow:
    ranges = {each.range_id: each for each in rows}
    return JobRow(job="scores", mode="streaming", fingerprint="f", is_finished=False, ranges=ranges)


def test_what_was_reported_must_be_there() -> None:
    witness = Witness(job(row(FIRST), row(SECOND)))
    witness.on_report({FIRST: CommitMark(7, 3)})
    witness.check(job(row(FIRST, bundle=3), row(SECOND)), "here")
    with pytest.raises(LostCommitsError, match="bundle 3 under token 7 was committed"):
        witness.check(job(row(FIRST, bundle=2), row(SECOND)), "here")
    with pytest.raises(LostCommitsError, match="no such range"):
        witness.check(job(row(FIRST, bundle=3)), "here")


def test_a_range_that_was_merged_may_be_gone() -> None:
    """Also when its last owner reports it once more."""
    witness = Witness(job(row(FIRST), row(SECOND, bundle=5)))
    witness.retire(SECOND)
    witness.on_report({SECOND: CommitMark(7, 9)})
    witness.check(job(row(FIRST)), "here")


def test_a_range_that_was_merged_in_an_earlier_run_may_be_gone() -> None:
    retired = attrs.evolve(row(SECOND), keys=None, is_finished=True)
    witness = Witness(job(row(FIRST), retired))
    witness.check(job(row(FIRST)), "here")


def test_two_owners_who_cannot_both_be_right_are_noticed() -> None:
    """Whoever came later began with less than the one before had committed."""
    witness = Witness(job(row(FIRST)))
    witness.on_report({FIRST: CommitMark(8, 5)})
    witness.on_report({FIRST: CommitMark(7, 5)})
    with pytest.raises(LostCommitsError, match="bundle 5 under token 8"):
        witness.on_report({FIRST: CommitMark(9, 4)})
    with pytest.raises(LostCommitsError, match="bundle 6 under token 7"):
        witness.on_report({FIRST: CommitMark(7, 6)})
    witness.on_report({FIRST: CommitMark(9, 5)})
    assert witness.known_of(["count"]) == {FIRST: CommitMark(9, 5)}
