"""Which programs there are, which cases they can run, and what they need."""

from collections.abc import Mapping

import attrs

from benchmarks.nexmark import CASES, LATENCY
from benchmarks.peers import nexmark_sql

NEXMARK = tuple(CASES)
NEXMARK_LATENCY = tuple(LATENCY)
#: What Flink and Spark say in SQL here; the others need what their SQL has not, or has otherwise.
NEXMARK_SQL = tuple(nexmark_sql.SPARK)
#: Those of `examples.nexmark.column_queries`; that is not imported here, as other programs have no Arrow.
NEXMARK_COLUMNS = (
    "q0",
    "q1",
    "q2",
    "q4",
    "q5",
    "q7",
    "q8",
    "q11",
    "q12",
    "q14",
    "q15",
    "q16",
    "q17",
    "q21",
    "q22",
)
BATCH = ("B1", "B2", "B3", "B4", "B5")
#: Distinguishes rows of the cases of latency too.
WEAK = "weak"


@attrs.frozen(kw_only=True)
class Peer:
    """One program.

    ``module``: what is run.  ``cases``: what it can.  ``variants``: of cases of latency, each run by itself.
    ``requirements``: of an environment of its own, exact versions; none: it runs in this project's.
    ``needs_store``: it is given an empty database.  ``note``: what a reader of a table must know.
    """

    name: str
    module: str
    cases: tuple[str, ...]
    variants: tuple[str, ...] = ("",)
    requirements: tuple[str, ...] = ()
    needs_store: bool = False
    note: str = ""


_ALL = (
    Peer(
        name="ours",
        module="benchmarks.peers.ours",
        cases=(*BATCH, "S1", "S2", "LAG", *NEXMARK, *NEXMARK_LATENCY),
        variants=("", WEAK),
        needs_store=True,
        note="Python functions; rows to Postgres, exactly once",
    ),
    Peer(
        name="ours-columns",
        module="benchmarks.peers.ours_columns",
        cases=(
            *("B1", "B2", "B3", "B4", "S1", "S2"),
            *NEXMARK_COLUMNS,
            *(name for name, case in LATENCY.items() if case.query.name in NEXMARK_COLUMNS),
        ),
        needs_store=True,
        note="typed rows, built-in combiners, no Python per record; rows to Postgres, exactly once; "
        "in S2 one row for each user and window of five milliseconds",
    ),
    Peer(
        name="floor",
        module="benchmarks.peers.floor",
        cases=("S2",),
        needs_store=True,
        note="the promises of ours, under the same load, by two processes without a framework",
    ),
    Peer(
        name="spark-rdd",
        module="benchmarks.peers.spark_rdd",
        cases=BATCH,
        note="Python functions by hand; text files",
    ),
    Peer(
        name="spark-df",
        module="benchmarks.peers.spark_df",
        cases=(*BATCH, *NEXMARK_SQL),
        note="SQL operators, no Python per record; text files",
    ),
    Peer(
        name="spark-native",
        module="benchmarks.peers.spark_native",
        cases=("S1", "S2"),
        note="SQL operators, no Python per record; exactly-once text files; "
        "in S2 one row for each user and micro-batch",
    ),
    Peer(
        name="duckdb",
        module="benchmarks.peers.duckdb_sql",
        cases=BATCH,
        requirements=("duckdb==2.0.0",),
        note="one process, nothing distributed; text files",
    ),
    Peer(
        name="polars",
        module="benchmarks.peers.polars_lazy",
        cases=BATCH,
        requirements=("polars==2.1.0",),
        note="one process, nothing distributed; text files",
    ),
    Peer(
        name="beam",
        module="benchmarks.peers.beam_local",
        cases=(*BATCH, *NEXMARK),
        requirements=("apache-beam==2.77.0",),
        note="Python functions on the in-memory runner; text files",
    ),
    Peer(
        name="bytewax",
        module="benchmarks.peers.bytewax_flow",
        cases=(*BATCH, "S1"),
        requirements=("bytewax==0.21.1",),
        note="Python functions, one process; text files, in S1 at least once",
    ),
    Peer(
        name="pathway",
        module="benchmarks.peers.pathway_tables",
        cases=BATCH,
        requirements=("pathway==0.33.0",),
        note="its own operators, no Python per record, two threads; text files",
    ),
    Peer(
        name="flink-sql",
        module="benchmarks.peers.flink_sql",
        cases=("B1", "B2", "B3", "S1", *NEXMARK_SQL),
        requirements=("apache-flink==2.3.0",),
        note="SQL operators, no Python per record; in S1 exactly-once text files",
    ),
)
PEERS: Mapping[str, Peer] = {peer.name: peer for peer in _ALL}
#: Those that are ours: tables compare each of the others with each of these.
OURS = tuple(name for name in PEERS if name.startswith("ours"))
DEFAULT = (
    "ours",
    "ours-columns",
    "floor",
    "spark-rdd",
    "spark-df",
    "spark-native",
    "duckdb",
    "polars",
)
