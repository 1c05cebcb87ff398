"""ReadFromKafka: the records of topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from dataflow.errors import PipelineError, TimeError
from dataflow.io.arrival import ArrivalTime, system_now_us
from dataflow.io.create import Read
from dataflow.io.files import UNITS_US
from dataflow.io.json_lines import check_row_fields
from dataflow.io.json_row_form import JsonRowForm
from dataflow.io.kafka.clients import KafkaClients, clients_of
from dataflow.io.kafka.reading import KafkaReading
from dataflow.io.kafka.records import KafkaRecord, RecordForm
from dataflow.io.kafka.source import EARLIEST, LATEST, NOW, KafkaSource, Place
from dataflow.io.kafka.values import KafkaSchemas, decoder_of
from dataflow.io.max_ahead import DEFAULT_MAX_AHEAD
from dataflow.one_output import OneOutput
from dataflow.pipeline import PCollection
from dataflow.record_ids import RecordIds
from dataflow.rows import row_fields
from dataflow.type_vars import T
from windowing.timestamps import DurationLike, TimestampLike, to_duration_us, to_timestamp_us

if TYPE_CHECKING:
    from dataflow.pipeline import Pipeline

#: How the bytes of keys and values are decoded.
Decoding = str | Callable[[bytes], Any] | KafkaSchemas


class ReadFromKafka(OneOutput["Pipeline", T]):
    """Records of topics of Kafka, exactly once.

    Elements are `KafkaRecord` s: key, value, headers, topic, partition, offset and timestamp; or, with ``rows``, typed
    rows of values that are JSON.  Each partition is a split; those that are added while a stream runs are found.
    Offsets are positions of the job, in its store; docs/connectors/kafka.md has what is promised.

    Args:
        topics: the name of one topic, or of several.
        bootstrap_servers: addresses of some brokers, ``"host:port,host:port"``; or clients, such as those of a
            `dataflow.testing.model_kafka.ModelKafka`.
        config: settings of librdkafka, such as those of security.
        key, value: how each is decoded: ``"bytes"``, ``"text"``, ``"json"``, a function of the bytes, or
            `KafkaSchemas`.  What is missing is None in any case.
        rows: a row type, as for `ReadFromJsonLines`: elements are rows of values that are JSON objects, in columns.
        event_time: a function of the element; with ``rows`` also the name of a field; or `ARRIVAL_TIME`.  None: the
            timestamp of the record.
        event_time_unit: ``s``, ``ms`` or ``us``: of a field that is a number.
        max_disorder: how far event times go back in a partition, at most; the watermark follows at that distance.
            None: event time does not move before the end.
        max_ahead: how far event times may be ahead of the clock, before a record is set aside; None: as far as they
            are.
        idle_follows_clock: whether the watermark of a partition with nothing more goes on with the clock, at the
            distance of ``max_disorder``.  Otherwise such a partition is idle, and others do not wait for it; where all
            are, event time stands still.
        start: where a new job begins: ``"earliest"``, ``"latest"``, an instant (the first record of that timestamp or
            later), or offsets: ``{partition: offset}``, or ``{(topic, partition): offset}``; partitions that are not
            named begin at the earliest.
        until: where the input ends: ``"now"``, an instant, or offsets; None: never.
        group_id: whose offsets follow what is committed, for tools that show how far a job is behind; None: nobody's.
        read_committed: whether records of transactions are read when these are committed, and never when they are
            aborted.
        skip_lost: whether records that have expired before they were read are passed over, with a dead letter that
            says which; otherwise they end the run.
        record_ids: how copies of records are recognised, which a producer has sent twice; None: not at all.

    Raises:
        InputError: a topic is missing, or the cluster does not answer: when the pipeline is built.  Later, that a
            topic was deleted or made anew, or that records have expired before they were read.
        PipelineError: the arguments do not suit each other, or confluent-kafka is not installed.
    """

    @overload
    def __init__(
        self: ReadFromKafka[KafkaRecord],
        topics: str | Sequence[str],
        *,
        bootstrap_servers: str | KafkaClients,
        config: Mapping[str, Any] | None = ...,
        key: Decoding = ...,
        value: Decoding = ...,
        rows: None = ...,
        event_time: Callable[[KafkaRecord], TimestampLike] | ArrivalTime | None = ...,
        event_time_unit: None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        idle_follows_clock: bool = ...,
        start: Place = ...,
        until: Place | None = ...,
        group_id: str | None = ...,
        read_committed: bool = ...,
        skip_lost: bool = ...,
        record_ids: RecordIds | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        bootstrap_servers: str | KafkaClients,
        config: Mapping[str, Any] | None = ...,
        rows: type[T],
        event_time: Callable[[T], TimestampLike] | ArrivalTime | str | None = ...,
        event_time_unit: str | None = ...,
        max_disorder: DurationLike | None = ...,
        max_ahead: DurationLike | None = ...,
        idle_follows_clock: bool = ...,
        start: Place = ...,
        until: Place | None = ...,
        group_id: str | None = ...,
        read_committed: bool = ...,
        skip_lost: bool = ...,
        record_ids: RecordIds | None = ...,
    ) -> None: ...
    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        bootstrap_servers: str | KafkaClients,
        config: Mapping[str, Any] | None = None,
        key: Decoding = "bytes",
        value: Decoding = "bytes",
        rows: type | None = None,
        event_time: Callable[[Any], TimestampLike] | ArrivalTime | str | None = None,
        event_time_unit: str | None = None,
        max_disorder: DurationLike | None = None,
        max_ahead: DurationLike | None = DEFAULT_MAX_AHEAD,
        idle_follows_clock: bool = False,
        start: Place = EARLIEST,
        until: Place | None = None,
        group_id: str | None = None,
        read_committed: bool = True,
        skip_lost: bool = False,
        record_ids: RecordIds | None = None,
    ) -> None:
        self._arrival = event_time if isinstance(event_time, ArrivalTime) else None
        time_of = None if isinstance(event_time, ArrivalTime) else event_time
        self._record_ids, self._max_ahead = record_ids, max_ahead
        disorder_us = None if max_disorder is None else to_duration_us(max_disorder)
        if disorder_us is not None and disorder_us < 0:
            raise PipelineError(
                f"ReadFromKafka was given a negative max_disorder, {max_disorder!r}",
                hint="it is how far event times go back: zero or more",
            )
        if idle_follows_clock and disorder_us is None:
            raise PipelineError(
                "ReadFromKafka was given idle_follows_clock without max_disorder",
                hint="give max_disorder=..., the distance at which the watermark follows",
            )
        _check_place("start", start, {EARLIEST, LATEST})
        if until is not None:
            _check_place("until", until, {NOW, LATEST})
        form = RecordForm(
            key=decoder_of("key", key),
            value=decoder_of("value", value),
            rows=_rows_form(rows, time_of, event_time_unit, decodes=(key, value)),
            event_time=time_of,
            unit_us=UNITS_US[event_time_unit or "s"],
        )
        reading = KafkaReading(
            clients=clients_of(bootstrap_servers, config),
            form=form,
            now_us=system_now_us,
            group_id=group_id,
            max_disorder_us=disorder_us,
            idle_follows_clock=idle_follows_clock,
            is_committed=read_committed,
            skips_lost=skip_lost,
        )
        self._source = KafkaSource(topics=_names(topics), reading=reading, start=start, until=until)

    def default_label(self) -> str:
        """``ReadFromKafka(topics)``."""
        return f"ReadFromKafka({self._source.input_name})"

    def expand(self, pcoll: Pipeline) -> PCollection[T]:
        """Check that the topics are there, and read them."""
        self._source.check()
        return pcoll | Read(
            self._source,
            event_time=self._arrival,
            record_ids=self._record_ids,
            max_ahead=self._max_ahead,
        )


def _names(topics: str | Sequence[str]) -> tuple[str, ...]:
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise PipelineError(
            f"ReadFromKafka cannot read {topics!r}", hint="give the name of a topic, or several"
        )
    return tuple(dict.fromkeys(names))


def _check_place(name: str, place: Any, words: set[str]) -> None:
    """Refuse what is no place in a topic."""
    if isinstance(place, Mapping):
        if all(isinstance(offset, int) and offset >= 0 for offset in place.values()):
            return
    elif isinstance(place, str) and place in words:
        return
    else:
        try:
            to_timestamp_us(place)
        except (TimeError, TypeError, ValueError):
            pass
        else:
            return
    raise PipelineError(
        f"ReadFromKafka was given {name}={place!r}",
        hint=f"give one of {', '.join(map(repr, sorted(words)))}, an instant with its time zone, or offsets: "
        "{partition: offset}",
    )


def _rows_form(
    rows: type | None, event_time: object, unit: str | None, *, decodes: tuple[Any, Any]
) -> JsonRowForm | None:
    name = "ReadFromKafka"
    if rows is None:
        if isinstance(event_time, str) or unit is not None:
            raise PipelineError(
                f"{name} takes the name of a field, and a unit, with rows=... only",
                hint="give the row type, or a function that gives an instant for each record",
            )
        return None
    if decodes != ("bytes", "bytes"):
        raise PipelineError(
            f"{name} was given key= or value= with rows=...",
            hint="leave them out: rows are made of values that are JSON; or leave rows out",
        )
    fields = row_fields(rows, name)
    check_row_fields(name, rows, fields, event_time if isinstance(event_time, str) else None, unit)
    return JsonRowForm(row_type=rows, fields=fields, unit="record")
