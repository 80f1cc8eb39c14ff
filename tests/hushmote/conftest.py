"""Stores as an analyst finds them, with histograms drawn in NumPy."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from designs import bell, choice_payload, number_payload

from hushmote.device.ldp_client import Experiment
from hushmote.server.experiments import definition
from hushmote.server.store import Description, Store
from hushmote.simulator import demo_questions, stage, vectorised

WEEKS = ("2026-11-14", "2026-11-21")
UNITS = {"room_temp": "°C", demo_questions.NAME: "°F"}
EXAMPLES = Path(__file__).parents[2] / "examples"

Shares = Callable[[Experiment, str, str], np.ndarray]


def _fill(
    path: Path, fleets: tuple[str, ...], payloads: list[bytes], windows: tuple[str, ...], shares: Shares
):
    """A store with 20,000 reports of each version in each fleet and window."""
    rng = np.random.default_rng(5)
    path.parent.mkdir(exist_ok=True)
    with Store(f"sqlite:///{path}") as store:
        for fleet in fleets:
            store.add_fleet(fleet, keyed=False)
            for payload in payloads:
                unit = UNITS.get(Experiment.parse(payload).name, "")
                store.add_experiment(fleet, payload, description=Description(unit))
            counts = {}
            for version in store.experiments(fleet):
                for window in windows:
                    held = rng.multinomial(20_000, shares(version.experiment, fleet, window))
                    histogram = vectorised.histogram(version.experiment, held, rng)
                    codes = np.flatnonzero(histogram).tolist()
                    counts |= {(version.id, window, code): int(histogram[code]) for code in codes}
            with store.ingest() as transaction:
                transaction.write({}, counts, {})


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hushmote.sqlite: fleets home and lab, room_temp in two versions and mode, two windows."""
    folder = tmp_path_factory.mktemp("stored")
    payloads = [number_payload(64, epsilon, -20_000, 44_000, "room_temp") for epsilon in (1, 2)]
    payloads.append(choice_payload(["idle", "heating", "door"], 2))

    def shares(experiment: Experiment, fleet: str, window: str) -> np.ndarray:
        if experiment.name == "mode":
            return np.array([0.6, 0.3, 0.1, 0])
        return bell(64, 40 + 2 * WEEKS.index(window) + 3 * (fleet == "lab"), 4)

    _fill(folder / "hushmote.sqlite", ("home", "lab"), payloads, WEEKS, shares)
    return folder


@pytest.fixture(scope="session")
def after_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder examples beside out/demo.sqlite, as `make demo` leaves it but with simulated reports."""
    folder = tmp_path_factory.mktemp("checkout")
    payload = definition.parse(demo_questions.DEFINITION).payload()
    store = folder / "out" / "demo.sqlite"
    _fill(store, (stage.FLEET,), [payload], ("all",), lambda *_: bell(64, 27, 8))
    shutil.copytree(EXAMPLES, folder / "examples")
    return folder / "examples"
