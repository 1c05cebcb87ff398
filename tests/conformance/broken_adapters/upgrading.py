"""Adapters that take the format of a job's stored bytes lightly."""

import attrs

from runners.millwheel.store.memory.store import MemoryStore
from runners.millwheel.store.port import JobRow, JobSpec, JobUpdate


class ReadsWhateverThereIs(MemoryStore):
    """Code is given a job whose bytes it does not read."""

    def open_job(self, spec: JobSpec) -> JobRow:
        return super().open_job(_reads_all(spec))

    def update_job(self, update: JobUpdate) -> JobRow:
        return super().update_job(attrs.evolve(update, spec=_reads_all(update.spec)))


class LeavesTheFormatAsItWas(MemoryStore):
    """Older code comes back and finds its own number, and bytes of a newer one."""

    def open_job(self, spec: JobSpec) -> JobRow:
        row = super().open_job(spec)
        with self._lock:
            job = self._jobs[spec.job]
            first = self._formats.setdefault(spec.job, row.stored_format)
            job.spec = attrs.evolve(job.spec, stored_format=first)
        return attrs.evolve(row, stored_format=first)

    def __init__(self) -> None:
        super().__init__()
        self._formats: dict[str, int] = {}


class LeavesOlderCodeItsRanges(MemoryStore):
    """An upgrade is no version of its own: a worker of older code takes ranges, and reads bytes that it cannot read."""

    def open_job(self, spec: JobSpec) -> JobRow:
        with self._lock:
            before = self._jobs[spec.job].version if spec.job in self._jobs else 0
            row = super().open_job(spec)
            self._jobs[spec.job].version = before
        return attrs.evolve(row, version=before)


def _reads_all(spec: JobSpec) -> JobSpec:
    return attrs.evolve(spec, readable_formats=frozenset(range(10)))
