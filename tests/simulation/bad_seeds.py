"""Seeds that once broke the core; they run first, always.

A seed means something only as long as a run draws from chance in the same order, so these lose their aim when the
simulator or the core changes.  What keeps its aim is a mutation that puts the mistake back (`test_core_mutations.py`);
each of these has one there, and finds it today.
"""

#: Pipeline and seed.
BAD_SEEDS: list[tuple[str, int]] = [
    # What a new owner found unsent was sent only where a route changed: the job stood still.
    ("sums", 81),
    # Where to send was announced once, on a connection that broke: the job stood still.
    ("sums", 68),
    # A range that moved reported as if it had come as far as its new neighbours: the next grouping was too far.
    ("chain", 238),
    # After a takeover deliveries were taken before the watermark: a window was on time twice (one worker, crashes).
    ("late", 793),
    # A group that was retracted to nothing and filled again was numbered from zero again.
    ("stamped", 29),
    ("stamped", 44),
]


def known_first(known: int, seeds_max: int) -> list[int]:
    """All seeds below a number, after one that is known to find a breakage on purpose.

    It only saves time: when it loses its aim, the search is as long as ever, and the seed that finds it then is printed
    with the error; put that one here.
    """
    return [known, *range(seeds_max)]
