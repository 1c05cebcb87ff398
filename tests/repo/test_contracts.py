"""Each source and sink of the SDK keeps its contract in a test, and another test shows that a broken one does not."""

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import dataflow
import runners.sinks
from dataflow.sink import SinkWriter
from dataflow.source import Source

ROOT = Path(__file__).parents[2] / "tests"
_MUTATED = "repo/test_file_mutations.py::test_files_that_are_read_wrongly_are_noticed"
_IN_MEMORY = "property/test_source_contract.py::test_a_source_that_breaks_a_rule_is_refused"
_LAKES = "conformance/test_lake_sources.py::test_the_contract_rejects"
#: Of each: a class that runs the contract over it, and a test in which the contract notices one that is broken.
SOURCES: dict[str, tuple[str, str]] = {
    "ArrivalTimeSource": ("property/test_source_contract.py::TestArrival", _IN_MEMORY),
    "AvroSource": (
        "conformance/test_file_reads.py::TestAvro",
        "conformance/test_file_reads.py::test_the_contract_rejects_a_reader_of_avro_that_is_wrong",
    ),
    "ChangesSource": (
        "integration/test_postgres_changes.py::TestChanges",
        "integration/test_postgres_changes.py::test_the_contract_rejects_a_reader_that_is_wrong",
    ),
    "CsvInjector": ("property/test_source_contract.py::TestInjector", _MUTATED),
    "CsvSource": ("property/test_source_contract.py::TestCsv", _MUTATED),
    "CsvWatcher": ("property/test_source_contract.py::TestWatcher", _MUTATED),
    "DeltaSource": ("conformance/test_lake_sources.py::TestDeltaFeed", _LAKES),
    "HttpSource": (
        "integration/test_http.py::TestReceiverContract",
        "integration/test_http.py::test_a_reader_that_is_broken_is_noticed",
    ),
    "IcebergSource": ("conformance/test_lake_sources.py::TestIcebergAppends", _LAKES),
    "ImpulseSource": ("property/test_source_contract.py::TestImpulse", _IN_MEMORY),
    "JsonLinesInjector": ("property/test_source_contract.py::TestInjector", _MUTATED),
    "JsonLinesSource": ("property/test_source_contract.py::TestJsonLines", _MUTATED),
    "JsonLinesWatcher": ("property/test_source_contract.py::TestWatcher", _MUTATED),
    "JsonRowsSource": ("property/test_source_contract.py::TestJsonColumns", _MUTATED),
    "KafkaSource": (
        "integration/test_kafka_mock.py::TestRows",
        "property/test_kafka_source.py::test_a_reader_that_is_wrong_is_noticed",
    ),
    "KeyChunksSource": (
        "integration/test_postgres_key_chunks.py::TestPrimaryKey",
        "integration/test_postgres_key_chunks.py::test_the_contract_rejects_a_wrong_comparison",
    ),
    "MemorySource": ("property/test_source_contract.py::TestMemory", _IN_MEMORY),
    "NatsSource": (
        "integration/test_nats.py::TestNatsSource",
        "integration/test_nats.py::test_the_contract_rejects_a_reader_that_goes_on_one_too_far",
    ),
    "ParquetSource": (
        "property/test_source_contract.py::TestParquet",
        "repo/test_parquet_mutations.py::test_files_that_are_read_wrongly_are_noticed",
    ),
    "PeriodicSource": ("property/test_source_contract.py::TestPeriodic", _IN_MEMORY),
    "RedisSource": (
        "integration/test_redis.py::TestRedisSource",
        "integration/test_redis.py::test_the_contract_rejects_a_reader_that_goes_on_at_its_last_entry",
    ),
    "RowsSource": (
        "integration/test_postgres_rows.py::TestTable",
        "integration/test_postgres_rows.py::test_the_contract_rejects_a_reader_that_goes_on_one_too_far",
    ),
    "SparkDataSourceSource": (
        "integration/test_spark_data_sources.py::TestDataSourceContract",
        "integration/test_spark_data_sources.py::test_the_contract_rejects_a_reader_that_goes_on_one_too_far",
    ),
    "SparkInboxSource": (
        "integration/test_spark_inbox.py::TestInboxContract",
        "integration/test_spark_inbox.py::test_an_inbox_that_forgets_what_was_read_is_noticed",
    ),
    "SparkStreamSource": (
        "integration/test_spark_streams.py::TestPartitionedStreamContract",
        "integration/test_spark_streams.py::test_a_reader_that_is_broken_is_noticed",
    ),
    "TextLinesSource": ("property/test_source_contract.py::TestText", _MUTATED),
    "WatchedSource": (
        "conformance/test_file_reads.py::test_a_watched_folder_is_read_once",
        "conformance/test_file_reads.py::test_a_reader_that_forgets_names_is_noticed",
    ),
}
#: The same of what writes to sinks.
WRITERS: dict[str, tuple[str, str]] = {
    # HTTP keeps no number, so there is no contract of numbers: the relay that counts for it has the laws.
    "HttpWriter": (
        "property/test_relays.py::test_a_sink_that_keeps_no_number_has_every_change_at_least_once",
        "property/test_relays.py::test_a_rule_of_at_least_once_that_is_broken_is_noticed",
    ),
    # It says so in its argument, and its messages have ids by which readers drop what comes again.
    "AtLeastOnceWriter": (
        "property/test_kafka_sink.py::test_what_may_come_twice_can_be_known",
        "property/test_kafka_sink.py::test_a_rule_that_is_broken_is_noticed",
    ),
    "DeltaWriter": (
        "conformance/test_lake_sinks.py::TestDelta",
        "conformance/test_lake_sinks.py::test_broken_writers_are_found",
    ),
    "FileWriter": (
        "conformance/test_file_sinks.py::TestParquetInS3",
        "conformance/test_file_sinks.py::test_the_contract_rejects_files_that_are_seen_too_early",
    ),
    "IcebergWriter": (
        "conformance/test_lake_sinks.py::TestIceberg",
        "conformance/test_lake_sinks.py::test_broken_writers_are_found",
    ),
    "ModelWriter": (
        "conformance/test_sink_contract.py::TestModelSink",
        "conformance/test_sink_contract.py::test_the_contract_rejects_a_sink_that_is_wrong",
    ),
    "NatsWriter": (
        "integration/test_nats.py::TestNatsSink",
        "integration/test_nats.py::test_the_contract_rejects_writers_that_are_wrong",
    ),
    "PostgresWriter": (
        "conformance/test_sink_contract.py::TestPostgresChangelog",
        "conformance/test_sink_contract.py::test_the_contract_rejects_writers_of_postgres_that_are_wrong",
    ),
    "RedisWriter": (
        "integration/test_redis.py::TestRedisSink",
        "integration/test_redis.py::test_the_contract_rejects_scripts_that_are_wrong",
    ),
    "TopicWriter": (
        "property/test_kafka_sink.py::TestUpserts",
        "property/test_kafka_sink.py::test_a_writer_that_fences_nobody_is_noticed",
    ),
}


