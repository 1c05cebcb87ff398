"""NewSplits: checks the splits that a job gets while it runs, from the moment at which they are in the store.

**Invariant** (I5): a split begins at no earlier watermark than what it feeds has come to, and is there once.
"""

from runners.core.stages.plan import ExecutionPlan
from runners.millwheel.master.master import Master
from runners.millwheel.model.ids import RangeId
from runners.millwheel.store.memory.store import MemoryStore
from runners.stored.places import decode_split
from runners.testing.simulator.errors import InvariantError
from runners.testing.simulator.polls import Polls
from windowing.timestamps import MIN_TIMESTAMP_US


class NewSplits:
    """The splits of one job.

    Args:
        store: where the job is.
        job: its name.
        plan: the pipeline.
        polls: is notified of new splits.
    """

    def __init__(self, store: MemoryStore, job: str, plan: ExecutionPlan, polls: Polls) -> None:
        self._store, self._job, self._plan, self._polls = store, job, plan, polls
        self._known: set[RangeId] = set()

    def check(self, master: Master) -> None:
        """Look at what is new since the last time.

        Args:
            master: that has held the watermarks for it, and may have died since.

        Raises:
            InvariantError: a split is there twice, or begins behind what it feeds.
        """
        job = self._store.read_job(self._job)
        splits = {
            each: row for each, row in ({} if job is None else job.ranges).items() if row.split
        }
        if splits.keys() == self._known:
            return
        born, self._known = splits.keys() - self._known, set(splits)
        self._polls.look_again()
        found = [(each.computation, decode_split(row.split or b"")) for each, row in splits.items()]
        twice = [each for each in found if found.count(each) > 1]
        if twice:
            raise InvariantError(f"I5: {twice[0]} is there {found.count(twice[0])} times")
        inputs_us = {
            name: max(input_us, self._polls.stored_us(name))
            for name, input_us in master._authority.inputs_us.items()  # noqa: SLF001 - the simulator sees everything
        }
        for range_id in born:
            begins_us = splits[range_id].watermark_us
            if splits[range_id].bundle > 0:
                continue  # it was there before the driver
            for name, input_us in inputs_us.items():
                is_fed = range_id.computation in self._plan.senders(name)
                if is_fed and (MIN_TIMESTAMP_US if begins_us is None else begins_us) < input_us:
                    raise InvariantError(
                        f"I5: {range_id} begins at {begins_us} us, and {name} has come to {input_us} us"
                    )
