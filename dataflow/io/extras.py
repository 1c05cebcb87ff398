"""Libraries that are extras, and what to install where one is missing."""

from importlib.util import find_spec

from dataflow.errors import PipelineError


def require_fastavro(name: str) -> None:
    """Raise an error if fastavro is not installed.

    Args:
        name: of the transform that needs it.

    Raises:
        PipelineError: it is not.
    """
    if find_spec("fastavro") is None:
        raise PipelineError(f"{name} needs fastavro", hint="pip install 'dataflow-model[avro]'")


def require_deltalake(name: str) -> None:
    """Raise an error if deltalake is not installed.

    Args:
        name: of the transform that needs it.

    Raises:
        PipelineError: it is not.
    """
    if find_spec("deltalake") is None:
        raise PipelineError(f"{name} needs deltalake", hint="pip install 'dataflow-model[delta]'")


def require_pyiceberg(name: str) -> None:
    """Raise an error if pyiceberg is not installed.

    Args:
        name: of the transform that needs it.

    Raises:
        PipelineError: it is not.
    """
    if find_spec("pyiceberg") is None:
        raise PipelineError(f"{name} needs pyiceberg", hint="pip install 'dataflow-model[iceberg]'")
