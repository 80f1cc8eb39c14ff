"""deploy/prometheus/ and deploy/grafana/: each alert fires when it should; each panel has a description."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
PAGE = (ROOT / "docs" / "page.md").read_text()
DASHBOARD = json.loads((GRAFANA / "dashboards" / "hushmote.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
# Okabe and Ito's colours, which colour-blind readers can distinguish, and a grey.
COLOURS = {"#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#CC79A7", "#999999"}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus"
)


def rules() -> list[dict]:
    groups = yaml.safe_load((PROMETHEUS / "hushmote.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules()}


class TestAlerts:
    def test_each_fires_and_stays_silent_in_tests(self):
        tests = yaml.safe_load((PROMETHEUS / "hushmote.rules.test.yml").read_text())["tests"]
        expected = [case for test in tests for case in test["alert_rule_test"]]
        assert {case["alertname"] for case in expected if case["exp_alerts"]} == set(ALERTS)
        assert {case["alertname"] for case in expected if not case["exp_alerts"]} == set(ALERTS)

    @pytest.mark.parametrize("name", ALERTS)
    def test_each_has_summary_action_and_docs_link(self, name):
        rule = ALERTS[name]
        assert name.startswith("Hushmote")  # the dashboard filters by this prefix
        assert rule["labels"]["severity"] in ("critical", "warning")
        notes = rule["annotations"]
        assert set(notes) == {"summary", "action", "docs"}
        for text in (notes["summary"], notes["action"]):
            assert re.fullmatch(r"[^.]*\.", re.sub(r"\{\{.*?\}\}", "", text)), f"one sentence: {text}"
        assert notes["docs"] == f"docs/page.md, {name}"
        assert f"\n### {name}\n" in PAGE

    def test_page_explains_exactly_these(self):
        assert set(re.findall(r"^### (Hushmote\w+)$", PAGE, re.MULTILINE)) == set(ALERTS)


class TestPrometheus:
    @pytest.mark.slow
    @needs_promtool
    @pytest.mark.parametrize(
        "arguments",
        [
            "check config prometheus.yml",
            "check rules hushmote.rules.yml",
            "test rules hushmote.rules.test.yml",
        ],
    )
    def test_promtool_finds_no_fault(self, arguments):
        command = ["promtool", *arguments.split()]
        run = subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "FAILED" not in run.stdout + run.stderr

    def test_rules_and_dashboard_use_scraped_job(self):
        (job,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
        texts = [rule["expr"] for rule in ALERTS.values()] + [expr for _, expr in expressions()]
        assert {name for text in texts for name in re.findall(r'job="(.*?)"', text)} == {job["job_name"]}


def expressions() -> list[tuple[str, str]]:
    """Return the title and query of every line, number and column on the dashboard."""
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


class TestGrafana:
    def test_provisioned_files_fit_each_other(self):
        (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/hushmote.yml").read_text())[
            "datasources"
        ]
        assert source["uid"] == VARIABLES["datasource"]["current"]["value"]
        scrape_s = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]["scrape_interval"]
        assert source["jsonData"]["timeInterval"] == scrape_s
        (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/hushmote.yml").read_text())[
            "providers"
        ]
        grafana = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]["grafana"]
        places = dict(volume.split(":")[:2] for volume in grafana["volumes"])
        assert places["./grafana/dashboards"] == provider["options"]["path"]
        assert places["./grafana/provisioning"] == "/etc/grafana/provisioning"
        home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        assert home == f"{provider['options']['path']}/hushmote.json"
        assert source["url"] == "$PROMETHEUS_URL"
        assert grafana["environment"]["PROMETHEUS_URL"] == "http://prometheus:9090"


LASTS = """
rule_files: []
tests:
  - interval: 1h
    input_series:
      - series: 'hushmote_budget_reports_left{fleet="home",experiment="room_temp",instance="a"}'
        values: "4848-2x48"
      - series: 'hushmote_budget_reports_left{fleet="home",experiment="new",instance="a"}'
        values: "1000x20 2000x28"
    promql_expr_test:
      - {expr: '%s', eval_time: 48h, exp_samples: [{value: 8553600, labels: "{}"}]}
      - {expr: '%s', eval_time: 48h, exp_samples: []}
