"""StreamOptions: the options of a streaming job, the same for its backfill and for the stream."""

from collections.abc import Mapping, Sequence

import attrs

from dataflow.errors import PipelineError
from runners.core.ground.dead_letters import checked_tries
from runners.core.ground.lineage import checked_lineage
from runners.log_format import checked_format
from runners.spark.prepared_job import JobOptions
from runners.spark.session import local_master
from runners.spark.spark_options import SparkOptions
from runners.worker_log import checked_level
from windowing.timestamps import DurationLike, to_duration_us


@attrs.frozen(kw_only=True)
class StreamOptions:
    """Checked when it is made, so before anything starts; `StreamingRunner` documents each of them.

    Attributes:
        tries: how often a record that makes user code fail is tried; None: once, and then the run ends.
        step_timeout_ms: how long user code may be at work on one step; None: as long as it likes.
        log_format: of stderr; None: as it is.
    """

    job: JobOptions
    spark: SparkOptions
    workers: int
    tries: int | None
    step_timeout_ms: int | None = None
    show_progress: bool
    log_format: str | None = None

    @classmethod
    def of(
        cls,
        *,
        job: str,
        store: str | None,
        fresh: bool,
        workers: int,
        tries_per_record: int | None,
        master: str | None,
        spark_settings: Mapping[str, str],
        code: Sequence[str],
        show_progress: bool,
        step_timeout: DurationLike | None = None,
        log_level: str | None = None,
        log_format: str | None = None,
        check_types: bool = False,
        lineage: str | None = None,
    ) -> "StreamOptions":
        """The options, from the arguments of a runner.

        Args:
            job: its name.
            store: its DSN; None: see `store_dsn`.
            fresh: whether to start over.
            workers: the number of slots.
            tries_per_record: how often a record may fail before it is a dead letter; None: its first failure ends the
                job.
            master: the URL of Spark's master.
            spark_settings: of the session, by name.
            code: the user's modules and files, for the executors.
            show_progress: whether a bar is shown.
            step_timeout: how long user code may be at work on a step; seconds where it is a number; None: as long as it
                likes.
            log_level: of what user code logs; None: see `wanted_level`.
            log_format: of stderr; None: see `runners.log_format`.
            check_types: whether elements are checked against their types.
            lineage: how much is recorded of where rows come from, "panes" or "records"; None: nothing.

        Raises:
            PipelineError: one of them is not valid.
        """
        if workers < 1:
            raise PipelineError(f"a stream needs at least one worker, not {workers}")
        return cls(
            job=JobOptions.of_stream(
                job=job,
                store=store,
                fresh=fresh,
                workers=workers,
                log_level=checked_level(log_level),
                check_types=check_types,
                lineage=checked_lineage(lineage),
            ),
            spark=SparkOptions(master or local_master(workers), spark_settings, code),
            workers=workers,
            tries=checked_tries(tries_per_record),
            step_timeout_ms=checked_step_timeout_ms(step_timeout),
            show_progress=show_progress,
            log_format=checked_format(log_format),
        )

    def with_fresh(self, fresh: bool) -> "StreamOptions":  # noqa: FBT001 - it is its name
        """These options with another value of ``fresh``."""
        return attrs.evolve(self, job=attrs.evolve(self.job, fresh=fresh))


def checked_step_timeout_ms(step_timeout: DurationLike | None) -> int | None:
    """The user's ``step_timeout``, in milliseconds.

    Raises:
        PipelineError: it is not positive.
    """
    if step_timeout is None:
        return None
    timeout_ms = to_duration_us(step_timeout) // 1_000
    if timeout_ms <= 0:
        raise PipelineError(f"step_timeout must be positive, and is {step_timeout}")
    return timeout_ms
