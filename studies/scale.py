"""The needs of a fleet of a given size: set-up, machines, and what breaks first."""

from pydantic import Field

from ..planning.lifetime import parse_duration
from ..server.words.text_table import TextTable
from .fleet_needs import (
    CLUSTER,
    DAY_S,
    MAX_BOARDS,
    ONE,
    SETUPS,
    Fleet,
    Machine,
    Needs,
    breaks_at,
    needs,
    smallest,
)
from .frame import RunContext, StudyParameters, StudyResult


class ScaleParameters(StudyParameters):
    """A fleet and the machines to use."""

    boards: int = Field(ge=1, description="How many boards there will be.")
    every: str = Field("1w", description="From one report of a board to its next: 1d, 1w, 6 months.")
    stay: bool = Field(False, description="Boards stay connected; else they wake, report and sleep.")
    refresh: str = Field("1d", description="How often a board that sleeps connects without a report.")
    region: float = Field(
        0.1, ge=0, le=1, description="Share of the boards that one power cut brings back at once."
    )
    spread: int = Field(600, ge=1, description="spread_s of the boards, seconds.")
    cores: int = Field(16, ge=1, description="Cores of one machine.")
    memory: float = Field(64, ge=1, description="GiB of one machine.")
    disk: float = Field(4, ge=0.01, description="TB of one machine's disk.")


# Table rows: an attribute of Needs, and a factor for its unit.
_ROWS = {
    "reports a second, busiest": ("reports_per_s", 1),
    "connected at once": ("standing", 1),
    "connecting, a second": ("arriving", 1),
    "broker, cores": ("broker_cores", 1),
    "broker, GiB": ("broker_gib", 1),
    "aggregators, cores": ("aggregator_cores", 1),
    "database, cores": ("database_cores", 1),
    "store, GB": ("store_tb", 1000),
    "network, Mbit/s": ("network_mbit", 1),
}
_NUMBERS = (*(name for name, _ in _ROWS.values()), "regions", "brokers", "aggregators", "machines")


def run(parameters: ScaleParameters, context: RunContext) -> StudyResult:
    """Compute a fleet's needs with each set-up, and the smallest set-up that suffices."""
    fleet = Fleet(
        parameters.boards,
        parse_duration(parameters.every),
        stays=parameters.stay,
        refresh_s=parse_duration(parameters.refresh),
        region=parameters.region,
        spread_s=float(parameters.spread),
    )
    machine = Machine(cores=parameters.cores, memory_gib=parameters.memory, disk_tb=parameters.disk)
    needed = [needs(fleet, setup, machine) for setup in SETUPS]
    chosen = smallest(fleet, machine)
    boards = "1 board that stays connected" if parameters.stay else "1 board that sleeps"
    if parameters.boards > 1:
        boards = f"{parameters.boards:,} boards that {'stay connected' if parameters.stay else 'sleep'}"
    rows = [
        (label, *(_digits(n * getattr(one, name)) for one in needed)) for label, (name, n) in _ROWS.items()
    ]
    asks = (f"{100 * one.first.load:,.0f}%" if one.first.load >= 0.01 else "< 1%" for one in needed)
    headings = ("", "mosquitto, SQLite", "mosquitto, PostgreSQL", "NATS, PostgreSQL")
    table = TextTable(
        f"{boards}, a report every {parameters.every}",
        headings,
        [*rows, ("asked of what breaks first", *asks)],
    )
    disks = ["its one log of reports is written to disks, whose speed the model does not know"]
    output = (
        table,
        "",
        f"take, by size alone: {_take(chosen)}",
        _breaks(fleet, chosen, machine),
        *(disks if chosen.setup is CLUSTER else []),
        f"one machine has {parameters.cores} cores and {parameters.memory:g} GiB, "
        "used to a half in the busiest second",
        "docs/scale.md says how far to trust this model, docs/survives.md what each set-up survives",
    )
    return StudyResult({"chosen": chosen.setup.name, "setups": [_plain(one) for one in needed]}, output)


def _plain(one: Needs) -> dict[str, float | int | str]:
    head = {"boards": one.fleet.boards, "stays": one.fleet.stays, "setup": one.setup.name}
    head["reports_a_day"] = one.fleet.reports_per_s * DAY_S
    numbers = {name: getattr(one, name) for name in _NUMBERS}
    return head | numbers | {"first": one.first.what, "asked": one.first.load}


def _take(chosen: Needs) -> str:
    if chosen.setup is ONE:
        return f"{chosen.setup.name}: one machine"
    machines = f"{chosen.machines:,} machines, {chosen.brokers:,} of them with a broker"
    where = f"in {chosen.regions:,} regions, a store each; " if chosen.regions > 1 else ""
    return f"{chosen.setup.name}: {where}{machines}; {chosen.aggregators:,} aggregators"


def _breaks(fleet: Fleet, chosen: Needs, machine: Machine) -> str:
    at = breaks_at(fleet, chosen.setup, machine)
    if at is None:
        return f"breaks first: nothing, up to {MAX_BOARDS:,} boards"
    unit = 10 ** max(len(str(at[0])) - 2, 0)  # two digits, because the model is not more precise
    scope = "one region's " if chosen.regions > 1 else ""
    return f"breaks first: {scope}{at[1].what}, at some {at[0] // unit * unit:,} boards; then {at[1].then}"


def _digits(x: float) -> str:
    if x >= 99.95:
        return f"{x:,.0f}"
    if 0 < x < 0.01:
        return "< 0.01"
    return f"{x:.2f}" if x else "0"
