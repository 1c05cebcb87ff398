"""Which transform is running in this process, for whoever tells of it: the log of a worker.

A process runs one at a time; a bundle is through a transform before the next one starts on it, or within it.
"""

import attrs


@attrs.define
class Running:
    """The label of the transform whose user code runs; empty between two."""

    label: str = ""


RUNNING = Running()
