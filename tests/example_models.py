"""What the examples should come to, in plain Python over all of the input at once: no window, no watermark, no pane."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import erfc, sqrt
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from examples.ab_test.pipeline import EXPERIMENTS, Event
from examples.card_fraud.pipeline import Case
from examples.click_sessions.pipeline import Visit

T = TypeVar("T")
#: An instant, and what happened.
Happened = tuple[datetime, T]


def runs(times: Iterable[datetime], gap: timedelta) -> Iterator[list[datetime]]:
    """Sorted instants, cut where one is a gap or more after the one before."""
    run: list[datetime] = []
    for at in sorted(times):
        if run and at - run[-1] >= gap:
            yield run
            run = []
        run.append(at)
    if run:
        yield run


def by_key(pairs: Iterable[Happened[tuple[Any, T]]]) -> Mapping[Any, list[Happened[T]]]:
    found: dict[Any, list[Happened[T]]] = defaultdict(list)
    for at, (key, value) in pairs:
        found[key].append((at, value))
    return found


def visits(clicks: Sequence[Happened[tuple[str, str]]]) -> list[Visit]:
    return [
        Visit(user, run[0], int((run[-1] - run[0]).total_seconds()), len(run))
        for user, of_user in by_key(clicks).items()
        for run in runs([at for at, _ in of_user], timedelta(minutes=30))
    ]


def dashboard(made: Sequence[Visit]) -> list[dict[str, Any]]:
    hours = defaultdict(list)
    for visit in made:
        over = visit.began + timedelta(minutes=30, seconds=visit.seconds, microseconds=-1)
        hours[over.replace(minute=0, second=0, microsecond=0)].append(visit)
    return [
        {
            "hour": hour,
            "visits": len(found),
            "bounces": sum(visit.clicks == 1 for visit in found),
            "clicks_per_visit": sum(visit.clicks for visit in found) / len(found),
            "seconds_per_visit": sum(visit.seconds for visit in found) / len(found),
        }
        for hour, found in hours.items()
    ]


def cases(payments: Sequence[Happened[tuple[str, int]]]) -> list[Case]:
    """What all cases have come to, where no card pays twice at one instant."""
    return [case for card, paid in by_key(payments).items() for case in _of_card(card, paid)]


def _of_card(card: str, paid: Sequence[Happened[int]]) -> Iterator[Case]:
    usual: list[int] = []
    case, last = None, min(at for at, _ in paid)
    for at, cents in sorted(paid):
        if case is not None and at - last >= timedelta(minutes=30):
            yield case._replace(closed=last + timedelta(minutes=30))
            case = None
        if case is None:
            lately = sum(at - timedelta(minutes=3) <= each <= at for each, _ in paid)
            if len(usual) >= 4 and cents > 8 * sum(usual) / len(usual):
                case = Case(card, at, None, "much more than usual", 0, 0)
            elif lately >= 4:
                case = Case(card, at, None, "many within minutes", 0, 0)
            else:
                usual.append(cents)
                continue
        case, last = (
            case._replace(payments=case.payments + 1, amount_cents=case.amount_cents + cents),
            at,
        )
    if case is not None:
        yield case._replace(closed=last + timedelta(minutes=30))


def bills(usage: Sequence[Happened[tuple[str, Decimal]]]) -> dict[tuple[str, str], Decimal]:
    found: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for at, (account, amount) in usage:
        found[account, f"{at.astimezone(ZoneInfo('Europe/Berlin')):%Y-%m}"] += amount
    return found


def results(events: Sequence[Happened[Event]]) -> list[tuple[Any, ...]]:
    """Experiment, Monday, users and conversions of both arms, and the p-value from Pearson's chi-square test."""
    found = []
    weeks = {(at - timedelta(days=at.weekday())).date() for at, _ in events}
    for week in weeks:
        here = [event for at, event in events if timedelta(0) <= at.date() - week < timedelta(7)]
        for name, experiment in EXPERIMENTS.items():
            arms: dict[str, set[bool]] = defaultdict(set)
            for event in here:
                if event.action == "shown" and event.experiment == name:
                    arms[event.user].add(event.variant == experiment.control)
            bought = {event.user for event in here if event.action == experiment.goal}
            counts = []
            for is_control in (True, False):
                users = {user for user, seen in arms.items() if seen == {is_control}}
                counts += [len(users), len(users & bought)]
            if counts[0] or counts[2]:
                found.append((name, week, *counts, _chi_square_p(*counts)))
    return found


def _chi_square_p(users: int, yes: int, others: int, others_yes: int) -> float | None:
    """With one degree of freedom: another way to the same number as the z-test of two proportions."""
    if not users or not others:
        return None
    no, others_no = users - yes, others - others_yes
    margins = users * others * (yes + others_yes) * (no + others_no)
    if not margins:
        return 1.0
    square = (users + others) * (yes * others_no - no * others_yes) ** 2 / margins
    return erfc(sqrt(square / 2))


Ride = Mapping[str, Any]


def station_days(rides: Sequence[Ride]) -> list[dict[str, Any]]:
    found: dict[tuple[str, date], list[int]] = defaultdict(list)
    for ride in rides:
        found[ride["station"], datetime.fromisoformat(ride["began"]).date()].append(ride["minutes"])
    return [
        {"station": station, "day": day, "rides": len(minutes), "minutes": sum(minutes)}
        for (station, day), minutes in found.items()
    ]


def trips(rides: Sequence[Ride]) -> list[dict[str, Any]]:
    pairs = [(datetime.fromisoformat(r["began"]), (r["bicycle"], r["minutes"])) for r in rides]
    return [
        {
            "bicycle": bicycle,
            "began": run[0],
            "rides": len(run),
            "minutes": sum(minutes for at, minutes in ridden if run[0] <= at <= run[-1]),
        }
        for bicycle, ridden in by_key(pairs).items()
        for run in runs([at for at, _ in ridden], timedelta(hours=1))
    ]
