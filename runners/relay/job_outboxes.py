"""Outboxes of a job: their tables have names of the job's own."""

import re
from hashlib import sha256

import attrs

from dataflow.graph import PipelineGraph, WriteTable

SCHEMA = "dataflow_outbox"
#: Of a name in Postgres, and of the part of it that people read where it would be longer.
_NAME_BYTES_MAX, _READABLE_BYTES_MAX = 63, 50


def with_outboxes_of(graph: PipelineGraph, job: str) -> PipelineGraph:
    """The pipeline, with an outbox of the job for each sink.

    Args:
        graph: with sinks, or without.
        job: its name.
    """
    if not graph.sinks():
        return graph
    nodes = [
        attrs.evolve(
            node,
            operation=attrs.evolve(
                node.operation,
                table=attrs.evolve(node.operation.table, name=outbox_name(job, node.label)),
            ),
        )
        if isinstance(node.operation, WriteTable) and node.operation.sink is not None
        else node
        for node in graph.transforms
    ]
    return attrs.evolve(graph, transforms=tuple(nodes))


def outbox_name(job: str, label: str) -> str:
    """The table of what waits for a sink, with its schema.

    Args:
        job: its name.
        label: of the transform that writes to the sink.
    """
    plain = f"{job}/{label}"
    name = re.sub(r"[^\w/ -]", "_", plain)
    if name != plain or len(name.encode()) > _NAME_BYTES_MAX:
        short = name.encode()[:_READABLE_BYTES_MAX].decode(errors="ignore")
        name = f"{short} {sha256(plain.encode()).hexdigest()[:10]}"
    return f"{SCHEMA}.{name}"
