"""Plan a rollout: the reports and days that a verdict takes, and the rises that each stage can detect.

The new version's boards make a report at every call, since each reading counts while they are few. The others
may make fewer, `every`, which saves their budgets for later releases, but a comparison needs their reports on
the same days, too.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from ..server.release import power
from ..server.release.plan import DAYS
from ..server.words.numbers import counted, round_up_boards
from ..server.words.text_table import TextTable
from .devices import PlanError
from .lifetime import DAY_S, parse_duration
from .request import PlanRequest

PARTS = (0.05, 0.25, 0.5)
"""The parts of a fleet in a staged rollout."""
USUAL_EPSILON, USUAL_SHARE, USUAL_LIFETIME = 2.0, 0.05, 8.0
USUAL_HORIZON, USUAL_CALL = "5y", "14d"
MARGIN = 0.02
"""The default of worse_by."""
_EVERY = (1, 20, 50, 130)
_FIELDS = {"devices", "epsilon", "share", "lifetime", "horizon", "call"}


@dataclass(frozen=True)
class Stage:
    """A stage of the rollout.

    Attributes:
        part: The part of the devices with the new version.
        reports: The new version's reports in the planned days.
        rise: The rise that is detected with a probability of 80%, or None if no rise is.
        days_to_stop: The days until the given rise is detected with a probability of 80%, or None for never.
        days_to_proceed: The days until 80% of releases without a rise may proceed, or None.
    """

    part: float
    reports: float
    rise: float | None
    days_to_stop: int | None
    days_to_proceed: int | None


@dataclass(frozen=True)
class Thinning:
    """The effect of fewer reports from the other versions, at the first stage.

    Attributes:
        every: n for the others, where 1 in n calls makes a report.
        others: Their reports in the planned days.
        rise: The rise that is detected with a probability of 80%, or None if no rise is.
        releases: The number of releases that a device's budget covers; 0 if it does not last.
    """

    every: int
    others: float
    rise: float | None
    releases: int


@dataclass(frozen=True)
class ReleaseStages:
    """The plan of a rollout.

    Attributes:
        devices: The devices.
        share: The share of yes on the others.
        rise: The rise to find.
        margin: The accepted rise.
        days: The days of a stage.
        epsilon: The ε of a report.
        call_days: The days between two calls to report().
        every: n for the others.
        lifetime_reports: The reports that a device can make in its life.
        horizon_days: The days of a device's life.
        stop_reports: The new version's reports that find the rise, at the first stage; None for never.
        proceed_reports: Those after which 80% of releases without a rise may proceed; None for never.
        stages: The stages.
        thinnings: The effect of other values of `every`.
    """

    devices: int
    share: float
    rise: float
    margin: float
    days: int
    epsilon: float
    call_days: float
    every: int
    lifetime_reports: int
    horizon_days: float
    stop_reports: int | None
    proceed_reports: int | None
    stages: tuple[Stage, ...]
    thinnings: tuple[Thinning, ...]

    @property
    def lines(self) -> list[str]:
        """The plan in sentences."""
        rise, first = f"{100 * self.rise:g} points", self.stages[0]
        part = f"{first.part:.0%} of {self.devices:,} devices"
        stop, proceed = self.stop_reports, self.proceed_reports
        text, margin = f"A rise of {rise} cannot be detected.", f"{100 * self.margin:g} points"
        if stop is not None and first.days_to_stop is not None:
            time = counted(first.days_to_stop, "day")
            text = f"Detecting a rise of {rise} takes {_about(stop)} reports of the new version: "
            text += f"{time} on {part}."
        needs = "cannot be reached."
        if proceed is not None and first.days_to_proceed is not None:
            time = counted(first.days_to_proceed, "day")
            needs = f"takes {_about(proceed)} reports of the new version: {time} on the same devices."
        return [text, f"If the version is no worse and {margin} are accepted, proceed {needs}"]

    @property
    def tables(self) -> list[TextTable]:
        """The stages, and the effect of other values of `every`."""
        stages = TextTable(
            f"Stages, {self.days} days each:",
            (
                "stage",
                "reports",
                "detectable rise",
                f"days for {100 * self.rise:g} points",
                "days for proceed",
            ),
            [
                (
                    f"{stage.part:.0%}",
                    f"{stage.reports:,.0f}",
                    _points(stage.rise),
                    _number(stage.days_to_stop),
                    _number(stage.days_to_proceed),
                )
                for stage in self.stages
            ],
        )
        thinnings = TextTable(
            f"If 1 in n calls on the other versions makes a report, at {self.stages[0].part:.0%}:",
            ("n", "others' reports", "detectable rise", "releases the budget covers"),
            [
                (
                    f"{'> ' if thinning.every == self.every else ''}{thinning.every}",
                    f"{thinning.others:,.0f}",
                    _points(thinning.rise),
                    f"{thinning.releases:,}" if thinning.releases else "none",
                )
                for thinning in self.thinnings
            ],
            notes=(self._budget_note,),
        )
        return [stages, thinnings]

    @property
    def _budget_note(self) -> str:
        reports, years = counted(self.lifetime_reports), self.horizon_days / 365
        return (
            f"A device can make {reports} of ε = {self.epsilon:g} in its {years:g} years, with a call every "
            f"{self.call_days:g} days. Rises are detected with a probability of 80%, with one look per day."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that can be serialized as JSON."""
        return {"in_words": self.lines} | dataclasses.asdict(self)


