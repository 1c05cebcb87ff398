"""One run after the other: each in a fresh process, measured, checked, and recorded as a line of JSON."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import attrs

from benchmarks import latency, reference
from benchmarks.answers import Answer, rows_below, rows_of
from benchmarks.cases import LATENCY, THROUGHPUT
from benchmarks.environments import UnavailableError, interpreter
from benchmarks.harness import Runs
from benchmarks.nexmark import LATENCY as NEXMARK_LATENCY
from benchmarks.peers.registry import PEERS, Peer
from benchmarks.processes import Usage
from benchmarks.stores import Server
from benchmarks.tables import Result
from benchmarks.task import Task
from benchmarks.workloads import SEED, users


@attrs.frozen(kw_only=True)
class Options:
    """What the user asked for.

    ``sizes``: of cases of throughput.  ``rates``, ``seconds``, ``warm_up_s``: of cases of latency.
    ``cache``: where data and environments are kept.  ``keep_logs``: where the output of runs goes.
    """

    cases: Sequence[str]
    peers: Sequence[str]
    sizes: Sequence[int]
    rates: Sequence[int]
    reps: int
    seconds: int
    warm_up_s: int
    timeout_s: float
    cache: Path


@attrs.frozen(kw_only=True)
class Plan:
    """One run that is to be made."""

    peer: Peer
    case: str
    variant: str
    size: int
    rate: int
    rep: int

    @property
    def title(self) -> str:
        """The title of a run, for people."""
        amount = f"{self.rate:,} a second" if self.rate else f"{self.size:,}"
        name = f"{self.peer.name} {self.variant}".strip()
        return f"{self.case} of {amount}, {name}, run {self.rep + 1}"


def planned(options: Options) -> Iterator[Plan]:
    """All runs, in an order that puts those that will be compared side by side: ours, a peer, ..., ours, a peer, ..."""
    peers = [PEERS[name] for name in options.peers]
    for case in options.cases:
        amounts = options.rates if case in LATENCY else options.sizes
        for amount, rep in itertools.product(amounts, range(options.reps)):
            for peer in peers:
                if case not in peer.cases:
                    continue
                for variant in peer.variants if case == "S2" else ("",):
                    is_rate = case in LATENCY
                    yield Plan(
                        peer=peer,
                        case=case,
                        variant=variant,
                        size=0 if is_rate else amount,
                        rate=amount if is_rate else 0,
                        rep=rep,
                    )


class Bench:
    """Makes runs.

    Args:
        options: what was asked for.
        server: for the peers that need a store.
    """

    def __init__(self, options: Options, server: Server) -> None:
        self._options = options
        self._runs = Runs(server, options.timeout_s)
        self._unavailable: set[str] = set()

    def results(self) -> Iterator[Result]:
        """Of all planned runs, each when it is done; prints what happens."""
        for plan in planned(self._options):
            if plan.peer.name in self._unavailable:
                continue
            try:
                python = interpreter(plan.peer, self._options.cache / "environments")
            except UnavailableError as error:
                self._unavailable.add(plan.peer.name)
                print(error, flush=True)
                continue
            print(f"{plan.title}: ", end="", flush=True)
            result = self._run(plan, python)
            print(f"{_figure(result)}{result['check']}", flush=True)
            yield result

    def _run(self, plan: Plan, python: str) -> Result:
        needs_store = plan.peer.needs_store
        with self._runs.prepared(self._task(plan), needs_store=needs_store) as task:
            usage, trouble = self._runs.measured(task, python, plan.peer.module)
            return self._written_down(plan, task, usage, trouble)

    def _task(self, plan: Plan) -> Task:
        task = Task(
            case=plan.case,
            size=plan.size,
            out="",
            variant=plan.variant,
            rate=plan.rate,
            seconds=self._options.seconds,
            warm_up_s=self._options.warm_up_s,
        )
        if plan.case in THROUGHPUT:
            data = self._options.cache / "data"
            dataset = THROUGHPUT[plan.case].dataset(data, plan.size)
            task = task._replace(two=str(dataset.two), stream=str(dataset.stream or ""))
        return task

    def _written_down(self, plan: Plan, task: Task, usage: Usage, trouble: str | None) -> Result:
        result: Result = {
            "case": plan.case,
            "peer": plan.peer.name,
            "variant": plan.variant,
            "size": plan.size,
            "rate": plan.rate,
            "rep": plan.rep,
            "wall_s": round(usage.wall_s, 2),
            "whole_cpu_s": round(usage.cpu_s, 2),
            "rss_mb": usage.rss_bytes >> 20,
        }
        if trouble is not None:
            return result | {"check": trouble}
        report = task.reported()
        if "seconds" in report:
            end_s = report["began_s"] + report["seconds"]
            result["seconds"] = round(report["seconds"], 3)
            result["cpu_s"] = round(usage.cpu_between_s(report["began_s"], end_s), 2)
        return result | self._checked(plan, task, report)

    def _checked(self, plan: Plan, task: Task, report: Result) -> Result:
        if plan.case == "LAG":
            pairs = [(row[0], int(row[1])) for row in rows_below(task.rows)]
            stages = latency.lag_by_stage(pairs)
            return {"stages": stages, "check": reference.OK if stages else "WRONG: no samples"}
        if plan.case == "S2":
            return s2_figures(task, has_all=report["rows_for_each_record"])
        if plan.case in NEXMARK_LATENCY:
            return nexmark_figures(task, first_time_ms=report["first_time_ms"])
        case, data = THROUGHPUT[plan.case], self._options.cache / "data"
        try:
            answer = Answer.of(case, rows_of(case, task.rows))
        except ValueError as error:
            return {"check": f"WRONG: {error}"}
        right = reference.answers(case, plan.size, kept_in=data)
        return {"check": reference.check_answer(answer, right)}


def lines_of(task: Task) -> list[latency.Line]:
    """The rows that a run of S2 has left."""
    lines = []
    for row in rows_below(task.rows):
        user, count, created_us, committed_us = map(int, row)
        lines.append((user, count, created_us, committed_us))
    return lines


def s2_figures(task: Task, *, has_all: bool) -> Result:
    """The figures that a run of S2 reports; `has_all` as for `latency.check_counts`."""
    lines = lines_of(task)
    if not lines:
        return {"check": "WRONG: no rows"}
    check = latency.check_counts(lines, users(task.records, Random(SEED)), has_all=has_all)
    return {**latency.spread(latency.latencies_ms(lines, task.warm_up_s)), "check": check}


def nexmark_figures(task: Task, *, first_time_ms: int) -> Result:
    """The figures of a query of Nexmark, whose rows end with when each was complete and when it was committed.

    Rows that were complete while the job warmed up, or that only the end of the load has made so, are checked and not
    counted.

    Args:
        task: of the run.
        first_time_ms: event time of the first event.
    """
    case = NEXMARK_LATENCY[task.case]
    lines = list(rows_below(task.rows))
    right = case.rows(size=task.records, events_per_s=task.rate, first_time_ms=first_time_ms)
    given = Answer.of(case.query, [line[:-2] for line in lines])
    check = reference.check_answer(given, {reference.OK: Answer.of(case.query, right)})
    began_ms = first_time_ms + 1_000 * task.warm_up_s
    end_ms = began_ms + 1_000 * task.seconds
    instants = [(int(line[-2]), int(line[-1])) for line in lines]
    found = [
        committed_us / 1_000 - complete_ms
        for complete_ms, committed_us in instants
        if began_ms <= complete_ms < end_ms
    ]
    return {**latency.spread(found), "rows": len(found), "check": check}


def _figure(result: Result) -> str:
    """The most important figure of a run, as the beginning of a line."""
    if "p50" in result:
        return f"median {result['p50']} ms, "
    return f"{result['seconds']} s, " if "seconds" in result else ""
