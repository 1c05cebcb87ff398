"""Watermarks of sources that get splits: they wait for what is on its way, and for what may still come."""

from hypothesis import given
from hypothesis import strategies as st

from runners.millwheel.master.assignment import Assignment
from runners.millwheel.master.watermark_authority import WatermarkAuthority
from runners.millwheel.model.ids import RangeId
from windowing.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US

READ, SUM = [RangeId("read", index) for index in range(9)], RangeId("sum", 0)


def authority(committed_us: int | None = None, splits: int = 2) -> WatermarkAuthority:
    return WatermarkAuthority(
        {"read": (), "sum": ("read",)},
        (*READ[:splits], SUM),
        {SUM: committed_us},
        growing=["read"],
    )


def input_us(ours: WatermarkAuthority) -> int:
    return ours.inputs_us["sum"]


def test_no_watermark_passes_a_split_that_is_on_its_way() -> None:
    """Neither before it is in the store, nor before its owner has reported; equality at the bound."""
    ours = authority()
    ours.report({READ[0]: 100, READ[1]: 150})
    ours.advance()
    assert ours.hold("read") == 100
    ours.report({READ[0]: 200, READ[1]: 300})
    ours.advance()
    assert input_us(ours) == 100
    ours.add_split(READ[2], 100)
    ours.let_go("read")
    ours.advance()
    assert input_us(ours) == 100
    ours.report({READ[2]: 170})
    ours.advance()
    assert input_us(ours) == 170


def test_a_split_begins_where_the_receivers_are_though_others_are_behind() -> None:
    """A split that comes back from a silence is behind what time has come to without it."""
    ours = authority()
    ours.report({READ[0]: 100, READ[1]: 500})
    ours.advance([READ[0]])
    assert input_us(ours) == 500
    ours.advance()
    assert ours.hold("read") == 500


def test_a_driver_that_has_just_begun_holds_what_is_committed() -> None:
    assert authority(committed_us=70).hold("read") == 70
    assert authority().hold("read") == MIN_TIMESTAMP_US


def test_the_end_of_all_splits_is_not_the_end_of_the_source() -> None:
    """Until it is drained; what comes after the end of all others begins where time was."""
    ours = authority()
    ours.report({READ[0]: 100, READ[1]: 100})
    ours.advance()
    ours.report(dict.fromkeys(READ[:2], MAX_TIMESTAMP_US))
    ours.advance()
    assert (input_us(ours), ours.may_grow) == (100, True)
    assert ours.hold("read") == 100
    ours.add_split(READ[2], 100)
    ours.let_go("read")
    ours.stop_growing()
    ours.advance()
    assert input_us(ours) == 100
    ours.report({READ[2]: MAX_TIMESTAMP_US})
    ours.advance()
    assert (input_us(ours), ours.may_grow) == (MAX_TIMESTAMP_US, False)


@given(
    st.lists(
        st.tuples(st.sampled_from(["report", "hold", "add", "drop"]), st.integers(0, 1_000)),
        max_size=40,
    ),
    st.sets(st.integers(0, 8)),
)
def test_no_watermark_goes_back_or_passes_a_hold(
    acts: list[tuple[str, int]], idle: set[int]
) -> None:
    """Whatever is reported, whoever is idle, and whenever splits come."""
    ours, splits, hold_us, before_us = authority(), 2, None, MIN_TIMESTAMP_US
    for act, number in acts:
        if act == "report":
            ours.report({READ[number % splits]: number})
        elif act == "hold" and hold_us is None:
            hold_us = ours.hold("read")
            assert hold_us >= before_us
        elif act == "add" and hold_us is not None and splits < len(READ):
            ours.add_split(READ[splits], hold_us)
            splits += 1
            ours.let_go("read")
            hold_us = None
        elif act == "drop":
            ours.let_go("read")
            hold_us = None
        ours.advance([READ[each] for each in idle if each < splits - 1])
        assert input_us(ours) >= before_us
        before_us = input_us(ours)
        assert hold_us is None or before_us <= hold_us


def test_new_splits_go_to_the_slot_that_has_fewest() -> None:
    """Of those whose workers live; and where one slot has everything, to that one."""
    spread = Assignment(READ[:3], 3)
    assert [spread.add(READ[index], [0, 1, 2]) for index in (3, 4, 5)] == [0, 1, 2]
    assert spread.add(READ[6], [1]) == 1
    gathered = Assignment(READ[:3], 3)
    for slot in range(3):
        gathered.confirm(slot, READ[:3])
    for released in gathered.move(READ[:3], 1).items():
        gathered.release(*released)
    assert gathered.add(READ[3], [0, 1, 2]) == 1
    assert READ[3] in gathered.ranges_of(1)
