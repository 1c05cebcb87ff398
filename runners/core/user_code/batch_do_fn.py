"""Runs `DoFn.process_batch`: converts elements to a record batch, and its result back to elements."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from dataflow.columns import ARROW_TYPES, TIMESTAMP_TYPE, Rows
from dataflow.do_fn import DoFn
from dataflow.errors import PipelineError, TransformError
from dataflow.graph import TransformNode
from dataflow.rows import is_row_type, row_class, row_fields
from runners.core.ground.bundle import Bundle
from runners.core.ground.element_text import shown
from runners.core.user_code.do_fn_outputs import failure, hook_failure
from windowing.window_columns import Int64s


@attrs.frozen
class BatchDoFn:
    """The `process_batch` of one transform."""

    node: TransformNode
    fn: DoFn

    def takes(self, values: Sequence[Any]) -> bool:
        """Whether elements are passed to it, and not to ``process``, if the class has both."""
        return isinstance(values, Rows) or type(self.fn).process is DoFn.process

    def run(self, bundle: Bundle) -> Bundle | None:
        """The output for a bundle; None for nothing.

        Raises:
            TransformError: it raised; elements are not rows of one type; or it returned something that is not allowed.
        """
        values = bundle.values
        rows = values if isinstance(values, Rows) else rows_from(self.node, values)
        try:
            answer = self.fn.process_batch(rows.batch)
        except Exception as error:
            if len(rows) == 1:
                raise failure(self.node, error, rows[0]) from error
            where = f"process_batch, with {len(rows)} rows, the first {shown(rows[0])}"
            raise hook_failure(self.node, error, where) from error
        if answer is None:
            return None
        batch, indexes = answer if isinstance(answer, tuple) else (answer, None)
        if not isinstance(batch, pa.RecordBatch):
            raise self._refusal(f"it is {type(batch).__name__}")
        output = Rows(_usual(self.node, batch), self._row_type(rows, tuple(batch.schema.names)))
        if indexes is None:
            if len(output) != len(rows):
                raise self._refusal(f"it has {len(output)} rows for {len(rows)}")
            return bundle.with_values(output)
        return bundle.take(self._checked(indexes, len(output), len(rows)), output)

    def _checked(self, indexes: Any, outputs: int, inputs: int) -> Int64s:
        try:
            at = np.asarray(indexes, np.int64)
        except (TypeError, ValueError):
            raise self._refusal(f"its indexes are {shown(indexes)}") from None
        if at.shape != (outputs,) or (outputs and (at.min() < 0 or at.max() >= inputs)):
            raise self._refusal(f"it has {outputs} rows, and its indexes are {shown(at.tolist())}")
        return at

    def _row_type(self, rows: Rows, names: tuple[str, ...]) -> Any:
        given = self.fn.output_rows
        if given is not None:
            if getattr(given, "_fields", None) != names:
                raise self._refusal(f"its columns are {names}, and not those of {given!r}")
            return given
        return rows.row_type if rows.row_type._fields == names else row_class(names)

    def _refusal(self, why: str) -> TransformError:
        return TransformError(
            f"{self.node} returned a batch from process_batch that is no output for its input",
            detail=why,
            hint="return a pyarrow.RecordBatch with a row for each row of the input, or "
            "(batch, indexes), with the index of the input's row for each of its rows",
        )


def rows_from(node: TransformNode, values: Sequence[Any]) -> Rows:
    """The rows as columns.

    Args:
        node: the transform, as errors name it.
        values: the rows; at least one.

    Raises:
        TransformError: they are not of one row type, or a value is not of its field's type.
    """
    row_type = type(values[0])
    for value in values:
        if type(value) is not row_type or not is_row_type(row_type):
            raise TransformError(
                f"{node} has a process_batch, which needs rows of one type",
                detail=f"it was given {shown(value)}",
                hint="give it named tuples, e.g. of df.ReadFromJsonLines(..., rows=...), or define process too",
            )
    columns = zip(*values, strict=True)
    try:
        kinds = [ARROW_TYPES[each.kind] for each in row_fields(row_type, str(node))]
    except PipelineError:
        kinds = [None] * len(row_type._fields)
    try:
        arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
    except (pa.ArrowException, OverflowError) as error:
        raise TransformError(
            f"{node} has a process_batch, and its rows do not fit into columns",
            detail=f"{row_type.__name__}: {error}",
            hint="correct the types of the fields, or define process too",
        ) from None
    return Rows.of(row_type, row_type._fields, arrays)


def _usual(node: TransformNode, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its columns in the types that all other columns use."""
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        usual = _usual_type(array.type)
        try:
            arrays.append(array if usual is None else array.cast(usual))
        except pa.ArrowException as error:
            raise hook_failure(node, error, f"the column {name!r} of process_batch") from None
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _usual_type(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP_TYPE
    if pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return pa.string()
    return None
