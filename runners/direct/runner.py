"""DirectRunner: the whole pipeline in one thread of this process, over the same semantic core as every other engine.

Sources are read in turn, a bundle at a time, and their watermarks move with them; so late data is late here too.
Processing time is the clock that the input brings along (`SourceBatch.processing_time_us`): it steps from timer to
timer, so each fires at its very instant.  Where the input brings none, it does not move until the input has ended.
Nothing is durable, and nothing is shared with the exactly-once core.  Start reading in `runners.direct.job`.
"""

from dataflow.errors import PipelineError
from dataflow.graph import PipelineGraph
from dataflow.interruption import if_interrupted
from runners.core.ground.dead_letters import checked_tries
from runners.core.ground.lineage import checked_lineage
from runners.core.stages.plan import plan
from runners.direct.job import Job
from runners.direct.micro_batch import MicroBatchJob, in_rounds
from runners.direct.result import DirectResult
from runners.log_format import checked_format
from runners.worker_log import checked_level, logging_in_place
from windowing.timestamps import DurationLike, to_duration_us

_NOTHING_STAYS = "nothing stays of a run in memory; run it again to begin anew"


class DirectRunner:
    """Runs a pipeline in memory.

    Args:
        job: names the run, for people: nothing is stored under it.
        fresh: begin anew, as every run in memory does.
        show_progress: on stderr, as on the other runners; a run in memory has none to show.
        bundle_records: how many records a source hands over at a time; results do not depend on it.
        micro_batch: run as a micro-batch engine does, with rounds of this length (Dataflow Model, section 2.4).
            Input is gathered until the clock reaches the next multiple of it and then processed as one round, at the
            end of which every window whose contents have changed emits a pane, whatever its trigger.  State stays for
            the next round.  The watermark does not advance until the input has ended, so panes are early and nothing is
            late.  Needs a source that gives the arrival of its input, such as a `TestStream`.
        tries_per_record: how often a record that makes user code fail is tried before it is left out and kept as a
            dead letter (`DirectResult.dead_letters`); None: the first failure ends the run.
        log_level: what of this level ("DEBUG", "INFO", ...) or above is logged while it runs, on stderr where `logging`
            has no handler; None: as `logging` is set up in this process.
        log_format: of what is written to stderr, from this run on: "text", or "json" for one object a line; None: that
            of the variable DATAFLOW_LOG_FORMAT, else text.
        check_types: whether each element is checked against the type that annotations and `with_output_types` give it,
            where a transform takes or emits it.  An element of another type is a failure of user code.
        lineage: record where rows of tables come from: ``"panes"``, which pane each row is, why that fired, and how
            much of which splits is in it; ``"records"``, the records too, as text.  `explain_row` shows it.  It
            costs a look at every element; None: nothing is recorded.
    """

    def __init__(
        self,
        *,
        job: str | None = None,
        fresh: bool = False,
        show_progress: bool = True,
        bundle_records: int = 1_000,
        micro_batch: DurationLike | None = None,
        tries_per_record: int | None = None,
        log_level: str | None = None,
        log_format: str | None = None,
        check_types: bool = False,
        lineage: str | None = None,
    ) -> None:
        if bundle_records < 1:
            raise PipelineError(f"bundle_records must be positive, not {bundle_records}")
        self.job = job
        self._round_us = None if micro_batch is None else to_duration_us(micro_batch)
        if self._round_us is not None and self._round_us <= 0:
            raise PipelineError(f"micro_batch must be a positive duration, not {micro_batch!r}")
        self._bundle_records, self._tries = bundle_records, checked_tries(tries_per_record)
        self._log_level, self._log_format = checked_level(log_level), checked_format(log_format)
        self._check_types, self._lineage = check_types, checked_lineage(lineage)

    def run(self, graph: PipelineGraph) -> DirectResult:
        """Run to the end of every source.

        Raises:
            InputError: a source cannot be read.
            PipelineError: the rounds of a micro-batch are wanted and a source does not give the arrival of its input.
        """
        graph = graph if self._round_us is None else in_rounds(graph, self._round_us)
        execution = plan(graph, check_types=self._check_types, lineage=self._lineage)
        for stage in execution.sources():
            stage.read.source.check()
        for _, sink in execution.graph.sinks().values():
            sink.check()
        job = (
            Job(execution, tries=self._tries)
            if self._round_us is None
            else MicroBatchJob(execution, self._round_us, tries=self._tries)
        )
        with (
            if_interrupted(_NOTHING_STAYS),
            logging_in_place(self._log_level, self.job or "", self._log_format),
        ):
            return job.run(self._bundle_records)
