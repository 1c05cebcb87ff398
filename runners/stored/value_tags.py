"""Tags for the core's own values that occur among users' values, and for errors on their way to the driver."""

from dataflow import errors as sdk_errors
from dataflow.errors import DataflowError
from dataflow.serialization import read_as, written_as
from dataflow.value_tags import tag_enums
from runners import errors as runner_errors
from runners.core.ground.cells import Nothing
from runners.core.partials.signed_combine import NaN

#: The errors of this package, by their names.
_ERRORS: dict[str, type[DataflowError]] = {
    name: kind
    for module in (sdk_errors, runner_errors)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, DataflowError)
}


def _error_fields(error: DataflowError) -> tuple[str, str, str, str]:
    return type(error).__name__, error.fact, error.detail, error.hint


def _error(name: str, fact: str, detail: str, hint: str) -> DataflowError:
    return _ERRORS[name](fact, detail=detail, hint=hint)


tag_enums({"nothing": Nothing, "nan": NaN})
read_as("error", _error)
for _kind in _ERRORS.values():
    written_as("error", _kind, _error_fields)
