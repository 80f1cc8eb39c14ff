"""`hushmote serve --publish` on provisioned NATS servers, and who receives the retained results."""

import datetime
import json
from pathlib import Path

import pytest
from boards import experiment, payload_of
from filled_store import fill
from fleet_broker import FLEET
from fleet_servers import THREE, connect_client, make_nats_fleet, serving
from running_aggregator import until
from serve_process import served

from hushmote.fleet.provisioning.fleet_folder import now_utc
from hushmote.server.store import Store
from hushmote.server.wire.topics import experiment_topic, result_topic

RESULT, EXPERIMENT = result_topic(FLEET, "temp"), experiment_topic(FLEET, "temp")


@pytest.mark.long
def test_results_and_experiments_survive_restart_of_all_servers(tmp_path: Path):
    folder = make_nats_fleet(tmp_path / "folder", THREE)
    board = folder.path / "devices/k3f9.pem"
    board.write_bytes(folder.issue_device("k3f9", now_utc()).to_pem())
    certificates, nats = folder.path / "aggregator", folder.fleet.nats_port
    url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
    over = str(now_utc().date() - datetime.timedelta(2))
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=True)
        fill(store, FLEET, payload_of(experiment()), {over: 400})
    addresses = ",".join(f"{host}:{nats}" for host in THREE)
    arguments = (
        *("--store", url, "--publish", "ended", "--batch", "0.1s"),
        *("--broker", f"tls://{addresses}?mqtt={folder.fleet.port}"),
        *(
            "--master-key",
            certificates / "master.key",
            "--signing-key",
            folder.path / "authority/signing.key",
        ),
    )
    login = {
        "HUSHMOTE_BROKER_CA": f"{certificates}/ca.pem",
        "HUSHMOTE_BROKER_CERT": f"{certificates}/aggregator_1.pem",
    }
    with serving(folder) as servers:

        def retained_payloads(server: int) -> tuple[dict, bytes]:
            """Return the result and experiment that a board receives from this server."""
            result, announced = (
                servers.retained_messages(board, topic, server)[topic] for topic in (RESULT, EXPERIMENT)
            )
            return json.loads(result) | {"at": None}, announced  # the time changes every hour

        with served(*arguments, environment=login) as process:
            process.ready()
            result, announced = retained_payloads(1)
            assert result["reports"] == 400
            for server in (2, 3):
                assert retained_payloads(server) == (result, announced)
            # Whoever may write it clears it; it is published again as it was, and boards know the bytes.
            with connect_client(folder, certificates / "aggregator_1.pem", server=2) as visitor:
                assert visitor.connected()
                visitor.publish(EXPERIMENT, b"", retain=True)
                until(lambda: f"another client changed {EXPERIMENT}" in process.log(), process.log)
            renewed = retained_payloads(3)[1]
            assert renewed == announced
            assert "no experiments" not in process.log()
            assert process.end() == 0
        servers.stop()
        servers.start()
        for server in (1, 2, 3):
            result_after, experiment_after = retained_payloads(server)
            assert (result_after, experiment_after) == (result, renewed)
