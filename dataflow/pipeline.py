"""Pipeline, which collects transforms into a graph and hands it to a runner, and PCollection, what they are applied to.

Everything that can be wrong with the shape of a pipeline is an error here, when it is built, with the user's line.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, TypeVarTuple, Unpack, cast, overload

import attrs

from dataflow.after_run import Check, ChecksAfterRun, checked
from dataflow.do_fn import OutputTag
from dataflow.drawing import html_table
from dataflow.element_types import (
    ElementTypes,
    check_emitted,
    check_given,
    types_of_expand,
    types_through,
)
from dataflow.errors import DuplicateLabelError, InputError, PipelineError, TimeError
from dataflow.exception_handling import FAILURES, ExceptionHandling
from dataflow.graph import (
    MAIN,
    AssignWindows,
    FreshnessDeclared,
    KeyedOperation,
    Operation,
    ParDo,
    PCollectionNode,
    PipelineGraph,
    Read,
    StatefulParDo,
    TransformNode,
    TypeCheck,
)
from dataflow.handled_outputs import HandledOperation, add_threshold, failures_of
from dataflow.options import RunnerOptions, runner_of_environment
from dataflow.ptransform import DeclaredTypes, called
from dataflow.runner import PipelineResult, Runner, create_runner
from dataflow.type_hints import bounded, is_complete, plain, text_of
from dataflow.upstream import nearest
from triggers.windowing_strategy import WindowingStrategy
from windowing.errors import DataflowError, in_brief
from windowing.location import user_location
from windowing.timestamps import DurationLike, to_duration_us

if TYPE_CHECKING:
    from dataflow.ptransform import Applicable, PTransform

InT = TypeVar("InT")
OutT = TypeVar("OutT")
T_co = TypeVar("T_co", covariant=True)
OutputsT = TypeVarTuple("OutputsT")

#: What transforms look for on the PCollection that they are applied to.
_OF_PCOLLECTIONS = frozenset(("pipeline", "node", "is_bounded"))


class UnrunWarning(UserWarning):
    """A pipeline was built and thrown away without having been run, so it has done nothing."""


class PCollection(Generic[T_co]):
    """A handle on one collection of the pipeline that is being built; holds no data.

    Args:
        pipeline: that it belongs to.
        node: of the collection, in the graph.
        element_type: the type of its elements, as annotations and values tell it; `typing.Any`: nobody knows.
        made_by: names, in an error, the transform that emits its elements.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        node: PCollectionNode,
        element_type: Any = Any,
        made_by: str = "",
    ) -> None:
        self.pipeline = pipeline
        self.node = node
        self.element_type = element_type
        self.made_by = made_by

    def of_type(self, element_type: Any, made_by: str | None = None) -> PCollection[Any]:
        """Change what is known of the type of its elements, in a copy; for the `expand` of transforms.

        Args:
            element_type: the type of its elements.
            made_by: names the transform that emits them; None: as for this one.
        """
        made_by = self.made_by if made_by is None else made_by
        return PCollection(self.pipeline, self.node, element_type, made_by)

    def __or__(self, transform: Applicable[PCollection[T_co], OutT]) -> OutT:
        """Apply a transform: ``pcollection | "label" >> transform``."""
        return self.pipeline.apply(cast("PTransform[PCollection[T_co], OutT]", transform), self)

    @property
    def is_bounded(self) -> bool:
        """Whether it ends by itself: all sources that it is made of do (`Source.is_bounded`)."""
        return self.node.is_bounded

    if not TYPE_CHECKING:  # type checkers refuse these, as there are none for them

        def __iter__(self) -> Iterator[Any]:
            raise self._without_elements("iterated")

        def __len__(self) -> int:
            raise self._without_elements("counted")

        def __getitem__(self, index: object) -> Any:
            raise self._without_elements("looked up by an index")

        def __bool__(self) -> bool:
            # Not by its length: a collection is true, as any object.
            return True

    def _without_elements(self, done: str) -> PipelineError:
        maker = self.pipeline.graph().before(self.node.id)[-1]
        return PipelineError(
            f"a PCollection cannot be {done} ({user_location()}): it has no elements while the pipeline is built",
            detail=f"it is that of {maker}",
            hint="df.collect(pcollection) runs the pipeline and returns the elements; for each of them use df.Map or "
            "df.FlatMap, and for their number df.Count.Globally()",
        )

    def __reduce_ex__(self, protocol: object) -> Any:
        maker = self.pipeline.graph().before(self.node.id)[-1]
        raise PipelineError(
            f"a function has a PCollection in it, that of {maker}, and a PCollection has no elements to look at",
            hint="give it as an argument, and say how it is seen: df.Map(lambda x, all: ..., df.AsList(pcollection)); "
            "what is large is brought together by a key, with df.CoGroupByKey() or df.Join()",
        )

    def __repr__(self) -> str:
        kind = "PCollection" if self.is_bounded else "unbounded PCollection"
        return f"{kind} of {self.pipeline.maker_of(self)}"

    def _repr_html_(self) -> str:
        strategy = self.node.strategy
        maker = self.pipeline.graph().before(self.node.id)[-1]
        facts = [
            ("made by", maker),
            ("windows", strategy.window_fn),
            ("trigger", strategy.trigger),
            ("panes", strategy.accumulation_mode.value.replace("_", " ")),
            ("type", text_of(self.element_type)),
            ("has an end", "yes" if self.is_bounded else "no"),
            ("elements", "df.collect(...) has them" if self.is_bounded else "none to look at here"),
        ]
        return html_table("PCollection", facts)


