"""The command ``dataflow run``: a pipeline of the user's, with the runner and the options of the command line."""

import argparse
from typing import Any

from dataflow.errors import DataflowError, PipelineError
from dataflow.options import PipelineOptions, options_of, options_parser
from dataflow.pipeline import Pipeline
from runners.cli.named import find_named
from runners.progress import print_line


def run(asked: argparse.Namespace) -> None:
    """Run the pipeline to its end, or until it is stopped; says on stderr how it has ended.

    Args:
        asked: the parsed command line, with ``pipeline``, options of the runner, and how the job is updated.

    Raises:
        DataflowError: there is no such pipeline, or what has made it fail.
    """
    options = options_of(asked)
    renamed = dict(asked.renamed)
    if asked.is_update:
        # Imported here: a run in memory starts without Spark.
        from runners.streaming import Update  # noqa: PLC0415 - as above

        options["update"] = Update(
            renamed=renamed,
            allow_loss=asked.allow_loss,
            retract_removed=asked.retract_removed,
            former=_former(asked.former),
        )
    elif asked.allow_loss or ((renamed or asked.retract_removed) and not asked.plan):
        raise PipelineError(
            "--allow-loss, --renamed and --retract-removed are about an update, and none was asked for",
            hint="give --update too; --plan shows what it would do",
        )
    if asked.former is not None and not (asked.is_update or asked.plan):
        raise PipelineError(
            "--former is about an update, and none was asked for",
            hint="give --update too; --plan shows what it would do",
        )
    pipeline = _pipeline(asked.pipeline, options)
    if asked.plan:
        _print_plan(pipeline, asked)
        return
    result = pipeline.run()
    state = result.wait_until_finish()
    job = getattr(pipeline.runner, "job", None)
    print_line(f"{f'job {job}' if job else asked.pipeline}: {state.value}")


def _former(named: str | None) -> Pipeline | None:
    """The pipeline that the job has run so far, which is not run here."""
    return None if named is None else _pipeline(named, {"runner": "direct"})


def _print_plan(pipeline: Pipeline, asked: argparse.Namespace) -> None:
    """Print what an update of the job to the pipeline would do."""
    runner: Any = pipeline.runner
    if not hasattr(runner, "plan_update"):
        raise PipelineError(
            f"{type(runner).__name__} has no jobs that can be updated",
            hint="give --runner streaming",
        )
    plan = runner.plan_update(
        pipeline,
        renamed=dict(asked.renamed),
        retract_removed=asked.retract_removed,
        former=_former(asked.former),
    )
    print(plan or f"job {runner.job!r} is not there, or runs this pipeline already")


def _pipeline(named: str, options: PipelineOptions) -> Pipeline:
    found: Any = find_named(named, "pipeline")
    if isinstance(found, Pipeline):
        return _with_runner(found, named, options)
    if not callable(found):
        raise DataflowError(
            f"{named!r} is no pipeline but {found!r}",
            hint="name a df.Pipeline, or a function that is called with one and applies transforms to it",
        )
    pipeline = Pipeline(**options)
    found(pipeline)
    return pipeline


def _with_runner(pipeline: Pipeline, named: str, options: PipelineOptions) -> Pipeline:
    # Whatever is wrong with the command line, no warning that it was never run.
    pipeline.graph()
    if pipeline.result is not None:
        raise PipelineError(
            f"{named!r} has been run already, when its module was imported",
            hint="build it in a function, `def pipeline(p): p | ...`, and name that; or do not run it in the module",
        )
    if "runner" in options:
        pipeline.runner = Pipeline(**options).runner
    elif options:
        raise PipelineError(
            f"{named!r} was made with its runner, so {', '.join(options)} would be lost",
            hint="give --runner too, or name a function that is called with a pipeline",
        )
    return pipeline


def add_command(verbs: Any) -> None:
    """Add the command to a parser."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "run",
        parents=[options_parser()],
        help="run a pipeline of yours on the runner of your choice",
        description="Run a pipeline of yours on the runner of your choice, to its end. PIPELINE is a function that is "
        "called with a df.Pipeline and applies transforms to it, or a df.Pipeline. An option that is not given is that "
        "of the variable DATAFLOW_OPTION, such as DATAFLOW_RUNNER.",
        epilog="example: dataflow run scores:pipeline --runner streaming --job scores --workers 4",
    )
    parser.add_argument(
        "pipeline", metavar="MODULE:PIPELINE", help="its module is found from this directory"
    )
    updates = parser.add_argument_group("a streaming job that runs another pipeline")
    updates.add_argument(
        "--plan",
        action="store_true",
        help="run nothing; show what an update of the job would keep and lose",
    )
    updates.add_argument(
        "--update",
        action="store_true",
        dest="is_update",  # update is an option of the runner
        help="have the job go over to this pipeline",
    )
    updates.add_argument(
        "--allow-loss",
        metavar="LABEL",
        action="append",
        default=[],
        help="a transform whose state may be lost; can be repeated",
    )
    updates.add_argument(
        "--renamed",
        metavar="OLD=NEW",
        action="append",
        type=_renaming,
        default=[],
        help="a transform with another label; can be repeated",
    )
    updates.add_argument(
        "--retract-removed",
        action="store_true",
        help="retract what removed transforms have emitted: delete their rows, and retract what was counted",
    )
    updates.add_argument(
        "--former",
        metavar="MODULE:PIPELINE",
        help="the pipeline that the job has run so far: --retract-removed needs it, and so does what waits for a sink "
        "that is removed, to be sent",
    )
    parser.set_defaults(do=run, needs_store=False)


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no OLD=NEW")
    return old, new
