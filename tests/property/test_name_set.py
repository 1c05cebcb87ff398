"""A set of names is the set of those names, and numbered ones take little room."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from dataflow.computations.name_set import NameSet

#: Numbers that touch, with and without leading zeros; names without any; other digits than ours.
NAMES = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "part-", "2024-"]),
        st.integers(0, 12).map(str) | st.integers(0, 12).map("{:02}".format),
        st.sampled_from(["", ".csv"]),
    ),
    st.text(st.sampled_from("a1٣.\n"), max_size=4),
)


@given(added=st.lists(NAMES), asked=st.lists(NAMES), stored_after=st.integers(0, 20))
def test_it_is_a_set(added: list[str], asked: list[str], stored_after: int) -> None:
    """Also when it has been stored on the way."""
    names = NameSet()
    for number, name in enumerate(added):
        names.add(name)
        if number == stored_after:
            names = NameSet(pickle.loads(pickle.dumps(names.runs())))

    for name in [*added, *asked]:
        assert (name in names) == (name in added)


@given(st.permutations([f"part-{number:05}.csv" for number in range(60)]), st.integers(0, 59))
def test_numbered_names_are_one_entry(order: list[str], missing: int) -> None:
    names = NameSet()
    for name in order:
        if name != f"part-{missing:05}.csv":
            names.add(name)
    ((prefix, digits, suffix, bounds),) = names.runs()

    assert (prefix, digits, suffix) == ("part-", 5, ".csv")
    assert len(bounds) <= 4
