"""The page that says what was tested how counts what there is."""

import pytest

from tools import tested


@pytest.mark.slow
def test_the_page_counts_what_there_is() -> None:
    """Rounded down, and so that what grows by a third is counted anew."""
    there, stated = tested.counts(), tested.stated(tested.PAGE.read_text("utf-8"))

    assert stated.keys() == there.keys()
    wrong = {
        name: f"{stated[name]}, and there are {count}"
        for name, count in there.items()
        if not stated[name] <= count <= max(stated[name] * 4 // 3, stated[name] + 10)
    }
    assert wrong == {}, "python -m tools.tested --write-docs"


def test_counts_are_rounded_down() -> None:
    assert [tested.rounded(each) for each in (7, 19, 28, 99, 100, 387, 3_298)] == [
        7,
        19,
        20,
        90,
        100,
        380,
        3_200,
    ]
