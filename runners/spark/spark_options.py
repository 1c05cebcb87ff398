"""SparkOptions: the Spark that a job runs on, its settings and the user's code; the same for all runners."""

from collections.abc import Mapping, Sequence

import attrs
from pyspark import SparkContext

from runners.spark.session import spark_context
from runners.spark.shipped_code import checked_code, ship_code


@attrs.frozen
class SparkOptions:
    """Checked when it is made, so before anything starts.

    Args:
        master: as Spark writes it.
        settings: more `spark.*` settings.
        code: see `checked_code`.

    Raises:
        PipelineError: some of the code is not there, or cannot be sent.
    """

    master: str
    settings: Mapping[str, str]
    code: Sequence[str] = attrs.field(converter=checked_code)

    def context(self) -> SparkContext:
        """The Spark of this process, started if need be, with the code on its way to executors.

        Raises:
            EmbeddedServiceError: it does not start, or has other settings.
        """
        context = spark_context("dataflow", master=self.master, settings=self.settings)
        ship_code(context, self.code)
        return context
