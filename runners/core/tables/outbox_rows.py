"""Computes the rows of an outbox: a bundle of signed elements, on its way to a sink."""

from collections.abc import Sequence
from typing import Any

from dataflow.element_digests import element_digest
from dataflow.errors import PipelineError, TableRowError, TransformError
from dataflow.graph import TransformNode
from dataflow.serialization import dumps
from dataflow.sink import Sink
from dataflow.table import Row, TableSpec, TableWrite
from runners.core.ground.bundle import Bundle
from runners.core.ground.element_text import shown
from runners.core.tables.changelog import CheckedRows, checked
from runners.core.tables.rows import rows_of
from windowing.errors import error_text


def outbox_write(
    node: TransformNode, outbox: TableSpec, sink: Sink[Any], bundle: Bundle
) -> TableWrite:
    """The rows that a bundle adds to the outbox of a sink, in the order of the bundle.

    Args:
        node: the transform that writes.
        outbox: of the sink.
        sink: decides on the lanes.
        bundle: elements with their signs.

    Raises:
        TransformError: an element is no row with every column, or cannot be pickled, or the sink finds no lane for it.
        TableRowError: a value does not fit its column.
    """
    signs = bundle.signs or [+1] * len(bundle)
    elements: Sequence[Any] = bundle.values
    if sink.columns is not None:
        elements = rows_of(node, list(sink.columns), elements)
    lanes = [0] * len(elements) if sink.lanes == 1 else _lanes(node, sink, elements)
    if sink.columns is None:
        stored: Sequence[tuple[Any, ...]] = [(_pickled(node, each),) for each in elements]
    else:
        stored = elements
    rows: Sequence[Row] = [
        (lane, sign, *values) for lane, sign, values in zip(lanes, signs, stored, strict=True)
    ]
    try:
        rows = checked(outbox, rows)
    except TableRowError as error:
        raise error.located(str(node)) from None
    return TableWrite(table=outbox, inserts=CheckedRows(outbox, rows))


def _lanes(node: TransformNode, sink: Sink[Any], elements: Sequence[Any]) -> list[int]:
    found = list[int]()
    for element in elements:
        try:
            found.append(element_digest(sink.lane_key(element)) % sink.lanes)
        except Exception as error:
            raise TransformError(
                f"{node} finds no lane for an element: {error_text(error)}",
                detail=f"the element: {shown(element)}",
                hint=f"the lane_key of {type(sink).__name__} has to return a key for it",
            ) from error
    return found


def _pickled(node: TransformNode, element: Any) -> bytes:
    try:
        return dumps(element)
    except PipelineError as error:
        raise error.located(str(node)) from error