def plan_release(
    request: PlanRequest,
    *,
    rise: float,
    margin: float = MARGIN,
    days: int = DAYS,
    every: int = 1,
) -> ReleaseStages:
    """Return what a rollout to 5%, 25% and 50% of a fleet can show.

    Args:
        request: The devices, and optionally the share, ε, lifetime, horizon and call.
        rise: The rise to find, a share.
        margin: The accepted rise, as worse_by in an experiment's file.
        days: The days of a stage.
        every: n for the other versions, where 1 in n calls makes a report.

    Raises:
        PlanError: If a value is missing or out of range, or another one is given.
    """
    _check(request, rise, margin, days, every)
    share = USUAL_SHARE if request.share is None else request.share
    epsilon = USUAL_EPSILON if request.epsilon is None else request.epsilon
    lifetime = USUAL_LIFETIME if request.lifetime is None else request.lifetime
    call_days = parse_duration(request.call or USUAL_CALL, "call") / DAY_S
    horizon_days = parse_duration(request.horizon or USUAL_HORIZON, "horizon") / DAY_S
    devices, variance = request.devices or 0, power.yes_no_variance(epsilon)
    fleet = _Fleet(devices, call_days, days)
    stages, first = list[Stage](), PARTS[0]
    reports: dict[float, tuple[int | None, int | None]] = {}
    for part in PARTS:
        rollout = fleet.rollout(part, every)
        ratio = rollout.other / rollout.new
        stop = power.reports_to_stop(ratio, days, share, rise, variance)
        proceed = power.reports_to_proceed(days, share, margin, variance, ratio=ratio)
        reports[part] = stop, proceed
        detectable = power.detectable_rise(rollout, share, variance)
        until = (None if n is None else math.ceil(n / rollout.new) for n in (stop, proceed))
        stages.append(Stage(part, rollout.new * days, detectable, *until))
    lifetime_reports = math.floor(lifetime / epsilon + 1e-9)
    thinnings = [
        Thinning(
            n,
            fleet.rollout(first, n).other * days,
            power.detectable_rise(fleet.rollout(first, n), share, variance),
            _releases(lifetime_reports, horizon_days / call_days / n, first * days / call_days),
        )
        for n in sorted({*_EVERY, every})
    ]
    return ReleaseStages(
        devices,
        share,
        rise,
        margin,
        days,
        epsilon,
        call_days,
        every,
        lifetime_reports,
        horizon_days,
        *reports[first],
        tuple(stages),
        tuple(thinnings),
    )


@dataclass(frozen=True)
class _Fleet:
    devices: int
    call_days: float
    days: int

    def rollout(self, part: float, every: int) -> power.Rollout:
        """Return the reports per day if a part of the fleet has the new version."""
        new = part * self.devices / self.call_days
        return power.Rollout(new, (1 - part) * self.devices / self.call_days / every, self.days)


def _releases(reports: int, used: float, per_release: float) -> int:
    """Return the number of releases that the reports left after ordinary use are enough for."""
    return max(0, math.floor((reports - used) / per_release + 1e-9))


def _check(request: PlanRequest, rise: float, margin: float, days: int, every: int) -> None:
    if request.devices is None or request.devices < 100:
        raise PlanError("--release needs --devices, at least 100", "devices")
    for field in dataclasses.fields(request):
        if getattr(request, field.name) not in (None, "") and field.name not in _FIELDS:
            name = f"--{field.name.replace('_', '-')}"
            raise PlanError(
                f"--release is about a yes-or-no question and does not use {name}: omit it", field.name
            )
    share = USUAL_SHARE if request.share is None else request.share
    for name, value in (("--rise", rise), ("--worse-by", margin)):
        if not 0 < value < 1:
            raise PlanError(f"{name} must be a share above 0 and below 1, such as 0.03, not {value:g}", "")
    if not 0 <= share < 1 or share + max(rise, margin) > 1:
        raise PlanError(
            f"--share and --rise must be shares of at most 1 together, not {share:g} and {rise:g}", "share"
        )
    if request.epsilon is not None and not 0.001 <= request.epsilon <= 16:
        raise PlanError(f"--epsilon must be from 0.001 to 16, not {request.epsilon:g}", "epsilon")
    if request.lifetime is not None and not request.lifetime > 0:
        raise PlanError(f"--lifetime must be above 0, not {request.lifetime:g}", "lifetime")
    if days < 1 or every < 1:
        raise PlanError("--days and --every must be 1 or more", "")


def _about(reports: int) -> str:
    return f"{round_up_boards(reports):,}"


def _number(days: int | None) -> str:
    return "never" if days is None else f"{days:,}"


def _points(rise: float | None) -> str:
    return "none" if rise is None else f"{100 * rise:.1f} points"
