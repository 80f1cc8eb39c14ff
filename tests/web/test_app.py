"""`hushmote page --broker`, which adds the HTTP door and the browser board to the page."""

import http.client
import json
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from boards import ask_fleet, experiment, payload_of, reports
from browser import paged
from running_aggregator import WAIT_S, running, until

from hushmote.server.store.store import Store
from hushmote.simulator.broker import MosquittoBroker

TEMP = experiment()
BYTES = {"Content-Type": "application/octet-stream"}


def ask(page, path, method="GET", body=None, headers=None):
    """Return status and body."""
    with closing(http.client.HTTPConnection(urlsplit(page).netloc, timeout=WAIT_S)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        store.add_fleet("keyed", keyed=True)
        ask_fleet(store, "visitors", TEMP)
        yield store


def test_report_passes_through_page_into_store(store):
    with MosquittoBroker() as broker, running(store, broker, fleets=["visitors"]):
        login = f"mqtt://{broker.username}:{broker.password}@" if broker.username else "mqtt://"
        environment = {"HUSHMOTE_BROKER": f"{login}127.0.0.1:{broker.port}"}
        with paged(f"sqlite:///{store.where}", environment=environment) as page:
            until(lambda: ask(page, "/v1/visitors/experiment")[1] == b'["temp"]\n', "no experiment yet")
            config = json.loads(ask(page, "/board/config.json")[1])
            assert (config["fleet"], config["door"], config["result"]) == ("visitors", "../v1", "../api")
            assert ask(page, "/v1/visitors/experiment/temp")[1] == payload_of(TEMP)
            for report in reports("one", TEMP, 3):
                assert ask(page, "/v1/visitors/report/one", "POST", report, BYTES) == (204, b"")
            until(lambda: json.loads(ask(page, "/api/visitors/temp.json")[1])["reports"] == 3, "not counted")
            foreign = BYTES | {"Origin": "https://evil.example"}
            assert ask(page, "/v1/visitors/report/one", "POST", b"x", foreign)[0] == 403
