"""Shapes: what the master knows of splits and merges."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.control.shapes import MergeKeys, RangeShape, ShapeError, Shapes, SplitKeys
from runners.millwheel.model.ids import RangeId
from runners.millwheel.model.key_range import KEY_SPACE_END, KeyMap, KeyRange, even_ranges
from runners.millwheel.store.port import RangeRow

READ = RangeId("read", 0)
FIRST, SECOND, BORN = (RangeId("sum", index) for index in range(3))


def always(_: RangeId) -> bool:
    return True


def row(range_id: RangeId, keys: KeyRange | None, **changes: object) -> RangeRow:
    fields: dict[str, object] = {
        "range_id": range_id,
        "keys": keys,
        "split": b"" if range_id == READ else None,
        "token": 1,
        "bundle": 0,
        "owner": None,
        "position": None,
        "watermark_us": None,
        "is_finished": False,
    }
    return RangeRow(**fields | changes)  # type: ignore[arg-type]


def shapes(**changes: object) -> Shapes:
    low, high = even_ranges(2)
    rows = [row(READ, None), row(FIRST, low), row(SECOND, high, **changes)]
    return Shapes({each.range_id: each for each in rows}, {"read": (), "sum": ("read",)})


def split_is_done(known: Shapes, asked: SplitKeys, at: int) -> None:
    keys = known.routing.keys.get(asked.range_id)
    assert keys is not None
    known.learn(
        {
            asked.range_id: RangeShape(KeyRange(keys.low, at), None),
            asked.born: RangeShape(KeyRange(at, keys.high), asked.range_id),
        }
    )


@given(cuts=st.lists(st.integers(1, KEY_SPACE_END - 1), max_size=20), key_hash=st.integers(0))
def test_a_key_hash_is_in_the_range_that_has_it(cuts: list[int], key_hash: int) -> None:
    """However the space is divided: one range has it, or it is no key hash."""
    bounds = [0, *sorted(set(cuts)), KEY_SPACE_END]
    keys = {
        RangeId("sum", index): KeyRange(low, high)
        for index, (low, high) in enumerate(pairwise(bounds))
    }
    found = KeyMap(keys).find(key_hash)

    assert KeyMap(keys).is_whole
    assert [each for each, covers in keys.items() if key_hash in covers] == (
        [found] if found else []
    )


@given(st.sets(st.integers(0, 9), min_size=1))
def test_a_map_with_a_gap_is_not_whole(missing: set[int]) -> None:
    keys = {RangeId("sum", index): each for index, each in enumerate(even_ranges(10))}
    for index in missing:
        del keys[RangeId("sum", index)]

    assert not KeyMap(keys).is_whole


def test_a_split_is_routed_when_it_is_committed() -> None:
    known = shapes()
    before = known.routing
    asked = known.split(FIRST, None, always)

    assert asked.born == BORN
    assert known.routing == before
    assert known.unborn == {BORN}
    split_is_done(known, asked, 1 << 60)
    assert known.routing.number == before.number + 1
    assert known.routing.keys.get(BORN) == KeyRange(1 << 60, 1 << 63)
    assert known.is_in_handover(BORN)
    assert not known.asked


def test_it_is_ripe_when_every_sender_has_passed_its_routing() -> None:
    known = shapes()
    known.report({READ: known.routing.number})
    split_is_done(known, known.split(FIRST, None, always), 1 << 60)

    assert known.ripe() == []
    known.report({READ: known.routing.number})
    assert known.ripe() == [BORN]
    assert not known.ended_handovers(BORN)
    assert known.ripe() == []


def test_what_is_in_a_handover_stays_as_it_is() -> None:
    known = shapes()
    asked = known.split(FIRST, None, always)
    for split in (FIRST, asked.born):
        with pytest.raises(ShapeError):
            known.split(split, None, always)
    split_is_done(known, asked, 1 << 60)
    for head_or_born in (FIRST, asked.born):
        with pytest.raises(ShapeError, match="is being split or merged"):
            known.split(head_or_born, None, always)
    with pytest.raises(ShapeError, match="is being split or merged"):
        known.merge(SECOND, asked.born)


def test_a_split_is_waited_for_by_the_routing_that_has_it() -> None:
    """And not by one that came of something else between the question and the answer."""
    known = shapes()
    asked, other = known.split(FIRST, None, always), known.split(SECOND, None, always)
    split_is_done(known, other, 3 << 62)
    known.report({READ: known.routing.number})
    split_is_done(known, asked, 1 << 60)

    assert known.ripe() == [other.born]
    known.report({READ: known.routing.number})
    assert set(known.ripe()) == {asked.born, other.born}


def test_a_merged_range_is_retired_and_its_number_is_not_used_again() -> None:
    known = shapes()
    known.merge(FIRST, SECOND)
    known.learn(
        {FIRST: RangeShape(KeyRange(0, KEY_SPACE_END), None), SECOND: RangeShape(None, FIRST)}
    )
    known.report({READ: known.routing.number})

    assert known.ripe() == [SECOND]
    assert known.ended_handovers(SECOND)
    assert known.split(FIRST, None, always).born == BORN


def test_a_range_that_only_the_store_knew_of_is_found() -> None:
    """A driver died between asking for a split and hearing of it."""
    known = shapes()
    low, high = KeyRange(0, 1 << 60), KeyRange(1 << 60, 1 << 63)
    found = known.learn({FIRST: RangeShape(low, None), BORN: RangeShape(high, FIRST)})

    assert found == {BORN: FIRST}
    assert known.is_in_handover(BORN)
    known.report({READ: known.routing.number})
    assert known.ripe() == [BORN]


@pytest.mark.parametrize(
    ("range_id", "at"), [(READ, None), (RangeId("sum", 9), None), (FIRST, 0), (FIRST, 1 << 63)]
)
def test_what_cannot_be_split_is_refused(range_id: RangeId, at: int | None) -> None:
    with pytest.raises(ShapeError):
        shapes().split(range_id, at, always)


def test_ranges_apart_cannot_be_merged() -> None:
    with pytest.raises(ShapeError, match="no neighbours"):
        shapes().merge(FIRST, FIRST)


def test_handovers_in_the_store_are_taken_as_new() -> None:
    """A driver that starts does not know what is on its way."""
    known = shapes(handover_with=FIRST)

    assert known.is_in_handover(SECOND)
    assert known.ripe() == []
    known.report({READ: known.routing.number})
    assert known.ripe() == [SECOND]


def test_nothing_is_divided_while_ranges_change_hands() -> None:
    """A former owner may have divided one of them, and nobody knows."""
    with pytest.raises(ShapeError, match="being moved to another worker"):
        shapes().split(FIRST, None, lambda each: each != SECOND)


def test_a_merge_that_only_the_store_knew_of_is_found() -> None:
    """A driver that is gone had asked for it, after this one looked into the store."""
    known = shapes()
    found = known.learn(
        {FIRST: RangeShape(KeyRange(0, KEY_SPACE_END), None), SECOND: RangeShape(None, FIRST)}
    )

    assert found == {SECOND: FIRST}
    assert known.is_in_handover(SECOND)
    # Reported again by somebody else, it is no news.
    assert not known.learn({SECOND: RangeShape(None, FIRST)})


OUT = RangeId("out", 0)
CHAIN = {"read": (), "sum": ("read",), "out": ("sum",)}


@given(data=st.data())
def test_a_handover_ends_when_every_sender_there_is_follows_what_it_was_born_with(
    data: st.DataObject,
) -> None:
    """However splits and merges overlap: not before, or keys are in two places; and not later, or it never moves."""
    low, high = even_ranges(2)
    rows = [row(READ, None), row(FIRST, low), row(SECOND, high), row(OUT, KeyRange(0, 1 << 64))]
    known = Shapes({each.range_id: each for each in rows}, CHAIN)
    keys = {each.range_id: each.keys for each in rows if each.keys}
    passed = dict.fromkeys([READ, *keys], known.routing.number)
    #: By range in a handover, the number of the first routing that has it as it is now.
    since: dict[RangeId, int] = {}
    numbers = set(passed)
    known.report(passed)
    for _ in range(40):
        asked = data.draw(st.sampled_from(["split", "merge", "done", "found", "report", "end"]))
        free = [each for each in keys if each not in known._heads]
        free = [each for each in free if each not in {*known._heads.values(), *known.asked}]
        if asked == "split" and free:
            at = data.draw(st.sampled_from(sorted(free)))
            middle = (keys[at].low + keys[at].high) // 2
            born = known.split(at, middle, always).born
            assert born not in numbers, "a number was used again"
            numbers.add(born)
        elif asked == "merge" and {FIRST, SECOND} <= set(free):
            if keys[FIRST].high == keys[SECOND].low:
                known.merge(FIRST, SECOND)
        elif asked == "done" and known.asked:
            _carry_out(known, known.asked[data.draw(st.sampled_from(sorted(known.asked)))], keys)
        elif asked == "found" and free:
            # An owner has done what another driver had asked for.
            at = data.draw(st.sampled_from(sorted(free)))
            index = 1 + max(each.index for each in numbers if each.computation == at.computation)
            born = RangeId(at.computation, index)
            numbers.add(born)
            _carry_out(known, SplitKeys(range_id=at, born=born), keys)
        elif asked == "report":
            there = sorted(passed.keys() | keys.keys())
            who = data.draw(st.sampled_from([there, *([each] for each in there)]))
            passed |= dict.fromkeys(who, known.routing.number)
            known.report(dict.fromkeys(who, known.routing.number))
        elif asked == "end":
            for each in known.ripe():
                if known.ended_handovers(each):
                    passed.pop(each, None)
        under_way = [each for each in known._heads if known.is_in_handover(each)]
        since = {each: since.get(each, known.routing.number) for each in under_way}
        # What is asked for may exist already, and send by a former routing.
        senders = {*keys, *passed, *under_way, *known.unborn}
        ripe = {
            each
            for each, number in since.items()
            if all(
                passed.get(sender, 0) >= number
                for sender in senders
                if sender.computation in CHAIN[each.computation]
            )
        }
        assert set(known.ripe()) == ripe


def _carry_out(known: Shapes, asked: object, keys: dict[RangeId, KeyRange]) -> None:
    """The owner of a range does what it was asked for, and reports it."""
    if isinstance(asked, SplitKeys):
        whole = keys[asked.range_id]
        at = asked.at or (whole.low + whole.high) // 2
        keys[asked.range_id] = KeyRange(whole.low, at)
        keys[asked.born] = KeyRange(at, whole.high)
        other = RangeShape(keys[asked.born], asked.range_id)
        known.learn({asked.range_id: RangeShape(keys[asked.range_id], None), asked.born: other})
    elif isinstance(asked, MergeKeys):
        whole = KeyRange(keys[asked.range_id].low, keys.pop(asked.gone).high)
        keys[asked.range_id] = whole
        gone = RangeShape(None, asked.range_id)
        known.learn({asked.range_id: RangeShape(whole, None), asked.gone: gone})
