"""What a source that retracts records may be read with, and what its reader may return."""

from collections.abc import Sequence
from typing import Any

import pytest

import dataflow as df
from dataflow.errors import InputError, PipelineError
from dataflow.source import Source, SourceBatch, SourceReader, SplitStatus
from runners.direct import DirectRunner
from runners.testing.scripted_source import Batch, ScriptedSource
from windowing.timestamps import MAX_TIMESTAMP_US

FAR_US = 7_258_118_400_000_000


class Changes(Source[int]):
    """One batch of numbers with signs, whatever it says of itself."""

    def __init__(
        self, signs: Sequence[int] | None, *, emits_retractions: bool = True, at_us: int = 0
    ) -> None:
        self._signs, self._emits_retractions = signs, emits_retractions
        self._at_us = at_us

    @property
    def emits_retractions(self) -> bool:
        return self._emits_retractions

    def splits(self, desired: int) -> Sequence[int]:
        return [0]

    def open(self, split: int, position: int | None, *, fence: int) -> SourceReader:
        return _Reader(self._signs, self._at_us)


class _Reader(SourceReader):
    def __init__(self, signs: Sequence[int] | None, at_us: int) -> None:
        self._signs, self._at_us, self._watermark_us = signs, at_us, at_us

    def read(self, max_records: int) -> SourceBatch:
        values, signs, self._signs = [7, 7], self._signs, None
        is_over = self._at_us is None
        batch = SourceBatch(
            values=[] if is_over else values,
            timestamps_us=[] if is_over else [self._at_us] * 2,
            position=None,
            watermark_us=MAX_TIMESTAMP_US if is_over else self._watermark_us,
            status=SplitStatus.FINISHED if is_over else SplitStatus.ACTIVE,
            signs=None if is_over else signs,
        )
        self._at_us = None  # type: ignore[assignment] # nothing is left
        return batch


def run(source: Source[Any]) -> list[Any]:
    p = df.Pipeline()
    return df.collect(p | df.Read(source), DirectRunner(bundle_records=10))


def test_a_retracted_record_is_gone() -> None:
    assert run(Changes([1, -1])) == []
    assert run(Changes([1, 1])) == run(Changes(None)) == [7, 7]


@pytest.mark.parametrize("signs", [[1], [1, 1, -1], []])
def test_each_record_has_a_sign(signs: list[int]) -> None:
    with pytest.raises(InputError, match=rf"2 records by its source, and {len(signs)} signs"):
        run(Changes(signs))


@pytest.mark.parametrize("sign", [0, 2, -3])
def test_a_sign_is_plus_or_minus_one(sign: int) -> None:
    with pytest.raises(InputError, match=f"a sign of {sign} by its source"):
        run(Changes([1, sign]))


def test_a_source_must_declare_that_it_retracts() -> None:
    with pytest.raises(InputError, match="does not say that it retracts records") as error:
        run(Changes([1, -1], emits_retractions=False))
    assert "emits_retractions" in str(error.value)
    assert run(Changes([1, 1], emits_retractions=False)) == [7, 7]


def test_what_is_too_far_ahead_is_set_aside_with_its_sign() -> None:
    p = df.Pipeline(DirectRunner(bundle_records=10, tries_per_record=1))
    p | df.Read(Changes([1, -1], at_us=FAR_US))
    letters = p.run().dead_letters()
    assert [letter["sign"] for letter in letters] == [1, -1]


def test_record_ids_are_refused() -> None:
    with pytest.raises(PipelineError, match="cannot deduplicate the records of Changes"):
        df.Read(Changes(None), record_ids=df.RecordIds(of=lambda n: n, slack=0))


def test_the_time_of_arrival_is_refused() -> None:
    with pytest.raises(PipelineError, match="the time of their arrival"):
        df.Read(Changes(None), event_time=df.ARRIVAL_TIME)


def test_a_grouping_of_it_retracts_by_itself() -> None:
    p = df.Pipeline()
    grouped = p | df.Read(Changes(None)) | df.WithKeys(0) | df.GroupByKey()
    assert grouped.node.retracted_by is not None


def test_a_grouping_that_cannot_retract_is_refused() -> None:
    p = df.Pipeline()
    discarding = df.WindowInto(df.GlobalWindows(), accumulation_mode=df.AccumulationMode.DISCARDING)
    pairs = p | "changes" >> df.Read(Changes(None)) | df.WithKeys(0) | discarding
    with pytest.raises(PipelineError, match=r"'changes' \(.*\) retracts what it has emitted"):
        pairs | df.GroupByKey()


def test_a_table_without_a_key_is_refused() -> None:
    p = df.Pipeline()
    rows = p | df.Read(Changes(None)) | df.Map(lambda n: {"n": n})
    with pytest.raises(PipelineError, match="only adds rows"):
        rows | df.WriteToPostgres("numbers", columns={"n": int})


@df.nondeterministic
def drawn(number: int) -> int:
    return number


def test_code_that_is_not_deterministic_is_refused_where_nobody_keeps_what_it_returns() -> None:
    p = df.Pipeline()
    changes = p | "changes" >> df.Read(Changes(None))
    retracting = df.WindowInto(
        df.GlobalWindows(), accumulation_mode=df.AccumulationMode.ACCUMULATING_AND_RETRACTING
    )
    others = p | "others" >> df.Create([1]) | retracting
    with pytest.raises(PipelineError, match=r"'draw' .* is non-deterministic, and .*'changes'"):
        (changes, others) | df.Flatten() | "draw" >> df.Map(drawn)
    retried = df.Map(str).with_exception_handling(retries=1)
    with pytest.raises(PipelineError, match="is non-deterministic"):
        changes | "again" >> retried


def test_code_that_is_not_deterministic_is_allowed_behind_a_grouping_and_a_changelog() -> None:
    """And with side inputs, which keep what was emitted with their views."""
    p = df.Pipeline(DirectRunner())
    changes = p | "changes" >> df.Read(Changes([1, -1]))
    one = p | df.Create([1])
    changes | df.Distinct() | "draw from groups" >> df.Map(drawn)
    (
        changes
        | df.ToChangelog()
        | "draw from changes" >> df.Map(df.nondeterministic(lambda change: change))
    )
    numbers = df.nondeterministic(lambda number, one: number + one)
    changes | "draw with one" >> df.Map(numbers, df.AsSingleton(one))
    p.run()


def test_a_script_without_signs_takes_nothing_back() -> None:
    assert not ScriptedSource([Batch([1], [0])]).emits_retractions
