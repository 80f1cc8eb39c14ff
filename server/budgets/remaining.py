"""What a fleet's devices can still report: reports left of each budget, by the reports that arrived.

The store knows which report numbers of a device it has accepted. Numbers have no gaps, so the highest one
says how many reports the device had made by then; its own ledger may be further. If versions of an experiment
had several ε, each report counts as the dearest. So at least this much is left, except for reports that have
not arrived, and for devices that pinned a cap below the present one.
"""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from ...device.ldp_client import Experiment
from ..errors import UsageError
from ..store.store import Store, Version, VersionRefused
from .forecast import DRY, Forecast, Purse, SharedForecast, daily, rate, shared
from .policy import Policy

Profile = tuple[int, ...]
"""How many reports a board has made for each of a fleet's experiments, in their order."""

_AHEAD = 3
_LEAST_DAYS = 30.0
_NEVER_DAYS = 365.0  # how far a picture looks if nothing ever runs dry


@dataclass(frozen=True)
class BudgetLine:
    """One experiment of a fleet: its newest version, and what a device's reports may have cost.

    state: "current", "withdrawn", "expired" or, with a policy, "refused". dearest, cheapest: micro-nats of a
    report over all versions that have any. days: reports on each full day.
    """

    experiment: Experiment
    state: str
    dearest: int
    cheapest: int
    accepted: int
    days: Mapping[datetime.date, int]

    def left(self, made: int) -> int | None:
        """Reports at the present ε that a board's own budget for the experiment holds after those it made."""
        e = self.experiment
        if self.state != "current":
            return 0
        if e.rule == "unlimited":
            return None
        cost = {"sum": self.dearest, "squares": self.dearest**2, "count": 1}[e.rule]
        return max(0, (e.cap - made * cost) // e.cost())


@dataclass(frozen=True)
class Remaining:
    """What a fleet can still report to one experiment.

    boards: of the fleet, those not heard from yet included where their number was given; silent: those with
    nothing left. holds: reports that a new board's budget and policy hold; left: in all boards together (None
    for both: unbounded). per_day: reports of the fleet a day. half, dry: the days when half of the boards,
    and all but 5 %, will be silent; None where no rate is known or it never comes. forecast: None likewise.
    """

    budget: BudgetLine
    boards: int
    silent: int
    holds: int | None
    left: int | None
    per_day: float | None
    left_counts: Mapping[int | None, int]
    forecast: Forecast | SharedForecast | None = None
    half: datetime.date | None = None
    dry: datetime.date | None = None

    @property
    def able_share(self) -> float | None:
        """The share of devices that can still report, 0 to 1; None where it is asked once or without end."""
        if self.budget.state != "current" or self.holds in (None, 1) or not self.boards:
            return None
        return 1 - self.silent / self.boards

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; ε in nats."""
        b, e = self.budget, self.budget.experiment
        return {
            "experiment": e.name,
            "digest": e.digest.hex(),
            "state": b.state,
            "rule": e.rule,
            "epsilon": e.epsilon / 1e6,
            "dearest_epsilon": b.dearest / 1e6,
            "cheapest_epsilon": b.cheapest / 1e6,
            "accepted": b.accepted,
            "boards": self.boards,
            "silent": self.silent,
            "holds": self.holds,
            "left": self.left,
            "left_counts": {"any" if n is None else str(n): c for n, c in self.left_counts.items()},
            "per_day": self.per_day,
            "half_silent": self.half and self.half.isoformat(),
            "dry": self.dry and self.dry.isoformat(),
        }


@dataclass(frozen=True)
class FleetLedger:
    """A fleet's budgets, how many devices made how many reports of each, and the policy if known."""

    fleet: str
    budgets: tuple[BudgetLine, ...]
    profiles: Mapping[Profile, int]
    policy: Policy | None = None
    devices: Mapping[str, Profile] = field(default_factory=dict)

    def left(self, profile: Profile) -> tuple[int | None, ...]:
        """Return the reports that a device has left of each experiment, as its status() would say."""
        own = [b.left(made) for b, made in zip(self.budgets, profile, strict=True)]
        if self.policy is None:
            return tuple(own)
        total, squares = self._spent(profile)
        life = [self.policy.left(b.experiment.epsilon, total, squares) for b in self.budgets]
        return tuple(y if x is None else min(x, y) for x, y in zip(own, life, strict=True))

    def lines(self, today: datetime.date, last_days: int = 7) -> list[Remaining]:
        """Return one line for each experiment; the rate is the mean of the last last_days full days."""
        left_counts: list[Counter[int | None]] = [Counter() for _ in self.budgets]
        for profile, boards in self.profiles.items():
            for counts, n in zip(left_counts, self.left(profile), strict=True):
                counts[n] += boards
        new = self.left((0,) * len(self.budgets))
        rates = [rate(b.days, last_days) for b in self.budgets]
        able = [counts.total() - counts[0] for counts in left_counts]
        each = [r / n if r and n else 0.0 for r, n in zip(rates, able, strict=True)]
        forecasts = self._forecasts(each, left_counts)
        lines = []
        for i, budget in enumerate(self.budgets):
            counts, forecast = left_counts[i], forecasts[i]
            half, dry = (_day(today, forecast and forecast.days_until(share)) for share in (0.5, DRY))
            lines.append(
                Remaining(
                    budget,
                    boards=sum(counts.values()),
                    silent=counts[0],
                    holds=new[i],
                    left=None if None in counts else sum((n or 0) * c for n, c in counts.items()),
                    per_day=rates[i],
                    left_counts=dict(sorted(counts.items(), key=lambda x: (x[0] is None, x[0] or 0))),
                    forecast=forecast,
                    half=half,
                    dry=dry,
                )
            )
        return lines

    def _forecasts(
        self, each: Sequence[float], left_counts: Sequence[Mapping[int | None, int]]
    ) -> list[Forecast | SharedForecast | None]:
        """A forecast for each experiment, from the reports a day of one board; None where it makes none."""
        if self.policy is not None and sum(rate > 0 for rate in each) > 1:
            experiments = [b.experiment for b in self.budgets]
            purses = [Purse(e.epsilon, e.every, r) for e, r in zip(experiments, each, strict=True)]
            starts = [
                ([b.left(made) for b, made in zip(self.budgets, profile, strict=True)], *self._spent(profile))
                for profile in self.profiles
            ]
            drawn = shared(
                purses, (self.policy.sum, self.policy.squares), starts, list(self.profiles.values())
            )
            return [x if x.per_day else None for x in drawn]
        parts = zip(self.budgets, left_counts, each, strict=True)
        return [Forecast(left, b.experiment.every, r) if r else None for b, left, r in parts]

    def _spent(self, profile: Profile) -> tuple[int, int]:
        """A board's Σε and Σε² in micro-nats, if each report cost the dearest ε of its experiment."""
        costs = [(made, b.dearest) for b, made in zip(self.budgets, profile, strict=True)]
        return sum(n * e for n, e in costs), sum(n * e * e for n, e in costs)


def read(
    store: Store,
    fleet: str,
    today: datetime.date,
    policy: Policy | None = None,
    boards: int | None = None,
    devices: Iterable[str] = (),
) -> FleetLedger:
    """Return a fleet's ledger from the store.

    policy: of the boards' firmware, None where it is not known. boards: how many are in the field; those that
    were never heard from have their whole budget. devices: ids whose own numbers are wanted.
    Raises StoreError, also VersionRefused for a fleet that is not there, and UsageError where more than so
    many have reported.
    """
    if fleet not in store.fleets():
        raise VersionRefused(f"no fleet {fleet} in {store.where}")
    versions = store.experiments(fleet)
    windows = store.window_reports(fleet)
    names = list(dict.fromkeys(v.experiment.name for v in versions))
    budgets = tuple(
        _budget([v for v in versions if v.experiment.name == name], windows, today, policy) for name in names
    )
    profiles: Counter[Profile] = Counter()
    wanted, known = set(devices), {}
    for device, rows in groupby(store.accepted_numbers(fleet), key=lambda row: row[0]):
        made = {name: numbers.highest for _, name, numbers in rows}
        profile = tuple(made.get(name, 0) for name in names)
        profiles[profile] += 1
        if device in wanted:
            known[device] = profile
    nothing, heard = (0,) * len(names), profiles.total()
    if boards is not None:
        if boards < heard:
            raise UsageError(f"{heard:,} devices have reported: --devices is all that are in the field")
        profiles[nothing] += boards - heard
    known |= dict.fromkeys(wanted - known.keys(), nothing)
    return FleetLedger(fleet, budgets, {p: n for p, n in profiles.items() if n}, policy, known)


def shown_days(lines: Sequence[Remaining], today: datetime.date) -> tuple[float, float]:
    """Return how many days ahead a picture shows: of reports a day, and of devices that can still report.

    Reports reach some times as far as the counted days, so that these can be seen; devices until hardly any
    can still report.
    """
    ends = [x.forecast.days_until(DRY / 5) for x in lines if x.forecast]
    horizon = max(1.05 * max([end for end in ends if end], default=_NEVER_DAYS), 1.0)
    counted = [day for line in lines for day in line.budget.days]
    past = (today - min(counted)).days if counted else 0
    return min(horizon, max(_AHEAD * past, _LEAST_DAYS)), horizon


def _budget(
    versions: Sequence[Version],
    windows: Mapping[int, Mapping[str, int]],
    today: datetime.date,
    policy: Policy | None,
) -> BudgetLine:
    """The ledger's line for all versions of one name, oldest first."""
    newest = next((v for v in versions if v.current), versions[-1])
    e = newest.experiment
    heard = {v.experiment.epsilon for v in versions if v.id in windows} or {e.epsilon}
    together: Counter[str] = Counter()
    for v in versions:
        together.update(windows.get(v.id, {}))
    state = "current" if newest.published_on(today) else "expired" if newest.current else "withdrawn"
    if state == "current" and policy is not None:
        known = e.name in policy.experiments and e.rule in policy.rules
        state = state if known and e.epsilon <= policy.epsilon else "refused"
    return BudgetLine(e, state, max(heard), min(heard), together.total(), daily(together, today))


def _day(today: datetime.date, days: float | None) -> datetime.date | None:
    try:
        return None if days is None else today + datetime.timedelta(days)
    except OverflowError:
        return None
