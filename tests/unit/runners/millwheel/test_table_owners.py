"""Who may start over: only a job whose rows all go with it."""

import pytest

from runners.errors import TableOwnedError
from runners.millwheel.store.guards import check_can_start_over
from runners.millwheel.store.port import ResultTable


@pytest.mark.parametrize("has_rows", [True, False, None])
@pytest.mark.parametrize("others", [(), ("b",)])
@pytest.mark.parametrize("is_created", [True, False])
def test_rows_that_would_stay_are_refused(
    is_created: bool, others: tuple[str, ...], has_rows: bool | None
) -> None:
    table = ResultTable(name="t", is_created=is_created, others=others, has_rows=has_rows)
    if has_rows and not (is_created and not others):
        with pytest.raises(TableOwnedError, match="job a cannot start over, because table t"):
            check_can_start_over("a", [table])
    else:
        check_can_start_over("a", [table])
