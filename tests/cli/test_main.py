"""The command line as a user sees it, with real processes, a real broker and one-line errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import DOOR, hushmote, hushmote_process
from refusals import Refusal, fails, refusals
from running_aggregator import WAIT_S, until

from hushmote.cli import main as cli
from hushmote.server.ingest.broker_url import BrokerUrlError, parse_broker_url
from hushmote.server.service.process import READY
from hushmote.simulator.broker import EmbeddedBroker
from hushmote.simulator.faithful import SimulatedFleet
from hushmote.simulator.gateway import Gateways

ROOT = Path(__file__).parents[2]


@pytest.fixture
def door(tmp_path: Path) -> Path:
    (tmp_path / "door.toml").write_text(DOOR)
    return tmp_path


class TestExitStatus:
    @pytest.mark.parametrize(("result", "status"), [(None, 0), (0, 0), (3, 3)])
    def test_is_the_commands(
        self, result: int | None, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(cli, "app", lambda **_options: result)
        hushmote("release", cwd=tmp_path, expect=status)


class TestExperiment:
    def test_expired_experiment_is_rejected(self, door: Path):
        old = {"old.toml": DOOR.replace("9999-12-31", "2020-01-01")}
        Refusal("experiment add old.toml --open", "expired on 2020-01-01", old).check(door)
        assert "at the end of 2020-01-01 (has expired)" in hushmote(
            "experiment", "show", "old.toml", cwd=door
        )

    def test_total_cannot_be_raised(self, door: Path):
        hushmote("experiment", "add", "door.toml", "--open", cwd=door)
        (door / "more.toml").write_text(DOOR.replace("cap = 2", "cap = 3"))
        hushmote("experiment", "add", "more.toml", cwd=door, expect=1)
        listed = json.loads(hushmote("experiment", "list", "--json", cwd=door))
        assert [(line["name"], line["cap"], line["current"]) for line in listed] == [("door_open", 2, True)]

    def test_show_prints_boards_payload(self, door: Path):
        result = json.loads(hushmote("experiment", "show", "door.toml", "--json", cwd=door))
        assert json.loads(result["payload"])["epsilon"] == 2_000_000
        assert result["authenticated_report_bytes"] == 18
        assert result["payload"] in hushmote("experiment", "show", "door.toml", cwd=door)


class TestRuns:
    def test_only_seeded_simulation_repeats(self, door: Path):
        def run(*more: str) -> str:
            return hushmote("simulate", "door.toml", "--population", "weights:7:3", "--json", *more, cwd=door)

        assert run("--seed", "5") == run("--seed", "5")
        assert run() != run()  # equal with a probability of about 1 in 300
        faithful = ("--faithful", "--devices", "200", "--seed", "5")
        assert run(*faithful) == run(*faithful)

    def test_served_reports_are_counted_and_estimated(self, door: Path):
        hushmote("provision", "keys", "master.key", cwd=door)
        assert (door / "master.key").stat().st_mode & 0o777 == 0o600
        hushmote("experiment", "add", "door.toml", "--fleet", "cold", "--open", cwd=door)
        payload = json.loads(hushmote("experiment", "show", "door.toml", "--json", cwd=door))[
            "payload"
        ].encode()
        with EmbeddedBroker() as broker:
            command = [sys.executable, "-m", "hushmote", "serve"]
            command += ["--broker", f"mqtt://{broker.host}:{broker.port}", "--batch", "0.2s"]
            with subprocess.Popen(
                command, cwd=door, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as server:
                assert server.stdout is not None
                assert server.stdout.readline().strip() == READY
                fleet = SimulatedFleet("cold", [payload], size=300, rng=np.random.default_rng())
                with Gateways(broker.host, broker.port) as gateways:
                    readings = [i % 4 == 0 for i in range(300)]
                    gateways.deliver(fleet, fleet.make_reports({"door_open": readings}))

                def status() -> dict[str, Any]:
                    return json.loads(hushmote("status", "--json", cwd=door))["experiments"][0]

                until(lambda: status()["reports"] == 300, "300 reports counted")
                server.terminate()
                log = server.communicate(timeout=WAIT_S)[1]
        assert server.returncode == 0, log
        assert "stopped: 300 reports accepted; rejected: none" in log
        assert status()["devices"] == 300
        assert not any(device in log for device in fleet.ids)
        result = json.loads(hushmote("estimate", "door_open", "--fleet", "cold", "--json", cwd=door))
        assert result["reports"] == 300
        rows = result["answers"][0]["rows"]
        assert [row["name"] for row in rows] == ["no", "yes"]
        # ε = 2 keeps the truth with probability 0.88. The standard error is 0.033; six have probability 2e-9.
        assert abs(rows[1]["value"] - 0.25) < 6 * 0.033
        text = hushmote("estimate", "door_open", "--fleet", "cold", "--plot", "door.png", cwd=door)
        assert "300 reports" in text
        assert (door / "door.png").read_bytes().startswith(b"\x89PNG")
        assert max(map(len, text.splitlines())) <= 80
        hushmote("estimate", "door_open", "--fleet", "cold", "--range", "ajar", cwd=door, expect=1)
        hushmote("estimate", "door_open", "--fleet", "cold", "--quantile", "0.5", cwd=door, expect=1)

    def test_demo_counts_every_reading_and_covers_truth(self, tmp_path: Path):
        """It uses the default broker: mosquitto if it is installed."""
        result = json.loads(hushmote_process("demo", "--devices", "1500", "--json", cwd=tmp_path))
        assert result["reports"] == 1500
        assert result["report_bytes"] == 19
        assert result["intervals"] == 20
        # Each interval misses 1 time in 20; nine or more of 20 independent intervals miss with probability
        # 2e-7. These are correlated within rows, so the bound is loose: under 6 hits of 20 have less than
        # 1e-12.
        assert result["intervals_that_hold_the_truth"] >= 6
        assert Path(tmp_path / result["plot"]).stat().st_size > 20_000


class TestBrokerUrl:
    def test_gives_login_and_port(self):
        address = parse_broker_url("mqtt://ann:p%40ss@broker.example:1884")
        assert (address.host, address.port) == ("broker.example", 1884)
        assert (address.username, address.password) == ("ann", "p@ss")
        assert parse_broker_url("mqtt://broker.example").port == 1883
        for url in ("broker.example", "tcp://x", "mqtt://", "mqtt://x:99999", "mqtt://x/path"):
            with fails("a broker is written mqtt", BrokerUrlError):
                parse_broker_url(url)


class TestReadme:
    def test_names_existing_commands(self):
        text = (ROOT / "README.md").read_text()
        assert "make demo" in text
        assert "make test" in text
        makefile = (ROOT / "Makefile").read_text()
        assert "\ndemo:" in makefile
        assert "\ntest:" in makefile


class TestRefusals:
    @pytest.mark.slow
    @refusals(
        ("status", "there is no store at hushmote.sqlite"),
        ("experiment show none.toml", "cannot read none.toml: No such file"),
        ("experiment add door.toml", "fleet home is new: add --keys"),
        ("status --store mysql://x/y", "a store must be sqlite:///path"),
        ("simulate door.toml --population normal:1:2", "number"),
        ("simulate door.toml --population file:no.csv:x", "cannot read no.csv"),
        ("simulate door.toml --population file:no.csv", "for recorded readings, write file:FILE:COLUMN"),
        ("demo --devices 0", "--devices must be from 100 to 26115"),
        ("demo --broker mqtt://127.0.0.1:1", "no broker at 127.0.0.1:1"),
        ("demo --broker rabbit", "a broker is written mqtt"),
    )
    def test_is_one_line(self, refusal: Refusal, door: Path):
        refusal.check(door)

    @refusals(
        ("--weigh size", "Invalid value for '--weigh': 'size' is not one of 'reports'"),
        ("--top -1", "Invalid value for '--top': must be 0 or more, not '-1'"),
        ("--quantile half", "Invalid value for '--quantile': must be a number, not 'half'"),
        command="estimate x",
        status=2,
    )
    def test_names_invalid_value(self, refusal: Refusal, door: Path):
        refusal.check(door)

    @pytest.mark.slow
    @refusals(
        ("study ranges --quick --out=file/x", "cannot create the folder file"),
        ("demo --out file", "cannot create the folder file"),
        files={"file": ""},
    )
    def test_names_unusable_folder_before_work(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)
