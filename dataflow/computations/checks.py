"""Checks of a topology when it is built: what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataflow.computations.computation import Computation
from dataflow.errors import PipelineError
from dataflow.user_code import check_hooks


def check_name(name: object, what: str, location: str) -> str:
    """Check a name, which must be text that is not empty, and return it.

    Args:
        name: as the user gave it.
        what: what is to be named, as in "a computation".
        location: file and line of the definition.

    Raises:
        PipelineError: it is no text, or empty.
    """
    if not isinstance(name, str) or not name:
        raise PipelineError(
            f"{what} ({location}) needs a name, not {name!r}", hint='e.g. "window_counts"'
        )
    return name


def check_computation(computation: object, what: str) -> None:
    """Check that it is an object of a class that defines what to do with a record.

    Args:
        computation: as the user gave it.
        what: its name and location, for messages.

    Raises:
        PipelineError: it is no such object, or something in it cannot be called.
    """
    if not isinstance(computation, Computation):
        hint = "write a class that is derived from dataflow.computations.Computation"
        if isinstance(computation, type):
            hint = f"the class must be called: {computation.__name__}()"
        raise PipelineError(f"{what} needs a Computation, not {computation!r}", hint=hint)
    if type(computation).process_record is Computation.process_record:
        raise PipelineError(
            f"{what} does not define what to do with a record",
            hint=f"define process_record(self, record) in class {type(computation).__name__}",
        )
    check_hooks(computation, ("setup", "process_record", "process_timer", "teardown"), what)
    initial = type(computation).initial_state
    if initial is not None and not callable(initial):
        raise PipelineError(
            f"{what} has an initial_state that cannot be called: {initial!r}",
            hint="give what makes it, so that each key has its own: initial_state = dict",
        )


def check_inputs(inputs: object, what: str, location: str) -> None:
    """Check that there is an input, and that each has a key extractor.

    Args:
        inputs: key extractors by stream, as the user gave them.
        what: the computation, for messages.
        location: file and line of the definition.

    Raises:
        PipelineError: there is none, or one has no name, or a key extractor that cannot be called.
    """
    if not isinstance(inputs, Mapping):
        raise PipelineError(
            f"{what} needs its inputs with their key extractors, not {inputs!r}",
            hint='e.g. inputs={"queries": lambda query: query.text}',
        )
    if not inputs:
        raise PipelineError(
            f"{what} subscribes to no stream, so it would never run",
            hint='e.g. inputs = {"queries": lambda query: query.text} in its class',
        )
    for stream, extractor in inputs.items():
        check_name(stream, "a stream", location)
        if not callable(extractor):
            raise PipelineError(
                f"{what} has a key extractor for the stream {stream!r} that cannot be called: {extractor!r}",
                hint="it is a function of a record's value: lambda query: query.text",
            )


def check_outputs(outputs: object, what: str, location: str) -> None:
    """Check that the outputs are names, each given once.

    Args:
        outputs: names of streams, as the user gave them.
        what: the computation, for messages.
        location: file and line of the definition.

    Raises:
        PipelineError: they are no such names.
    """
    if isinstance(outputs, str) or not isinstance(outputs, Sequence):
        raise PipelineError(
            f"{what} needs a list of output streams, not {outputs!r}",
            hint='e.g. outputs=["anomalies"]',
        )
    for stream in outputs:
        check_name(stream, "a stream", location)
    if len(set(outputs)) != len(outputs):
        raise PipelineError(f"{what} names an output stream twice", detail=f"{list(outputs)}")
