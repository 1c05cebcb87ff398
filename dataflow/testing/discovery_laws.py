"""Laws of a source that gets splits while a job runs (`Source.discover`): what a contract of sources checks of it.

Whatever part of its splits a job knows, those that are discovered are the rest: the records of all of them together are
complete, and each is there once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dataflow.serialization import dumps, loads
from dataflow.source import Source, SplitChanges, check_discovery
from dataflow.testing.source_laws import SplitReading, broken


def check_discovered_splits(
    make_source: Callable[[], Source],
    expected: Iterable[Any] | None,
    desired: int,
    *,
    late_us: int = 0,
    is_static: bool = True,
) -> None:
    """Check what a source discovers beside each beginning of its splits; nothing of a source that is never asked.

    Args:
        make_source: makes the source, with the same content each time.
        expected: the values that are there in the end, in any order; None: they are not compared.
        desired: the number of splits that is asked for.
        late_us: how far behind its watermark a record may be, in microseconds.
        is_static: whether nothing is added to the input meanwhile.

    Raises:
        BrokenRuleError: a rule is not kept.
        PipelineError: the source is refused when a pipeline is built.
    """
    source = make_source()
    check_discovery(source)
    if source.discover_every_ms is None:
        return
    splits = [loads(dumps(each)) for each in source.splits(desired)]
    for count in range(len(splits) + 1):
        known = splits[:count]
        added = _added(source, known, is_static=is_static)
        again = _added(make_source(), [loads(dumps(each)) for each in known], is_static=is_static)
        if is_static and added != again:
            broken(
                "discover must have the same splits when it is asked again, equal to those before",
                f"beside {known}: {added}, then {again}",
            )
        both = [*known, *added]
        if is_static and (more := _added(make_source(), both, is_static=is_static)):
            broken("discover must not add a split that is known", f"beside {both}: {more}")
        if expected is not None and is_static:
            _check_records(make_source, expected, both, late_us)


def _added(source: Source, known: Sequence[Any], *, is_static: bool) -> list[Any]:
    changes: object = source.discover(list(known))
    if not isinstance(changes, SplitChanges):
        broken("discover must return SplitChanges", f"it returned {changes!r:.200}")
    unknown = [each for each in changes.removed if each not in known]
    if unknown:
        broken("discover must remove no split that is not known", f"{unknown}")
    if changes.removed and is_static:
        broken("discover must remove no split that is there", f"{changes.removed}")
    added: list[Any] = []
    for each in changes.added:
        if each in known:
            broken("discover must not add a split that is known", f"{each}")
        if each in added:
            broken("discover must not add a split twice", f"{each}")
        try:
            added.append(loads(dumps(each)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no plain data
            broken("a split must be plain data that can be pickled", f"{each!r}: {error}")
    return added


def _check_records(
    make_source: Callable[[], Source], expected: Iterable[Any], splits: Sequence[Any], late_us: int
) -> None:
    left = Counter[str]()
    for split in splits:
        reading = SplitReading(make_source(), split, late_us=late_us, is_static=True)
        for value, _, sign in reading.read().records:
            left[value] += sign
    wanted = Counter(map(repr, expected))
    if left != wanted:
        broken(
            "the splits that are known and those that are discovered must have each record once",
            f"{splits}; missing: {dict(wanted - left)}, too many: {dict(left - wanted)}",
        )
