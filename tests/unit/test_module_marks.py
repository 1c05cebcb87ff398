"""Modules that are not imported are those of which pytest would leave out every test."""

import pytest

from tests.module_marks import leaves_all_out

DAILY = "not spark and not slow"
SEVERAL = "pytestmark = [\n    pytest.mark.spark,\n    pytest.mark.timeout(900),\n]\n"


@pytest.mark.parametrize(
    ("program", "expression", "is_left_out"),
    [
        ("pytestmark = pytest.mark.slow\n", DAILY, True),
        ("import pytest\n\npytestmark = pytest.mark.slow  # a compiler runs\n", DAILY, True),
        (SEVERAL, DAILY, True),
        (SEVERAL, "not slow", False),
        ("pytestmark = pytest.mark.postgres\n", DAILY, False),
        ("pytestmark = pytest.mark.slowest\n", DAILY, False),
        # Of one test, not of all.
        ("@pytest.mark.slow\ndef test_it() -> None: ...\n", DAILY, False),
        ("pytestmark = []\n\n@pytest.mark.slow\ndef test_it() -> None: ...\n", DAILY, False),
        # A single test may have a mark that is asked for.
        ("pytestmark = pytest.mark.slow\n", "faults", False),
        ("pytestmark = pytest.mark.slow\n", "not slow or faults", False),
        ("pytestmark = pytest.mark.slow\n", "not slow and faults", False),
        ("pytestmark = pytest.mark.slow\n", "not (slow and spark)", False),
        ("pytestmark = pytest.mark.slow\n", "", False),
    ],
)
def test_a_mark_of_the_module_leaves_all_tests_out(
    program: str, expression: str, is_left_out: bool
) -> None:
    assert leaves_all_out(expression, program) == is_left_out
