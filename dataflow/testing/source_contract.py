"""SourceContract: the tests of a source of your own, for pytest; hypothesis draws how it is read.

Needs hypothesis: ``pip install "dataflow-model[testing]"``.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from dataflow.distribution import install_command
from dataflow.source import Source
from dataflow.testing.discovery_laws import check_discovered_splits
from dataflow.testing.source_laws import ReadStep, broken, check_splits

try:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        f"dataflow.testing.source_contract needs hypothesis: {install_command('testing')}"
    ) from error

from dataflow.serialization import dumps_code, loads_code


def schedules() -> st.SearchStrategy[list[ReadStep]]:
    """How a split is read: in pieces of any size, with new readers and notifications anywhere."""
    return st.lists(
        st.builds(
            ReadStep,
            max_records=st.sampled_from([1, 2, 3, 7, 1_000]),
            reopens=st.booleans(),
            acknowledged=st.none() | st.integers(0, 3),
        ),
        max_size=12,
    )


class SourceContract:
    """What every source has to keep, as tests; a subclass names the source and its content.

    * The splits are complete and disjoint, whatever their number.
    * Reading goes on at any position, which is plain data: no record is lost or comes twice, and the same records come
      in the same order, however many are asked for at a time.
    * No record is behind the watermark that its split has reported, which does not go back.
    * A split that is idle, or reports a backlog of 0, has nothing to read, and one that is finished stays so; neither
      an idle nor a finished one has a backlog.
    * A retraction is of a record that was handed over before, by the same split.
    * Whichever of its splits a job knows, `Source.discover` adds the others, each once, and the same when it is asked
      again; it removes none that is there.
    * `Source.release` may be called again, and its splits can be read on where they were read to.
    * `SourceReader.committed` accepts each position that was given, at any time and again; `SourceReader.close` too.

    Example::

        class TestOrders(SourceContract):
            def make_source(self):
                return Orders(FOLDER)

            def expected(self):
                return ["tea", "cake"]

    Attributes:
        late_us: how far behind its watermark a record may be, in microseconds.
        is_static: whether nothing is added to the input while it is read, so that an idle split stays idle.
        splits_max: into how many splits it is divided at most.
        examples: how many schedules are tried.
    """

    late_us: int = 0
    is_static: bool = True
    splits_max: int = 4
    examples: int = 30

    def make_source(self) -> Source:
        """The source, with the same content each time."""
        raise NotImplementedError(f"{type(self).__name__} has to define make_source")

    def expected(self) -> Iterable[Any] | None:
        """The values that are there in the end, in any order; None: they are not compared."""
        return None

    def test_splits_are_complete_and_disjoint(self) -> None:
        """Whatever their number."""
        for desired in range(1, 2 * self.splits_max + 1):
            self._check(desired, ())

    def test_it_can_be_read_by_any_schedule(self) -> None:
        """And go on anywhere."""

        @settings(max_examples=self.examples, deadline=None, suppress_health_check=[*HealthCheck])
        @given(desired=st.integers(1, self.splits_max), schedule=schedules())
        def check(desired: int, schedule: list[ReadStep]) -> None:
            self._check(desired, schedule)

        check()

    def test_it_goes_on_behind_any_record(self) -> None:
        """In pieces of one size, all by one reader, or each by another."""
        for size in (1, 2, 3):
            for reopens in (False, True):
                self._check(1, [ReadStep(size, reopens=reopens)] * 50)

    def test_it_is_notified_of_any_position(self) -> None:
        """Of newer and older ones, and again."""
        self._check(1, [ReadStep(1, acknowledged=each) for each in (0, 0, 1, 0, 3, 1) * 5])

    def test_it_discovers_its_splits(self) -> None:
        """Whichever of them a job knows, the rest is discovered, each once."""
        for desired in (1, self.splits_max):
            check_discovered_splits(
                self.make_source,
                self.expected(),
                desired,
                late_us=self.late_us,
                is_static=self.is_static,
            )

    def test_it_can_be_sent_to_workers(self) -> None:
        """A copy that was pickled has the same records, and so has the source for those that read again."""

        def shipped() -> Source:
            source: Source = loads_code(dumps_code(self.make_source(), "the source"))
            return source

        self._check_of(shipped)
        if self.make_source().is_bounded:
            self._check_of(lambda: self.make_source().repeatable())

    def test_it_knows_its_type_and_name(self) -> None:
        """The name of the input is text, if there is one."""
        source = self.make_source()
        if not isinstance(source.input_name, str | None):
            broken("the name of the input must be text, or None", f"{source.input_name!r}")
        assert source.element_type is not None

    def _check_of(self, make_source: Any) -> None:
        check_splits(
            make_source,
            self.expected(),
            2,
            [ReadStep(2), ReadStep(1, reopens=True)],
            late_us=self.late_us,
            is_static=self.is_static,
        )

    def _check(self, desired: int, schedule: Sequence[ReadStep]) -> None:
        check_splits(
            self.make_source,
            self.expected(),
            desired,
            schedule,
            late_us=self.late_us,
            is_static=self.is_static,
        )
