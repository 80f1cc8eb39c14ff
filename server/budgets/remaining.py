"""Compute how many reports a fleet's devices have left in each budget, from the reports that arrived.

The store records each device's accepted report numbers. Numbers have no gaps, so the highest one is the
number of reports made by then; the device's ledger may show more. If an experiment's versions had
different ε values, each report is counted at the largest. The result is therefore a lower bound, except for
reports that have not arrived, and for devices that pinned a lower cap than the current one.
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
from ..store.versions import UnreadableExperiment, check_readable, publication_order
from ..words.numbers import counted
from .forecast import (
    SPENT_SHARE,
    Forecast,
    ReportRate,
    SharedForecast,
    daily_reports,
    draw_forecasts,
    mean_daily_reports,
)
from .policy import Policy

Profile = tuple[int, ...]
"""The number of reports that a board has made for each of a fleet's experiments, in their order."""

_HORIZON_FACTOR = 3
_MIN_DAYS = 30.0
_NEVER_DAYS = 365.0  # range of a plot if no budget is ever used up


@dataclass(frozen=True)
class BudgetLine:
    """A fleet's experiment: its newest version, and the possible costs of a device's reports.

    Attributes:
        experiment: The newest version.
        state: "current", "withdrawn", "expired" or, with a policy, "refused".
        costliest: The largest ε of a report, in micro-nats, over all versions that have reports.
        cheapest: The smallest ε of a report, likewise.
        accepted: The number of accepted reports.
        days: The number of reports on each full day.
    """

    experiment: Experiment
    state: str
    costliest: int
    cheapest: int
    accepted: int
    days: Mapping[datetime.date, int]

    def remaining_reports(self, reports: int) -> int | None:
        """Return how many reports at the current ε a board's own budget has left after `reports` reports."""
        e = self.experiment
        if self.state != "current":
            return 0
        if e.rule == "unlimited":
            return None
        cost = {"sum": self.costliest, "squares": self.costliest**2, "count": 1}[e.rule]
        return max(0, (e.cap - reports * cost) // e.cost())


@dataclass(frozen=True)
class Remaining:
    """The reports that a fleet has left for one experiment.

    Attributes:
        budget: The experiment.
        boards: The number of boards, including those that have not reported yet, if known.
        silent: The number of boards with no reports left.
        holds: The number of reports that a new board's budget and policy allow, or None if unlimited.
        total_left: The number of reports left across all boards, or None if unlimited.
        per_day: The fleet's reports per day, or None if unknown.
        left_counts: The number of boards by reports left.
        forecast: The forecast, or None if the rate is unknown.
        half: The day when half of the boards will have no reports left, or None if that is unknown or never
            happens.
        dry: The day when all but 5% of the boards will have no reports left, or None likewise.
    """

    budget: BudgetLine
    boards: int
    silent: int
    holds: int | None
    total_left: int | None
    per_day: float | None
    left_counts: Mapping[int | None, int]
    forecast: Forecast | SharedForecast | None = None
    half: datetime.date | None = None
    dry: datetime.date | None = None

    @property
    def share_able_to_report(self) -> float | None:
        """The share of devices that can still report; None if asked only once or without limit."""
        if self.budget.state != "current" or self.holds in (None, 1) or not self.boards:
            return None
        return 1 - self.silent / self.boards

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that can be serialized as JSON, with ε in nats."""
        b, e = self.budget, self.budget.experiment
        return {
            "experiment": e.name,
            "digest": e.digest.hex(),
            "state": b.state,
            "rule": e.rule,
            "epsilon": e.epsilon / 1e6,
            "dearest_epsilon": b.costliest / 1e6,
            "cheapest_epsilon": b.cheapest / 1e6,
            "accepted": b.accepted,
            "boards": self.boards,
            "silent": self.silent,
            "holds": self.holds,
            "left": self.total_left,
            "left_counts": {"any" if n is None else str(n): c for n, c in self.left_counts.items()},
            "per_day": self.per_day,
            "half_silent": self.half and self.half.isoformat(),
            "dry": self.dry and self.dry.isoformat(),
        }


@dataclass(frozen=True)
class FleetLedger:
    """A fleet's budgets, the number of devices by reports made for each, and the policy if known.

    Experiments that cannot be read here are left out, and listed in `unreadable`.
    """

    fleet: str
    budgets: tuple[BudgetLine, ...]
    profiles: Mapping[Profile, int]
    policy: Policy | None = None
    devices: Mapping[str, Profile] = field(default_factory=dict)
    unreadable: tuple[UnreadableExperiment, ...] = ()

    def remaining_reports(self, profile: Profile) -> tuple[int | None, ...]:
        """Return how many reports a device has left for each experiment, as in its status()."""
        own_limits = [b.remaining_reports(reports) for b, reports in zip(self.budgets, profile, strict=True)]
        if self.policy is None:
            return tuple(own_limits)
        total, squares = self._spent(profile)
        lifetime = [self.policy.remaining_reports(b.experiment.epsilon, total, squares) for b in self.budgets]
        return tuple(y if x is None else min(x, y) for x, y in zip(own_limits, lifetime, strict=True))

    def lines(self, today: datetime.date, last_days: int = 7) -> list[Remaining]:
        """Return one line per experiment; the rate is the mean over the last `last_days` full days."""
        left_counts: list[Counter[int | None]] = [Counter() for _ in self.budgets]
        for profile, boards in self.profiles.items():
            for counts, n in zip(left_counts, self.remaining_reports(profile), strict=True):
                counts[n] += boards
        new = self.remaining_reports((0,) * len(self.budgets))
        rates = [mean_daily_reports(b.days, last_days) for b in self.budgets]
        able_counts = [counts.total() - counts[0] for counts in left_counts]
        daily_rates = [r / n if r and n else 0.0 for r, n in zip(rates, able_counts, strict=True)]
        forecasts = self._forecasts(daily_rates, left_counts)
        lines = []
        for i, budget in enumerate(self.budgets):
            counts, forecast = left_counts[i], forecasts[i]
            half, dry = (
                _add_days(today, forecast and forecast.days_until(share)) for share in (0.5, SPENT_SHARE)
            )
            lines.append(
                Remaining(
                    budget,
                    boards=sum(counts.values()),
                    silent=counts[0],
                    holds=new[i],
                    total_left=None if None in counts else sum((n or 0) * c for n, c in counts.items()),
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
        """Return a forecast for each experiment from a board's daily reports, or None if there are none."""
        if self.policy is not None and sum(rate > 0 for rate in each) > 1:
            experiments = [b.experiment for b in self.budgets]
            report_rates = [ReportRate(e.epsilon, e.every, r) for e, r in zip(experiments, each, strict=True)]
            starts = [
                (
                    [b.remaining_reports(reports) for b, reports in zip(self.budgets, profile, strict=True)],
                    *self._spent(profile),
                )
                for profile in self.profiles
            ]
            forecasts = draw_forecasts(
                report_rates, (self.policy.sum, self.policy.squares), starts, list(self.profiles.values())
            )
            return [x if x.per_day else None for x in forecasts]
        parts = zip(self.budgets, left_counts, each, strict=True)
        return [Forecast(counts, b.experiment.every, r) if r else None for b, counts, r in parts]

    def _spent(self, profile: Profile) -> tuple[int, int]:
        """Return a board's Σε and Σε² in micro-nats, at the most expensive ε of each experiment."""
        costs = [(reports, b.costliest) for b, reports in zip(self.budgets, profile, strict=True)]
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

    Args:
        store: The store.
        fleet: The fleet's name.
        today: The current day, UTC.
        policy: The policy in the boards' firmware, or None if unknown. It needs all experiments, because they
            share its budget.
        boards: The number of boards in the field; those that have not reported have their full budget left.
        devices: The ids of devices to report on individually.

    Raises:
        VersionRefused: If there is no such fleet.
        StoreError: If the database fails, or with a policy, if an experiment cannot be read here.
        UsageError: If more than `boards` boards have reported.
    """
    if fleet not in store.fleets():
        raise VersionRefused(f"no fleet {fleet} in {store.where}")
    versions, unreadable = store.readable_experiments(fleet)
    if policy is not None:
        check_readable(unreadable)
    windows = store.window_reports(fleet)
    names = list(dict.fromkeys(v.experiment.name for v in versions))
    budgets = tuple(
        _budget([v for v in versions if v.experiment.name == name], windows, today, policy) for name in names
    )
    profiles: Counter[Profile] = Counter()
    ids, profile_of = set(devices), {}
    for device, rows in groupby(store.accepted_numbers(fleet), key=lambda row: row[0]):
        highest = {name: numbers.highest for _, name, numbers in rows}
        profile = tuple(highest.get(name, 0) for name in names)
        profiles[profile] += 1
        if device in ids:
            profile_of[device] = profile
    no_reports, reporting = (0,) * len(names), profiles.total()
    if boards is not None:
        if boards < reporting:
            have = "has" if reporting == 1 else "have"
            raise UsageError(
                f"{counted(reporting, 'device')} {have} reported; --devices must be the number of all "
                "devices in the field"
            )
        profiles[no_reports] += boards - reporting
    profile_of |= dict.fromkeys(ids - profile_of.keys(), no_reports)
    return FleetLedger(
        fleet, budgets, {p: n for p, n in profiles.items() if n}, policy, profile_of, unreadable
    )


def picture_horizons(lines: Sequence[Remaining], today: datetime.date) -> tuple[float, float]:
    """Return how many days ahead a figure extends: for reports per day, and for devices still reporting.

    The plot of reports covers a few times the counted days, so that these remain visible; the plot of devices
    extends until hardly any can still report.
    """
    ends = [x.forecast.days_until(SPENT_SHARE / 5) for x in lines if x.forecast]
    horizon = max(1.05 * max([end for end in ends if end], default=_NEVER_DAYS), 1.0)
    counted = [day for line in lines for day in line.budget.days]
    past = (today - min(counted)).days if counted else 0
    return min(horizon, max(_HORIZON_FACTOR * past, _MIN_DAYS)), horizon


def _budget(
    versions: Sequence[Version],
    windows: Mapping[int, Mapping[str, int]],
    today: datetime.date,
    policy: Policy | None,
) -> BudgetLine:
    """Return the ledger line for all versions with the same name."""
    newest = max(versions, key=publication_order)
    e = newest.experiment
    epsilons = {v.experiment.epsilon for v in versions if v.id in windows} or {e.epsilon}
    together: Counter[str] = Counter()
    for v in versions:
        together.update(windows.get(v.id, {}))
    state = "current" if newest.published_on(today) else "expired" if newest.current else "withdrawn"
    if state == "current" and policy is not None:
        is_allowed = e.name in policy.experiments and e.rule in policy.rules
        state = state if is_allowed and e.epsilon <= policy.epsilon else "refused"
    return BudgetLine(
        e, state, max(epsilons), min(epsilons), together.total(), daily_reports(together, today)
    )


def _add_days(today: datetime.date, days: float | None) -> datetime.date | None:
    try:
        return None if days is None else today + datetime.timedelta(days)
    except OverflowError:
        return None
