"""Stores for an analyst, with simulated histograms."""

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from designs import bell, choice_payload, number_payload
from filled_store import fill
from time_of_day import away_from_midnight

from hushmote.server.experiments import definition
from hushmote.server.store import Store
from hushmote.simulator import demo_data, deployment

WEEKS = ("2026-11-14", "2026-11-21")
EXAMPLES = Path(__file__).parents[2] / "examples"


def _fill_weeks(folder: Path, weeks: Sequence[str]) -> Path:
    """Make hushmote.sqlite with fleets home and lab, room_temp in two versions, mode, and weekly windows."""
    windows = dict.fromkeys(weeks, 20_000)
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as store:
        for number, fleet in enumerate(("home", "lab")):
            bells = {week: bell(64, 40 + 2 * i + 3 * number, 4) for i, week in enumerate(weeks)}
            for epsilon in (1, 2):
                room = number_payload(64, epsilon, -20_000, 44_000, "room_temp")
                fill(store, fleet, room, windows, bells, unit="°C", seed=2 * number + epsilon)
            fill(store, fleet, choice_payload(["idle", "heating", "door"], 2), windows, (0.6, 0.3, 0.1, 0))
    return folder


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with a store that covers two weeks."""
    return _fill_weeks(tmp_path_factory.mktemp("stored"), WEEKS)


@pytest.fixture
def stored_recently(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Provide a folder with a store whose last window was a week ago, and its days by `stored`'s days."""
    away_from_midnight()
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(days=n)) for n in (14, 7)]
    return _fill_weeks(tmp_path, days), dict(zip(WEEKS, days, strict=True))


@pytest.fixture(scope="session")
def after_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide examples next to out/demo.sqlite, as after `make demo` but with simulated reports."""
    folder = tmp_path_factory.mktemp("checkout")
    payload = definition.parse(demo_data.DEFINITION).payload()
    (folder / "out").mkdir()
    with Store(f"sqlite:///{folder / 'out' / 'demo.sqlite'}") as store:
        fill(store, deployment.FLEET, payload, {"all": 20_000}, bell(64, 27, 8), unit="°F")
    shutil.copytree(EXAMPLES, folder / "examples")
    return folder / "examples"
