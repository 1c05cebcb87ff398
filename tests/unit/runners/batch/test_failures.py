"""An error crosses processes and comes out as what it was."""

import pickle

import pytest

from dataflow.errors import TransformError
from runners.batch.failures import Failure, FailuresParam, failure_of, is_transient, raise_failure
from runners.errors import StoreUnreachableError


def carried(error: Exception) -> Failure:
    failure: Failure = pickle.loads(pickle.dumps(failure_of(error, "transform 'x' (job.py:1)")))
    return failure


def test_an_error_of_ours_arrives_as_it_is_with_the_users_traceback_as_cause() -> None:
    try:
        try:
            int("seven")
        except ValueError as cause:
            raise TransformError("fact", detail="detail", hint="hint") from cause
    except TransformError as error:
        failure = carried(error)

    with pytest.raises(TransformError) as caught:
        raise_failure(failure)
    arrived = caught.value
    assert (arrived.fact, arrived.detail, arrived.hint) == ("fact", "detail", "hint")
    assert 'int("seven")' in str(arrived.__cause__)
    assert "raise TransformError" not in str(arrived.__cause__)


def test_any_other_error_names_the_stage() -> None:
    with pytest.raises(TransformError, match=r"transform 'x' \(job.py:1\).*KeyError: 'k'"):
        raise_failure(carried(KeyError("k")))


def test_only_what_may_pass_is_tried_again() -> None:
    assert is_transient(StoreUnreachableError("down"))
    assert is_transient(ConnectionResetError())
    assert not is_transient(TransformError("always"))
    assert not is_transient(ZeroDivisionError())


def test_failures_accumulate() -> None:
    param, failure = FailuresParam(), failure_of(KeyError("k"), "transform")

    assert param.addInPlace(param.addInPlace(param.zero([]), [failure]), []) == [failure]