def shipped(base: type) -> set[str]:
    """The classes of the SDK that can be read, or be written with."""
    for package in (dataflow, runners.sinks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)

    def below(kind: Any) -> Iterator[type]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    kinds: list[type] = list(below(base))
    return {
        each.__name__
        for each in kinds
        if each.__module__.startswith(("dataflow.", "runners.sinks."))
        and not inspect.isabstract(each)
        and not each.__name__.startswith("_")
    } - {"FileInjector", "FileWatcher"}  # they leave it to their two kinds what a line is


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        each.name for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)
    )


@pytest.mark.parametrize(("base", "known"), [(Source, SOURCES), (SinkWriter, WRITERS)])
def test_each_has_a_contract_that_a_broken_one_does_not_keep(
    base: type, known: dict[str, tuple[str, str]]
) -> None:
    """Whoever adds one runs `SourceContract` or `SinkContract` over it, breaks it, and names both tests here."""
    assert shipped(base) == set(known)
    for name, tests in known.items():
        for test in tests:
            path, _, node = test.partition("::")
            assert node in names_in(path), f"{name}: {path} has no {node}"


def test_a_new_connector_without_a_contract_is_noticed() -> None:
    added: Any = type("AddedWriter", (SinkWriter,), {"__module__": "dataflow.added"})
    try:
        added.__abstractmethods__ = frozenset()
        assert "AddedWriter" in shipped(SinkWriter) - set(WRITERS)
    finally:
        added.__module__ = "gone"
