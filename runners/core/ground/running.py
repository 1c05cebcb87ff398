"""The transform that is running in this process, for a worker's log.

A process runs one at a time; a transform finishes a bundle before the next one starts on it, or calls the next one.
"""

import attrs


@attrs.define
class Running:
    """The label of the transform whose user code runs; empty between two transforms."""

    label: str = ""


RUNNING = Running()
