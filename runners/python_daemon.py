"""The process that Spark forks its Python workers from, on this machine: with all that our tasks import in it already.

``python -m runners.python_daemon`` is what Spark starts instead of ``pyspark.daemon`` (`runners.spark.session`).
Importing takes half a second of processor time, and would be done by each worker anew: by those of every job, and by
each successor of a worker that has died.  What has been imported is shared memory, too.

Executors elsewhere start Spark's own: it is not known whether this package is there before a task needs it.
"""

import gc

from pyspark.daemon import manager

import runners.batch.batch_end
import runners.batch.tasks
import runners.streaming.worker_task  # noqa: F401 - imported before the first fork, so that no worker does it again

if __name__ == "__main__":
    # What is here stays: the collectors of the workers need not look at it, nor write to its pages.
    gc.freeze()
    manager()
