"""ShippedPlan: a pipeline on its way to workers.

Functions of importable modules travel by name, and a worker starts with another import path than the user's script, so
the path goes with them: enough where executors see the driver's files.  Where they do not, see `shipped_code`.
What the script itself defines goes along by value: functions with the pipeline, classes of records in `main_module`.
"""

import gc
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from dataflow.serialization import dumps_code, loads_code
from runners.core.stages.plan import ExecutionPlan
from runners.log_format import TEXT, wanted_format
from runners.spark.main_module import become_main, classes_of_main
from runners.spark.shipped_code import code_missing
from runners.worker_log import wanted_level

#: Bundles and state are very many objects, few of which die young and none of which are in cycles: Python's usual
#: thresholds have the collector look at them over and over, for a third to a half of a worker's time.
COLLECTOR_THRESHOLDS = (50_000, 20, 20)


@attrs.frozen
class ShippedPlan:
    """A pickled plan, and where its modules are found.

    Attributes:
        code: the whole, under None; or, of a plan whose stages run alone, what each needs, by its name: a task would
            spend its time with the transforms of others where there are many.
        import_path: of the process that has pickled it.
        log_level, log_format: of workers.
    """

    code: Mapping[str | None, bytes] = attrs.field(repr=False)
    import_path: tuple[str, ...]
    log_level: str = "INFO"
    log_format: str = TEXT

    @classmethod
    def of(
        cls, plan: ExecutionPlan, log_level: str | None = None, *, by_stage: bool = False
    ) -> "ShippedPlan":
        """Pickle a plan.

        Args:
            plan: of the pipeline.
            log_level: what of that level or above workers log, in the format of this process; None: that of the
                environment.
            by_stage: whether each process that loads it runs one stage.

        Raises:
            PipelineError: something in it cannot be pickled.
        """
        path = tuple(str(Path(place).resolve()) for place in sys.path)
        parts: Mapping[str | None, ExecutionPlan] = {None: plan}
        if by_stage:
            parts = {name: plan.of_stage(name) for name in plan.stages}
        classes = classes_of_main()
        # In one pickle with the plan, so that a class is the same one for functions and for records.
        code = {name: dumps_code((part, classes), "the pipeline") for name, part in parts.items()}
        return cls(code, path, wanted_level(log_level), wanted_format())

    def load(self, stage: str | None = None) -> ExecutionPlan:
        """The plan, in a worker, whose process is made ready for it.

        Args:
            stage: the one that it runs, if they were pickled by stage.

        Raises:
            CodeMissingError: it uses a module that is not here.
        """
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        sys.path.extend(place for place in self.import_path if place not in sys.path)
        try:
            plan: ExecutionPlan
            plan, classes = loads_code(self.code[stage])
        except ModuleNotFoundError as error:
            raise code_missing(error.name or str(error), f"by {sys.executable} there") from error
        become_main(classes)
        return plan
