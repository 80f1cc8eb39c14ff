"""A real Prometheus with the files in deploy/ scrapes a real aggregator; dashboard and rules find data."""

import json
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from boards import experiment, payload_of
from certificates import Authority
from filled_store import fill
from running_aggregator import WAIT_S, until
from serve_process import get, served
from traffic import crowd, publish

from hushmote.server.store import Store
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "hushmote.json").read_text())
# The values that a dashboard user would choose; Grafana derives its interval from the scrape interval.
VARIABLE_VALUES = {"fleet": "open", "experiment": "temp", "statistic": "mean|median", "share": "closed"}
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed: apt install prometheus"
)


class Prometheus:
    """Debian's prometheus with the files in deploy/, scraping every second, as a context manager."""

    def __init__(self, folder: Path, aggregator: int) -> None:
        settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        shutil.copy(DEPLOY / "prometheus" / "hushmote.rules.yml", folder)
        targets = (DEPLOY / "prometheus" / "targets.yml").read_text()
        assert "127.0.0.1:9417" in targets
        (folder / "targets.yml").write_text(targets.replace("9417", str(aggregator)))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--log.level=warn",
        ]

    def __enter__(self) -> "Prometheus":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=WAIT_S)

    def ask(self, path: str, **parameters: str) -> dict:
        """Return the data of an API response; raise AssertionError with its message if it is an error."""
        status, body = get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(body)
        assert (status, answer["status"]) == (200, "success"), answer
        return answer["data"]

    def values(self, query: str) -> list[float]:
        """Return a query's current values, without NaN."""
        results = self.ask("query", query=query)["result"]
        values = [float(result["value"][1]) for result in results]
        return [value for value in values if value == value]

    def hears(self, query: str) -> bool:
        """Return whether a query has a value; False while Prometheus is starting."""
        try:
            return bool(self.values(query))
        except (OSError, ValueError):  # not listening yet, or "Service Unavailable"
            return False


def chosen(query: str) -> str:
    """Return a query with its variables replaced; shares and numbers use different experiments."""
    values = VARIABLE_VALUES | ({"experiment": "door"} if 'quantity="share"' in query else {})
    return re.sub(r"\$(\w+)", lambda name: values[name[1]], query.replace("$__rate_interval", "10m"))


def panels() -> Iterator[tuple[str, str]]:
    """Yield each panel's title and query."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], chosen(target["expr"])


def variables() -> Iterator[tuple[str, str]]:
    """Yield the label and series of each variable that is queried from Prometheus."""
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert match is not None
            query, label = match.groups()
            yield label, chosen(query)


@needs_prometheus
def test_every_dashboard_and_alert_query_returns_data(tmp_path):
    ca, port, http = Authority(tmp_path), free_port(), free_port()
    certificate, key = ca.sign("aggregator_1")
    broker_pem, broker_key = ca.sign("broker", "localhost")
    lines = (f"listener {port} 127.0.0.1", f"certfile {broker_pem}", f"keyfile {broker_key}")
    lines += (f"cafile {ca.file}", "require_certificate true", "allow_anonymous true")
    url = f"sqlite:///{tmp_path}/store.sqlite"
    ended = str((datetime.now(UTC) - timedelta(days=2)).date())
    command = ["--store", url, "--broker", f"mqtts://localhost:{port}"]
    command += ["--http", f"127.0.0.1:{http}", "--publish", "ended"]
    tls = {"CA": ca.file, "CERT": certificate, "CERT_KEY": key}
    # Its receiver is not there: one message waits, but not for an hour.
    environment = {"HUSHMOTE_NOTIFY": "json://127.0.0.1:1/"}
    environment |= {f"HUSHMOTE_BROKER_{name}": str(file) for name, file in tls.items()}
    choice = experiment(name="door", type="choice", labels=["open", "closed"], low=None, high=None, bins=None)
    with Store(url) as store, MosquittoBroker(settings=lines) as broker:
        fill(store, "open", payload_of(experiment()), {ended: 1000}, unit="°C")
        store.add_experiment("open", payload_of(experiment()), expires=date(2099, 12, 31))
        fill(store, "open", payload_of(choice), {ended: 1000})
        with served(*command, environment=environment) as process, Prometheus(tmp_path, http) as prometheus:
            process.ready()
            for series in ("hushmote_batches_total", "hushmote_alerts_waiting > 0"):
                until(lambda series=series: prometheus.hears(series), process.log)
            # Send valid reports and an invalid one between two scrapes, since rates need changes.
            publish(broker, [*crowd(50)[0], (topics.report_topic("open", "forger"), b"?")])
            until(lambda: prometheus.hears("increase(hushmote_reports_accepted_total[10m]) > 0"), process.log)

            def amiss() -> list[object]:
                """Return all faults; a late scrape leaves gaps until the next."""
                rules = prometheus.ask("rules")["groups"][0]["rules"]
                alerts = prometheus.ask("alerts")["alerts"]  # includes pending alerts
                firing = {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
                silent = {title for title, query in panels() if not prometheus.values(query)}
                return [
                    *((rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"),
                    *(
                        firing ^ {"HushmoteCertificateEndsSoon"}
                    ),  # the authority's certificate ends in ten days
                    # No budget was used within a day here; test_dashboards.py covers a day with use.
                    *(silent - {"Lasts, at the rate of the last day"}),
                ]

            until(lambda: not amiss(), lambda: f"{amiss()}\n{process.log()}")
            (group,) = prometheus.ask("rules")["groups"]
            # Each alert is about existing series, except if its condition is about one that never existed.
            metrics = set(prometheus.ask("label/__name__/values"))
            for rule in group["rules"]:
                assert set(re.findall(r"hushmote_\w+", rule["query"])) <= metrics, rule["name"]
            for label, series in variables():
                assert prometheus.ask(f"label/{label}/values", **{"match[]": series}), series
