"""How many records a task reads at a time."""

from hypothesis import given
from hypothesis import strategies as st

from runners.batch.range_task import _MADE_OF_EACH, _next_bundle

SIZES = st.integers(1, 200_000)


@given(bundle_max=SIZES, records=st.just(0) | SIZES, made=st.integers(0, 10_000_000))
def test_fewer_are_read_where_much_is_made_of_each(
    bundle_max: int, records: int, made: int
) -> None:
    """Of records that are all set aside something may be made too, and one at least is read then."""
    following = _next_bundle(bundle_max, records, made)
    assert 1 <= following <= bundle_max
    records = max(1, records)
    if made <= _MADE_OF_EACH * records:
        assert following == bundle_max
    else:
        # The next larger whole number of records at the most.
        assert (following - 1) * made < _MADE_OF_EACH * bundle_max * records <= following * made
