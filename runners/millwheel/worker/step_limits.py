"""StepLimits: how much a worker does in one step; the steps of all its computations become one commit."""

import attrs


@attrs.frozen(kw_only=True)
class StepLimits:
    """Bounds how large a commit is, and how long other computations wait for their turn; results do not depend on it.

    Attributes:
        records: that a source hands over.
        column_records: the same where they come as columns, of which many are little work.
        deliveries: that a computation takes in.
        timers: that fire.
        cells: that receive a signal.
        panes: that are emitted of windows kept as columns, unless more are of windows with the same end.
        compacted: cells, and timers, that are brought up to date with the journal.
        nbytes: that it causes to be written, about; but one record, delivery, timer or cell may cause more.
        piece_bytes: an entry of the journal, and what is sent to one range at once, unless it is a single thing.
        page_bytes: of a page of state that is large, about: that much is written when some of it changes.
        first: records, timers or cells when nothing is known of their size yet.
    """

    records: int = 5_000
    column_records: int = 20_000
    deliveries: int = 64
    timers: int = 10_000
    cells: int = 10_000
    panes: int = 200_000
    compacted: int = 5_000
    nbytes: int = 8 << 20
    piece_bytes: int = 4 << 20
    page_bytes: int = 16 << 10
    first: int = 100


#: As much as a running job needs.
STEP_LIMITS = StepLimits()
