"""What a read can be given about the ids of its records, and what is refused."""

import pickle
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.computations import Topology
from dataflow.graph import Read
from dataflow.io.memory import MemorySource
from dataflow.record_ids import record_digest
from dataflow.serialization import dumps_code, loads_code


def ids(**changes: Any) -> df.RecordIds:
    return df.RecordIds(**{"of": str, "slack": 60, **changes})


def read_of(pipeline: df.Pipeline) -> Read:
    (operation,) = (
        node.operation for node in pipeline.graph().transforms if isinstance(node.operation, Read)
    )
    return operation


@pytest.mark.parametrize(
    "change",
    [
        {"of": "id"},
        {"slack": -1},
        {"expected_ids": 0},
        {"expected_ids": 1.5},
        {"false_positive_rate": 0},
        {"false_positive_rate": 1},
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(df.PipelineError):
        ids(**change)


def test_slack_is_a_duration() -> None:
    assert ids(slack=timedelta(hours=2)).slack_us == ids(slack=7200).slack_us == 7_200_000_000
    with pytest.raises(df.TimeError):
        ids(slack="an hour")


def test_only_record_ids_declares_ids() -> None:
    with pytest.raises(df.PipelineError, match=r"df\.RecordIds"):
        df.Read(MemorySource([1]), record_ids=str)  # type: ignore[arg-type]


@pytest.mark.parametrize("record_id", [None, True, 1.5, ["a"], object(), ("a", ["b"])])
def test_what_is_no_id_is_an_error_with_the_record_and_the_line(record_id: Any) -> None:
    p = df.Pipeline()
    p | df.Create([7]) | "never" >> df.Map(print)
    read = "read" >> df.Read(MemorySource([7]), record_ids=ids(of=lambda _: record_id))
    other = df.Pipeline()
    other | read
    with pytest.raises(
        df.TransformError, match=r"(?s)'read' \(.*test_record_ids.py:\d+\).*record: 7"
    ):
        other.run()


def test_a_function_that_fails_is_named() -> None:
    with (
        pytest.raises(df.TransformError, match=r"(?s)cannot get the id .* KeyError.*\{'a': 1\}"),
        df.Pipeline() as p,
    ):
        p | df.Read(MemorySource([{"a": 1}]), record_ids=ids(of=lambda row: row["id"]))


def test_ids_are_known_by_sixteen_bytes_that_never_change() -> None:
    """They are in the stores of running jobs."""
    digests = [record_digest(each) for each in ("a", b"a", 1, "1", ("a", 1), (), "", 1 << 80)]

    assert len(set(digests)) == len(digests)
    assert {len(each) for each in digests} == {16}
    assert record_digest("order 17").hex() == "db108dba8f5dd62cab36e2833af84513"


def test_the_graph_and_its_fingerprint_have_them_only_where_they_are_given() -> None:
    def pipeline(**options: Any) -> df.Pipeline:
        p = df.Pipeline()
        p | "read" >> df.Read(MemorySource([1]), **options)
        return p

    plain, with_ids, slow, sized = (
        pipeline(),
        pipeline(record_ids=ids()),
        pipeline(record_ids=ids(slack=61)),
        pipeline(record_ids=ids(expected_ids=5, false_positive_rate=0.5)),
    )

    assert read_of(plain).record_ids is None
    assert plain.graph().fingerprint() != with_ids.graph().fingerprint()
    assert with_ids.graph().fingerprint() != slow.graph().fingerprint()
    # How large the filter is does not concern the store.
    assert with_ids.graph().fingerprint() == sized.graph().fingerprint()


def test_whatever_reads_passes_them_on(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "a.jsonl").write_text("1\n")
    given = ids()
    reads: list[Any] = [
        df.Read(MemorySource([1]), record_ids=given),
        df.ReadFromCsv(tmp_path / "a.csv", record_ids=given),
        df.ReadFromJsonLines(tmp_path / "a.jsonl", record_ids=given),
        Topology().injector("numbers", MemorySource([1]), record_ids=given),
    ]
    for read in reads:
        p = df.Pipeline()
        p | read
        assert read_of(p).record_ids is given
    with pytest.raises(df.PipelineError, match="beside a transform"):
        Topology().injector("numbers", reads[0], record_ids=given)


def test_they_travel_to_workers() -> None:
    assert pickle.loads(pickle.dumps(ids(of=len))) == ids(of=len)
    copy = loads_code(dumps_code(ids(of=lambda record: record["id"]), "ids"))
    assert copy.of({"id": 3}) == 3
    lock = threading.Lock()
    with pytest.raises(df.PipelineError, match="cannot be sent"):
        df.Pipeline() | df.Read(MemorySource([1]), record_ids=ids(of=lambda _: lock))
