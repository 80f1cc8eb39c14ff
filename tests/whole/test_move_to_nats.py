"""A fleet moves from mosquitto and SQLite to NATS and PostgreSQL while its boards report (docs/scale.md)."""

import dataclasses
import getpass
from pathlib import Path

import pytest
from command_line import DOOR, hushmote
from fleet_broker import running as mosquitto_running
from fleet_servers import THREE, serving
from living_boards import LivingBoards
from postgres import Cluster, fresh_database
from running_aggregator import until
from serve_process import served
from take_over import let_boards_in, take_over

from hushmote.fleet.provisioning import fleet_folder
from hushmote.server.store import Store
from hushmote.simulator.broker import free_port

BOARDS = ("desk", "lamp", "door")
FORMER, OLD = "sqlite:///before.sqlite", "sqlite:///old.sqlite"


def aggregator(folder: Path) -> tuple[str, ...]:
    certificates = folder / "aggregator"
    signing = ("--signing-key", str(certificates.parent / "authority/signing.key"))
    return (
        "--broker",
        str(certificates / "aggregator_1.toml"),
        "--master-key",
        str(certificates / "master.key"),
        *signing,
    )


def report_some(boards: LivingBoards, count: int) -> None:
    wanted = boards.confirmed_reports() + count
    until(lambda: boards.confirmed_reports() >= wanted, boards.status)


@pytest.mark.long
def test_boards_lose_nothing_during_the_move(tmp_path: Path, postgres: Cluster):
    """The boards' old address leads to a new server as soon as it runs."""

    def run(*arguments: str) -> str:
        return hushmote(*arguments, cwd=tmp_path)

    (tmp_path / "door.toml").write_text(DOOR.replace("cap = 2", "cap = 100_000"))
    port = free_port()
    user = getpass.getuser()
    run(
        *("provision", "fleet", "old", "--fleet", "home", "--host", "localhost", "--set", f"port={port}"),
        *("--set", f"broker_user={user}"),
    )
    for board in BOARDS:
        run("provision", "device", board, "--folder", "old")
    run("experiment", "add", "door.toml", "--fleet", "home", "--keys", "--store", OLD)
    old, new = tmp_path / "old", tmp_path / "new"
    store = ("--store", f"sqlite:///{tmp_path}/old.sqlite")
    settings = [old / f"devices/{board}.settings.json" for board in BOARDS]
    with LivingBoards(settings, "door_open", 0.02) as boards, fresh_database(postgres) as url:
        with mosquitto_running(fleet_folder.find(old)) as broker:
            with served(*store, *aggregator(old)) as process:
                process.ready()
                report_some(boards, 300)
                assert process.end() == 0
            report_some(boards, 20)  # these reports are still at the old broker
            broker.stop()
        # The old broker is drained on a port that boards do not know.
        elsewhere = free_port()
        moved = fleet_folder.find(old)
        moved = moved.put_fleet(dataclasses.replace(moved.fleet, port=elsewhere))
        with mosquitto_running(moved):
            connection = old / "aggregator/aggregator_1.toml"
            connection.write_text(connection.read_text().replace(str(port), str(elsewhere)))
            with served(*store, "--retire", *aggregator(old)) as process:
                assert process.wait() == 0, process.log()
        run("store", "backup", OLD, "before.sqlite")
        run("experiment", "add", "door.toml", "--fleet", "home", "--keys", "--store", url)
        run("store", "merge", url, FORMER)
        # Reserved for only a minute.
        nats, cluster, monitor = (
            free_port(),
            free_port(),
            free_port(),
        )
        hosts = [word for host in THREE for word in ("--host", host)]
        run(
            *("provision", "fleet", "new", "--fleet", "home", "--broker", "nats", *hosts),
            *("--set", "board_host=localhost", "--set", f"port={port}", "--set", f"aggregator_port={nats}"),
            *("--set", f"cluster_port={cluster}", "--set", f"monitor_port={monitor}"),
        )
        take_over(old, new, run)
        with serving(fleet_folder.find(new)) as servers:
            until(lambda: all("not authorize" in line for line in boards.status()), boards.status)
            confirmed = boards.confirmed_reports()
            with served("--store", url, *aggregator(new)) as process:
                process.ready()
                assert boards.confirmed_reports() == confirmed
                let_boards_in(old, new, run)
                servers.reload()
                report_some(boards, 300)
                published = boards.finish()
                with Store(url) as counting:
                    (version,) = counting.experiments()
                    digest = version.experiment.digest
                    until(lambda: counting.histogram("home", digest).sum() >= published, process.log)
                    assert counting.histogram("home", digest).sum() == published == boards.confirmed_reports()
                    assert (
                        sum(len(numbers) for _, _, numbers in counting.accepted_numbers("home")) == published
                    )
                assert process.end() == 0
                assert "no experiments" not in process.log()
