"""Frequent keys: never counted too low, and none that is frequent is missing."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.model import hot_keys
from runners.millwheel.model.hot_keys import BATCH, HALVED_AFTER, KEYS_MAX, SHOWN_MAX, HotKeys

#: Some keys that come often, among very many that do not.
SEQUENCES = st.lists(
    st.one_of(st.integers(0, 5), st.integers(0, 40), st.integers(0, 2**64 - 1)), max_size=2_000
)


@given(SEQUENCES, st.integers(1, 400))
def test_counts_are_bounded(keys: list[int], repeated: int) -> None:
    """What is known of a key is at least how often it came, and too much by its error at most."""
    found, noted = HotKeys(), keys + [7] * repeated
    for key in noted:
        found.note([key], [key])
    true = Counter(noted)
    for each in found.top():
        assert true[each.key_hash] <= each.count <= true[each.key_hash] + each.error
        assert each.of == len(noted)
    shown = {each.key_hash for each in found.top()}
    frequent = [
        key for key, count in true.most_common(SHOWN_MAX) if count > max(1, len(noted) / KEYS_MAX)
    ]
    # One that is shown in its place may be counted too high, but not lower than it.
    least = min((each.count for each in found.top()), default=0)
    assert all(key in shown or least >= true[key] for key in frequent)


def test_a_hot_key_among_very_many_is_first() -> None:
    found = HotKeys()
    for number in range(50 * BATCH):
        found.note([3 if number % 4 == 0 else 1_000 + number], ["three"])
    assert found.top()[0].key_hash == 3


def test_what_was_long_ago_counts_for_less() -> None:
    """A key that is hot now is soon before one that was hot for a long time."""
    found = HotKeys()
    for _ in range(2 * HALVED_AFTER):
        found.note([1], ["then"])
    for _ in range(HALVED_AFTER):
        found.note([2], ["now"])
    assert [each.key_hash for each in found.top()] == [2, 1]


def test_keys_are_text_only_where_that_is_wanted() -> None:
    """And short, and no more of them than are counted."""
    silent, open_ones = HotKeys(), HotKeys(keeps_text=True)
    for number in range(3 * BATCH):
        for each in (silent, open_ones):
            each.note([number % 40], [("key", number % 40, "x" * 1_000)])
    assert {each.text for each in silent.top()} == {None}
    for found in open_ones.top():
        assert found.text is not None
        assert found.text.startswith(f"('key', {found.key_hash}")
        assert len(found.text) == hot_keys.TEXT_CHARS_MAX
    assert len(open_ones._texts) <= KEYS_MAX