class PCollectionTuple(tuple[*OutputsT], Generic[*OutputsT]):  # noqa: SLOT001 - its outputs are also attributes
    """The outputs of a transform that has several, by tag: ``outputs["late"]``, ``outputs.late``, or ``outputs[LATE]``.

    They unpack in the order of their tags, the main output first: ``good, late = outputs``.
    """

    _outputs: dict[str, PCollection[Any]]

    def __new__(cls, outputs: Mapping[str, PCollection[Any]]) -> Self:
        """The collections by their tags, the main output first."""
        made = super().__new__(cls, cast("Any", outputs.values()))
        made._outputs = dict(outputs)
        return made

    @overload
    def __getitem__(self, tag: OutputTag[OutT]) -> PCollection[OutT]: ...
    @overload
    def __getitem__(self, tag: str) -> PCollection[Any]: ...
    @overload
    def __getitem__(self, tag: Any) -> Any: ...
    def __getitem__(self, tag: Any) -> Any:
        if isinstance(tag, OutputTag):
            tag = tag.name
        if not isinstance(tag, str):
            return super().__getitem__(tag)
        if tag not in self._outputs:
            raise PipelineError(
                f"there is no output {tag!r} ({user_location()})",
                detail=f"outputs: {', '.join(map(repr, self._outputs))}",
                hint="name it when applying: .with_outputs(...); each name is a tag that a df.TaggedOutput has",
            )
        return self._outputs[tag]

    def __getnewargs__(self) -> Any:
        return (self._outputs,)

    def by_tag(self) -> dict[str, PCollection[Any]]:
        """The outputs by their tags, the main one first."""
        return dict(self._outputs)

    def with_output(
        self, tag: str, pcoll: PCollection[Any]
    ) -> PCollectionTuple[*tuple[PCollection[Any], ...]]:
        """Add an output, as the last of a copy of these.

        Args:
            tag: of the new one.
            pcoll: the new one.

        Raises:
            PipelineError: an output has this tag.
        """
        if tag in self._outputs:
            raise PipelineError(
                f"{pcoll.pipeline.here()} has an output {tag!r} already",
                hint="give the output of failures another tag: with_exception_handling(dead_letter_tag=...)",
            )
        return PCollectionTuple({**self._outputs, tag: pcoll})

    def __getattr__(self, tag: str) -> PCollection[Any]:
        # Not self._outputs: before there are any, as when copying, that would come here again.
        outputs: dict[str, PCollection[Any]] = self.__dict__.get("_outputs", {})
        try:
            return outputs[tag]
        except KeyError:
            raise AttributeError(f"no output {tag!r}; there are {sorted(outputs)}") from None


