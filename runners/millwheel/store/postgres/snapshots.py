"""Sessions that keep the server from freeing what was overwritten or deleted."""

from collections.abc import Sequence

from runners.millwheel.store.port import OldSnapshot
from runners.millwheel.store.postgres.job_reads import JobReads
from runners.millwheel.store.postgres.queries import QUERIES


class SnapshotVerbs(JobReads):
    """The verb of the port that names them."""

    def old_snapshots(self, older_than_s: float) -> Sequence[OldSnapshot]:
        """What this role may see of them: of other roles' sessions only if it has `pg_read_all_stats`."""
        parameters = {"older_than_s": older_than_s}
        rows = self._transact(
            lambda opened: opened.execute(QUERIES["old_snapshots"], parameters).fetchall(),
            is_one_statement=True,
        )
        return [
            OldSnapshot(holder=holder, application=application, user=user, state=state, age_s=age_s)
            for holder, application, user, state, age_s in rows
        ]