"""


class TestPanels:
    def test_import_requires_exactly_what_they_use(self):
        required = {(each["type"], each["id"]) for each in DASHBOARD["__requires"]}
        kinds = {panel["type"] for panel in DASHBOARD["panels"]} - {"row"}  # Grafana's own part
        assert required == {
            ("grafana", "grafana"),
            ("datasource", "prometheus"),
            *(("panel", k) for k in kinds),
        }
        (version,) = (each["version"] for each in DASHBOARD["__requires"] if each["type"] == "grafana")
        image = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]["grafana"]["image"]
        assert f":{version}@" in image  # the version for which it was written
        assert DASHBOARD["__inputs"] == []  # the variable chooses the data source

    def test_have_distinct_ids_and_do_not_overlap(self):
        ids = [panel["id"] for panel in DASHBOARD["panels"]]
        assert len(set(ids)) == len(ids)
        places = [(panel["title"], panel["gridPos"]) for panel in DASHBOARD["panels"]]
        for title, place in places:
            assert place["x"] >= 0, title
            assert place["x"] + place["w"] <= 24, title
        for (one, a), (other, b) in itertools.combinations(places, 2):
            apart = (
                a["x"] + a["w"] <= b["x"]
                or b["x"] + b["w"] <= a["x"]
                or a["y"] + a["h"] <= b["y"]
                or b["y"] + b["h"] <= a["y"]
            )
            assert apart, f"{one} overlaps {other}"

    @pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
    def test_use_selected_datasource_and_have_description(self, panel):
        assert re.fullmatch(r"[A-ZÀ-Ž0-9].*\.", panel["description"], re.DOTALL)
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) >= 1
        for source in (panel, *panel["targets"]):
            assert source["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(panel))) - {"__rate_interval"}
        assert used <= set(VARIABLES)
        assert panel.get("repeat", "fleet") in VARIABLES
        # Colours and bands are assigned by the names of the panel's queries, or by reasons for rejection.
        names = {target.get("legendFormat") for target in panel["targets"]}
        for override in panel["fieldConfig"]["overrides"]:
            if "{{reason}}" not in names:
                assert override["matcher"]["options"] in names
            for change in override["properties"]:
                if change["id"] == "custom.fillBelowTo":
                    assert change["value"] in names

    def test_each_reason_for_rejection_has_its_own_line(self):
        from hushmote.server.ingest.pipeline import REASONS

        (panel,) = (panel for panel in PANELS if "by reason" in panel["title"])
        styles = {
            override["matcher"]["options"]: json.dumps(override["properties"])
            for override in panel["fieldConfig"]["overrides"]
        }
        assert set(styles) == set(REASONS)
        assert len(set(styles.values())) == len(REASONS)

    def test_colours_suit_colour_blind_readers(self):
        text = json.dumps(DASHBOARD)
        assert set(re.findall(r"#[0-9A-Fa-f]{6}", text)) <= COLOURS
        assert set(re.findall(r'"(?:color|fixedColor)": "(.*?)"', text)) <= COLOURS  # no colour names
        modes = set(re.findall(r'"mode": "([a-zA-Z-]+)"', text))
        assert modes <= {"absolute", "fixed", "thresholds", "multi", "off"}

    @needs_promtool
    def test_budget_duration_is_in_seconds(self, tmp_path):
        """At 48 reports a day, the remaining 4,752 reports last 99 days, which is 8,553,600 s."""
        (expr,) = (expr for title, expr in expressions() if title.startswith("Lasts"))
        home = expr.replace("$fleet", "home").replace("$experiment", "room_temp")
        path = tmp_path / "lasts.yml"
        path.write_text(LASTS % (home, home.replace("room_temp", "new")))
        run = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