#: Outputs of which nobody says how many there are.
Outputs = PCollectionTuple[*tuple[PCollection[Any], ...]]


class Pipeline:
    """A pipeline under construction.

    Leaving the ``with`` block runs the pipeline and waits for its end; the result is then in ``result``.

    Example::

        with df.Pipeline() as p:
            p | df.Create([1, 2, 3]) | df.Map(lambda x: x * x) | df.Map(print)

    Args:
        runner: an engine, or its name: ``direct`` (in memory); ``batch`` or ``streaming`` (Spark and Postgres);
            ``backfill`` (what a stream begins with, read in batch), ``backfill-then-live`` (that, and then the stream).
            None: the one that the variable ``DATAFLOW_RUNNER`` names, else ``direct``.
        **options: for a runner given by name, that runner's options, e.g. ``job="flights"``; what is not given is read
            from variables, e.g. ``DATAFLOW_JOB`` (`dataflow.options`).  From a command line: `parse_options`.

    Raises:
        PipelineError: there is no such runner, it does not take these options, or a variable cannot be read.
    """

    def __init__(
        self, runner: str | Runner | None = None, **options: Unpack[RunnerOptions]
    ) -> None:
        if runner is None:
            runner = runner_of_environment() or "direct"
        if isinstance(runner, str):
            runner = create_runner(runner, **options)
        elif options:
            raise PipelineError(
                f"options {sorted(options)} were given beside a runner object",
                hint="give them to the runner's constructor",
            )
        self.runner = runner
        self.result: PipelineResult | None = None
        self._transforms: list[TransformNode] = []
        self._pcollections: dict[int, PCollectionNode] = {}
        self._labels: dict[str, str] = {}
        self._scope: list[str] = []
        self._location = ""
        self._handled: _HandledScope | None = None
        self._type_checks: dict[int, list[TypeCheck]] = {}
        self._freshness: dict[str, FreshnessDeclared] = {}
        self._checks = ChecksAfterRun()
        self._unrun: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in _OF_PCOLLECTIONS and self._scope:
            raise PipelineError(
                f"{self.here()} is applied to the pipeline, and needs a PCollection",
                hint="begin with what makes one: p | df.Create([1, 2, 3]) | ..., or a read such as df.ReadFromCsv",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            try:
                self.run().wait_until_finish()
            except DataflowError as error:
                raise in_brief(error) from None
        else:
            self._checks.disarm()
            self._is_used()

    def __or__(self, transform: Applicable[Pipeline, OutT]) -> OutT:
        """Apply a transform that starts a pipeline, such as a read."""
        return self.apply(cast("PTransform[Pipeline, OutT]", transform), self)

    def run(self) -> PipelineResult:
        """Hand the graph to the runner; does not wait for an unbounded run.

        Raises:
            DataflowError: user code has failed, or the pipeline cannot run there; with the frames of user code alone.
        """
        try:
            result = self.runner.run(self.graph())
        except DataflowError as error:
            self._checks.disarm()
            raise in_brief(error) from None
        except BaseException:
            self._checks.disarm()
            raise
        self._checks.arm()
        self.result = checked(result, self._checks) if self._checks else result
        return self.result

    def _repr_html_(self) -> str:
        return self.graph().to_svg()

    def maker_of(self, pcoll: PCollection[Any]) -> TransformNode:
        """The transform that a collection is an output of.

        To have asked is not to have used the pipeline, as it is to have asked for its graph.
        """
        return next(each for each in self._transforms if pcoll.node.id in each.outputs.values())

    def after_run(self, check: Check) -> None:
        """Have ``check`` called with the result when a run has ended, in `PipelineResult.wait_until_finish`.

        For the `expand` of transforms; a check raises an `AssertionError` that names the transform (`here`).
        A pipeline that is thrown away without having been checked warns (`UncheckedWarning`).
        """
        self._checks.add(self.here(), check)

    def graph(self) -> PipelineGraph:
        """The pipeline so far, as a value."""
        self._is_used()
        return PipelineGraph(
            transforms=tuple(self._transforms),
            pcollections=dict(self._pcollections),
            type_checks=tuple(chain.from_iterable(self._type_checks.values())),
            freshness=tuple(self._freshness.values()),
        )

    def part_before(
        self, pcoll: PCollection[Any], runner: str | Runner, **options: Unpack[RunnerOptions]
    ) -> Pipeline:
        """A pipeline of its own of the transforms that lead to a collection; this one stays as it is.

        Args:
            pcoll: a collection of this pipeline; its node is one of the part, too.
            runner: of the part.
            **options: of the runner.
        """
        part = Pipeline(runner, **options)
        part._transforms = list(self.graph().before(pcoll.node.id))
        part._pcollections = dict(self._pcollections)
        part._type_checks = dict(self._type_checks)
        return part

    def apply(self, transform: PTransform[InT, OutT], pcoll: InT) -> OutT:
        """Expand a transform on its input inside its own label scope.

        Args:
            transform: with its label, if it has one.
            pcoll: its input: a PCollection, several of them, or the pipeline itself.

        Raises:
            DuplicateLabelError: the label was given by hand and is taken in this scope.
            PipelineError: the types of the elements contradict what it takes, or what it is declared to emit.
        """
        is_outermost = not self._scope
        if is_outermost:
            self._location = user_location()
        try:
            self._check_is_transform(transform)
            with self._labelled(transform.label, transform.default_label()):
                output = self._expand(transform, pcoll)
        except DataflowError as error:
            self._is_used()
            raise in_brief(error) from None
        except BaseException:
            self._is_used()
            raise
        if self._unrun is None and self._transforms:
            self._unrun = weakref.finalize(self, _warn_of_unrun, self._transforms)
        return output

    def _expand(self, transform: PTransform[InT, OutT], pcoll: Any) -> OutT:
        """Expand a transform with the types that it declares."""
        expand = getattr(transform, "annotated_expand", transform.expand)
        declared: DeclaredTypes = getattr(transform, "declared_types", DeclaredTypes())
        given = pcoll.element_type if isinstance(pcoll, PCollection) else Any
        annotated = types_of_expand(expand, PCollection, given)
        if isinstance(pcoll, PCollection):
            for accepts in (annotated.accepts, declared.accepts):
                pcoll = self._taken(accepts, pcoll)
        output = self._located(transform, pcoll)
        if isinstance(output, PCollection) and not declared.tagged:
            is_known = plain(output.element_type) is not Any
            if declared.emits is None and (is_complete(annotated.returns) or not is_known):
                return cast("OutT", self._emitted(annotated.returns, output))
            return cast("OutT", self._emitted(declared.emits, output))
        if declared.tagged or declared.emits is not None:
            output = self._emitted_by_tag(declared, output)
        return cast("OutT", output)

    def _located(self, transform: PTransform[Any, Any], pcoll: Any) -> Any:
        try:
            return transform.expand(pcoll)
        except InputError as error:
            # What looks at files knows no pipeline; the innermost transform is named.
            is_named = self._location in error.fact
            raise (error if is_named else error.located(self.here())) from error.__cause__

    def _emitted_by_tag(self, declared: DeclaredTypes, output: object) -> Outputs:
        """The outputs of a transform, with the types that are declared."""
        outputs = output.by_tag() if isinstance(output, PCollectionTuple) else {}
        unknown = [tag for tag in declared.tagged if tag not in outputs]
        if unknown or not outputs:
            raise PipelineError(
                f"{self.here()} was declared to have outputs that it does not have: {unknown or output!r}",
                detail=f"its outputs are {list(outputs)}" if outputs else "",
                hint="df.ParDo(...).with_outputs('bad').with_output_types(int, bad=str)",
            )
        types = {next(iter(outputs)): declared.emits, **declared.tagged}
        return PCollectionTuple(
            {tag: self._emitted(types.get(tag), each) for tag, each in outputs.items()}
        )

    def _taken(self, accepts: Any, pcoll: PCollection[Any]) -> PCollection[Any]:
        """The input of a transform that takes elements of a type; of that type, if no other is known."""
        check_given(accepts, pcoll.element_type, self.here(), pcoll.made_by)
        self._check_at_run_time(accepts, pcoll, is_taken=True)
        return pcoll.of_type(bounded(accepts)) if plain(pcoll.element_type) is Any else pcoll

    def _emitted(self, emits: Any, output: PCollection[Any]) -> PCollection[Any]:
        """An output with the type that it is declared to have; None: nothing is declared."""
        if emits is None:
            return output
        check_emitted(emits, output.element_type, self.here())
        self._check_at_run_time(emits, output, is_taken=False)
        is_news = bounded(emits) != output.element_type
        return output.of_type(bounded(emits), self.here()) if is_news else output

    def _check_at_run_time(self, hint: Any, pcoll: PCollection[Any], *, is_taken: bool) -> None:
        hint = bounded(hint)
        if plain(hint) is Any:
            return
        checks = self._type_checks.setdefault(pcoll.node.id, [])
        if all(each.hint != hint for each in checks):
            checks.append(TypeCheck(pcoll.node.id, hint, self.here(), is_taken))

    def _check_is_transform(self, transform: object) -> None:
        if isinstance(transform, type):
            raise PipelineError(
                f"{transform.__name__} is a class ({self._location}), and what is applied is an object of it",
                hint=f"call it: {called(transform)}",
            )
        if not hasattr(transform, "expand"):
            raise PipelineError(
                f"{transform!r} is no transform ({self._location})",
                hint="for a function of an element use df.Map(function), df.FlatMap or df.Filter; what follows | is a "
                'transform, or "label" >> transform',
            )

    def _is_used(self) -> None:
        """No warning that it was never run: it is, or there is an error that the user sees."""
        if self._unrun is not None:
            self._unrun.detach()

    def add_operation(
        self,
        operation: Operation,
        inputs: Sequence[PCollection[Any]],
        strategy: WindowingStrategy,
        *,
        tags: Sequence[str] = (MAIN,),
        retracted_by: str | None = None,
    ) -> dict[str, PCollection[Any]]:
        """Add a primitive under the current label; for the `expand` of primitive transforms.

        Args:
            operation: the primitive.
            inputs: its PCollections, in order.
            strategy: the windowing of its outputs.
            tags: of its outputs; by default the main one alone.
            retracted_by: the grouping that may retract its outputs; None: none may.

        Raises:
            PipelineError: an input is of another pipeline, or its elements are of a type that the operation does not
                take, or code that is not deterministic has the elements of a source that retracts them.
        """
        handled = self._handled
        if handled is not None and isinstance(operation, Read | ParDo | StatefulParDo):
            operation = attrs.evolve(operation, handling=handled.handling)
            tags = (*tags, FAILURES)
        if isinstance(operation, ParDo) and operation.is_remembered:
            self._check_that_outputs_are_kept(inputs[0])
        if isinstance(operation, Read):
            is_bounded = operation.source.is_bounded
            has_arrival_order = operation.source.has_arrival_order
        else:
            is_bounded = all(pcoll.is_bounded for pcoll in inputs)
            has_arrival_order = any(pcoll.node.has_arrival_order for pcoll in inputs)
        types = self._types_through(operation, inputs)
        outputs = {}
        for tag in tags:
            node = PCollectionNode(
                id=len(self._pcollections),
                strategy=strategy,
                retracted_by=retracted_by,
                is_bounded=is_bounded,
                has_arrival_order=has_arrival_order,
            )
            self._pcollections[node.id] = node
            emits = types.outputs.get(tag, Any)
            outputs[tag] = PCollection[Any](self, node, emits, self._made_by(operation, inputs))
            self._check_at_run_time(types.declared.get(tag, Any), outputs[tag], is_taken=False)
        self._transforms.append(
            TransformNode(
                label=self.path,
                location=self._location,
                operation=operation,
                inputs=tuple(pcoll.node.id for pcoll in inputs),
                outputs={tag: pcoll.node.id for tag, pcoll in outputs.items()},
            )
        )
        if handled is not None and FAILURES in outputs:
            failures = outputs.pop(FAILURES)
            counted = list(outputs.values()) if isinstance(operation, Read) else inputs
            handled.operations.append(HandledOperation(self.here(), operation, counted, failures))
        return outputs

    def declare_fresh(self, pcoll: PCollection[Any], within: DurationLike) -> None:
        """Declare under the current label how far a collection may be behind the clock; for the `expand` of transforms.

        Args:
            pcoll: the collection.
            within: how far its event time may be behind: seconds, a timedelta, or a text such as "5s".

        Raises:
            PipelineError: it is no length of time.
        """
        try:
            within_us = to_duration_us(within)
        except TimeError as error:
            raise PipelineError(
                f"{self.here()} declares fresh_within={within!r}, which is no length of time",
                detail=str(error),
                hint='give it seconds, a timedelta, or a text such as "5s"',
            ) from error
        if within_us <= 0:
            raise PipelineError(
                f"{self.here()} declares fresh_within={within!r}, and nothing is that fresh",
                hint="give it how far event time may be behind the clock, for example 5 seconds",
            )
        self._freshness[self.path] = FreshnessDeclared(self.path, pcoll.node.id, within_us)

    def _check_that_outputs_are_kept(self, pcoll: PCollection[Any]) -> None:
        """Refuse code that may return something else for a retraction, where nobody keeps what it has returned.

        A grouping keeps that beside its panes; a source keeps nothing of its records.
        """
        if not pcoll.node.retracted_by:
            return
        for origin in nearest(self.graph(), pcoll.node.id, Read | KeyedOperation):
            if isinstance(origin.operation, Read) and origin.operation.source.emits_retractions:
                raise PipelineError(
                    f"{self.here()} is non-deterministic, and {origin} may retract its elements",
                    detail="what it has returned for an element is kept beside the pane of a grouping, to be "
                    "retracted with it; a source keeps nothing of its records",
                    hint="put a grouping before it, e.g. df.Distinct(), in windows that last as long as records may "
                    "be retracted; or put df.ToChangelog() before it",
                )

    def _types_through(
        self, operation: Operation, inputs: Sequence[PCollection[Any]]
    ) -> ElementTypes:
        """The element types of an operation, to which its inputs are compared."""
        if any(pcoll.pipeline is not self for pcoll in inputs):
            raise PipelineError(
                f"{self.here()} reads a PCollection of another pipeline",
                hint="build all of it on one Pipeline object",
            )
        types = types_through(operation, [each.element_type for each in inputs], self.here())
        if inputs:
            self._taken(types.accepts, inputs[0])
        return types

    def _made_by(self, operation: Operation, inputs: Sequence[PCollection[Any]]) -> str:
        """Name, for errors, the transform that made the elements which an operation passes on."""
        return inputs[0].made_by if isinstance(operation, AssignWindows) else self.here()

    def expand_handled(
        self,
        transform: PTransform[Any, Any],
        pcoll: Any,
        handling: ExceptionHandling,
        main_tag: str,
        dead_letter_tag: str,
    ) -> Any:
        """Expand a transform whose failures are an output; `PTransform.with_exception_handling` describes it.

        Args:
            transform: whose user code is handled.
            pcoll: its input.
            handling: how.
            main_tag: of its output.
            dead_letter_tag: of the output of failures.

        Raises:
            PipelineError: it has nothing that could be handled.
        """
        outer, self._handled = self._handled, _HandledScope(handling)
        try:
            output = transform.expand(pcoll)
            operations = self._handled.operations
        finally:
            self._handled = outer
        if not operations:
            raise PipelineError(
                f"{self.here()} has no exceptions that could be handled",
                detail="handled are functions, DoFns, combine functions and reads",
                hint="put what can fail into a df.Map before it, and handle that; or keep dead letters of the whole "
                "stage, with df.Pipeline(..., tries_per_record=3)",
            )
        with self.without_handling():
            if handling.threshold < 1:
                for number, each in enumerate(operations, 1):
                    with self.labelled(f"threshold {number}"):
                        add_threshold(self, each, handling)
            failures = failures_of(self, operations)
        if isinstance(output, PCollection):
            return PCollectionTuple({main_tag: output, dead_letter_tag: failures})
        if isinstance(output, PCollectionTuple):
            return output.with_output(dead_letter_tag, failures)
        return output, failures

    @property
    def handling(self) -> ExceptionHandling | None:
        """How the transform that is being applied handles exceptions, for its `expand`; None: it does not."""
        return None if self._handled is None else self._handled.handling

    @contextmanager
    def without_handling(self) -> Iterator[None]:
        """Have nothing handled that is added meanwhile: it has no user code, or handles what that raises itself."""
        outer, self._handled = self._handled, None
        try:
            yield
        finally:
            self._handled = outer

    @contextmanager
    def written_at(self, location: str) -> Iterator[None]:
        """Give another location in the user's code to all that is added meanwhile; for the `expand` of transforms."""
        outer, self._location = self._location, location
        try:
            yield
        finally:
            self._location = outer

    @property
    def path(self) -> str:
        """The label of the transform that is being applied, with those of the transforms that it is part of."""
        return "/".join(self._scope)

    def here(self) -> str:
        """The name, for an error, of the transform that is being applied."""
        return f"transform {self.path!r} ({self._location})"

    def labelled(self, label: str) -> AbstractContextManager[None]:
        """A scope of its own for operations that a transform is made of.

        Args:
            label: of the scope.
        """
        return self._labelled(None, label)

    @contextmanager
    def _labelled(self, given: str | None, default: str) -> Iterator[None]:
        label = given or default
        path = "/".join([*self._scope, label])
        if path in self._labels:
            if given:
                raise DuplicateLabelError(
                    f"the label {path!r} is used twice",
                    detail=f"first at {self._labels[path]}, again at {self._location}",
                    hint="labels name computations in the store, so each must be unique: "
                    'give one of them another, "new label" >> transform',
                )
            number = 2
            while f"{path}#{number}" in self._labels:
                number += 1
            label = f"{label}#{number}"
            path = f"{path}#{number}"
        self._labels[path] = self._location
        self._scope.append(label)
        try:
            yield
        finally:
            self._scope.pop()


@attrs.frozen
class _HandledScope:
    """The operations that are added while a transform is expanded whose failures are an output."""

    handling: ExceptionHandling
    operations: list[HandledOperation] = attrs.field(factory=list)


def _warn_of_unrun(transforms: Sequence[TransformNode]) -> None:
    # After an error nobody expects a run, and one that ended the program has been shown already.
    if transforms and not hasattr(sys, "last_value"):
        path, _, line = transforms[0].location.rpartition(":")
        warnings.warn_explicit(
            f"a pipeline was never run, so it has done nothing: it begins with {transforms[0]}; use "
            "`with df.Pipeline(...) as p`, or call p.run().wait_until_finish()",
            UnrunWarning,
            path or "?",
            int(line or 0),
        )
