"""The chapters on products: what they claim, where their numbers come from, and versions in use."""

import ast
import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import boards
import filled_store
import pytest
from refusals import fails
from statements import AT, KEPT, POLICY, ask, facts_of, firmware

from hushmote.device import ldp_client
from hushmote.fleet.statement import document, fleet_facts, page, vex
from hushmote.fleet.statement import tables as statement_tables
from hushmote.fleet.statement.fleet_facts import Evidence, FleetFacts
from hushmote.fleet.statement.versions_in_use import read_versions
from hushmote.fleet.statement.volume import volume_of
from hushmote.planning import library
from hushmote.server.answers.query import Facts
from hushmote.server.budgets import policy
from hushmote.server.errors import UsageError
from hushmote.server.experiments.definition import parse
from hushmote.server.store.store import Store
from hushmote.server.wire.experiments import reports_in_budget

ROOT = Path(__file__).parents[3]
FOLDER = Path(statement_tables.__file__).parent
FILES = ("cra", "privacy_assets", "data_act", "privacy_level")
TABLES = {name: tomllib.loads((FOLDER / f"{name}_tables.toml").read_text("utf-8")) for name in FILES}
PRODUCT_CHAPTERS = [chapter["title"] for each in TABLES.values() for chapter in each["chapters"]]
GROUPED = KEPT.replace("[budget]", 'group = "firmware"\ngroups = ["1.0", "1.1", "1.2"]\n[budget]')


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'statement.sqlite'}") as opened:
        yield opened


def rows() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield each row of the chapters on products, with its table."""
    for file in TABLES.values():
        for chapter in file["chapters"]:
            for table in chapter["tables"]:
                yield from ((table, row) for row in (*table["rows"], table.get("empty", ())) if row)


def chapters_of(facts: FleetFacts) -> dict[str, str]:
    """Return each chapter on products as text, by its title."""
    chapters = {chapter["title"]: json.dumps(chapter) for chapter in document.document(facts)["chapters"]}
    return {title: chapters[title] for title in PRODUCT_CHAPTERS}


def has_test(test_id: str) -> bool:
    """Return whether a file has the class and the function of a test's id."""
    file, *names = test_id.split("::")
    if not (ROOT / file).is_file() or not names:
        return False
    body: list[ast.stmt] = ast.parse((ROOT / file).read_text("utf-8")).body
    for name in names:
        found = [
            node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
        ]
        if len(found) != 1:
            return False
        body = found[0].body
    return names[-1].startswith("test_")


class TestSources:
    def test_named_tests_exist(self):
        ids = {cell for _, row in rows() for cell in row if cell.startswith("tests/") and "::" in cell}
        assert len(ids) > 60
        assert [each for each in sorted(ids) if not has_test(each)] == []

    def test_a_missing_test_is_noticed(self):
        file = "tests/device/test_privacy.py::TestSilence"
        assert has_test(f"{file}::test_never_depends_on_value")
        assert not has_test(f"{file}::test_never_depends_on_weather")
        assert not has_test(file)
        assert not has_test("tests/device/test_privacies.py::TestSilence::test_never_depends_on_value")

    def test_control_names_its_evidence(self, store: Store, tmp_path: Path):
        """In every kind of fleet, each control has a test, a document, or is the maker's alone."""
        ask(store)
        plain = facts_of(store, tmp_path)
        each = dataclasses.replace(plain.consent, each=True)
        for keyed, hosts, consent in itertools.product(
            (True, False), ((), ("b.example",)), (plain.consent, each)
        ):
            facts = dataclasses.replace(plain, keyed=keyed, hosts=hosts, consent=consent)
            controls = [
                row
                for chapter in document.document(facts)["chapters"]
                for table in chapter["tables"]
                for row in table["rows"]
                if table["headings"][-1] == "demonstrated by"
            ]
            assert len(controls) > 70
            for row in controls:
                assert has_test(row[-1]) or row[-1] == "not ours" or (ROOT / row[-1]).is_file(), row
                if row[-1] == "not ours":
                    assert re.sub(r"\[For (a lawyer|the maker): [^\]]+\]", "", "".join(row[1:-1])) == "", row

    def test_not_ours_says_who_provides_it(self):
        foreign = [row for _, row in rows() if row[-1] == "not ours"]
        assert foreign
        assert all(re.search(r"\[For (a lawyer|the maker): [^\]]+\]", " ".join(row)) for row in foreign)

    def test_quotes_the_support_period(self, store: Store, tmp_path: Path):
        ask(store)
        text = chapters_of(facts_of(store, tmp_path))[PRODUCT_CHAPTERS[0]]
        (quote,) = set(re.findall(r"\\u201c(Fixes .+?)\\u201d", text))
        assert quote in (ROOT / "SECURITY.md").read_text().replace("\n", " ")

    def test_states_the_limit_of_a_status(self, store: Store, tmp_path: Path):
        ask(store)
        text = chapters_of(facts_of(store, tmp_path))[PRODUCT_CHAPTERS[2]]
        (limit,) = re.findall(r"Each at most (\d+) bytes", text)
        assert f"at most 7 words and {limit} bytes" in (ROOT / "docs" / "wire-format.md").read_text()

    def test_states_the_deadlines_of_article_14(self, store: Store, tmp_path: Path):
        ask(store)
        table = article_14(store, tmp_path)["Article 14: notification of an actively exploited vulnerability"]
        deadlines = {row[0]: row[1] for row in table}
        assert deadlines["early warning"].startswith("24 hours after")
        assert deadlines["vulnerability notification"].startswith("72 hours after")
        assert deadlines["final report"].startswith("14 days after a corrective or mitigating measure")
        assert all("[For " in row[2] for row in table)

    def test_named_files_exist(self):
        cells = " ".join(cell for _, row in rows() for cell in row)
        names = {*re.findall(r"(?<![\w/])(?:docs|device|clients|locks)/[\w./-]*\w|SECURITY\.md", cells)}
        assert {"docs/wire-format.md", "device/export.py", "SECURITY.md"} <= names
        assert [name for name in sorted(names) if not (ROOT / name).is_file()] == []

    def test_export_functions_exist(self):
        functions = {row[1]: row[2] for table, row in rows() if "owner's export" in table["title"]}
        for call in ("export(", "hushmote_export(", "exportJson("):
            (file,) = (file for function, file in functions.items() if function.startswith(f"`{call}"))
            assert call in (ROOT / file).read_text("utf-8")

    def test_texts_contain_no_numbers(self):
        """Numbers about a fleet are filled in; only names of standards and formats contain digits."""
        names = r"SHA-?256|NIST SP 800-226|EN 18031-2|Article \d+(\(\d+\))?|tests/\S+"
        names += r"|(24|72) hours after|14 days after|, \(7\) and \(8\)"  # Article 14
        for table, row in rows():
            for cell in (*row[1:], table.get("note", "")):
                assert not re.search(r"\d", re.sub(names, "", cell)), cell

    def test_claim_support_only(self):
        text = json.dumps(TABLES, ensure_ascii=False)
        assert not re.search(r"compl(y|ies|iant|iance)\b|conform(s|ity)|certified|guarantees that", text)


class TestChanges:
    """Whatever the documents rest on appears in them; see `test_change_every_chapter`."""

    def changed_policy(self, store: Store, folder: Path) -> FleetFacts:
        path = firmware(folder)
        changed = dataclasses.replace(POLICY, sum=POLICY.sum - 2_000_000, ask="each")
        path.write_text(policy.replace_policy(path.read_text(), policy.policy_statement(changed)))
        return fleet_facts.read(store, "home", None, path, AT)

    def changed_experiment(self, store: Store, folder: Path) -> FleetFacts:
        ask(store, KEPT.replace("epsilon = 2", "epsilon = 1").replace("400d", "30d"))
        return facts_of(store, folder)

    def changed_purpose(self, store: Store, folder: Path) -> FleetFacts:
        ask(store, KEPT.replace("heating@", "cooling@"))
        return facts_of(store, folder)

    def changed_fleet(self, store: Store, folder: Path) -> FleetFacts:
        return dataclasses.replace(facts_of(store, folder), keyed=True)

    @pytest.mark.parametrize(
        "change",
        [changed_policy, changed_experiment, changed_purpose, changed_fleet],
        ids=lambda f: f.__name__,
    )
    def test_change_every_chapter(self, change: Callable[..., FleetFacts], store: Store, tmp_path: Path):
        ask(store)
        before, after = chapters_of(facts_of(store, tmp_path)), chapters_of(change(self, store, tmp_path))
        unchanged = {title for title in before if before[title] == after[title]}
        # The controls of the Cyber Resilience Act do not depend on who asks.
        assert unchanged <= ({PRODUCT_CHAPTERS[0]} if change.__name__ == "changed_purpose" else set())

    def test_new_reports_change_what_they_concern(self, store: Store, tmp_path: Path):
        ask(store)
        before = chapters_of(facts_of(store, tmp_path))
        ask(store, windows={"2026-11-20": 700})
        after = chapters_of(facts_of(store, tmp_path))
        cra, _, _, levels = PRODUCT_CHAPTERS
        assert {title for title in before if before[title] != after[title]} == {cra, levels}
        assert "room_temp: 20" in after[cra]

    def test_an_open_fleet_does_not_claim_signatures(self, store: Store, tmp_path: Path):
        ask(store)
        facts = facts_of(store, tmp_path)
        claim = "Not in this fleet, which is open. In a keyed fleet: A device rejects questions"
        assert claim in chapters_of(facts)[PRODUCT_CHAPTERS[0]]
        assert "Not in this fleet" not in " ".join(
            chapters_of(dataclasses.replace(facts, keyed=True)).values()
        )

    def test_every_placeholder_is_filled_in(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace("How warm is it?", "How {warm} is {name}?"))
        text = " ".join(chapters_of(facts_of(store, tmp_path)).values())
        assert "How {warm} is {name}?" in text
        assert not re.search(r"\{[a-z_]+\}", text.replace("How {warm} is {name}?", ""))


class TestVolume:
    def test_report_is_as_large_as_a_devices(self, store: Store, tmp_path: Path):
        for text in (KEPT, GROUPED):
            ask(store, text.replace("every = 3", "every = 1"))
            facts = facts_of(store, tmp_path)
            (question,) = facts.questions
            for key in (None, bytes(32)):
                storage = boards.MemoryStorage()
                ldp_client.provision(storage, consent=True)
                board = ldp_client.Client(POLICY.to_dict(), storage, device_id="b1", key=key)
                board.groups = {"firmware": "1.0"}
                board.enroll(question.version.payload)
                report = board.report("room_temp", 20)
                volume = volume_of(dataclasses.replace(facts, keyed=key is not None), question)
                assert report is not None
                assert volume.report_bytes == len(report)

    def test_reports_a_year_follow_from_the_interval(self, store: Store, tmp_path: Path):
        ask(store, KEPT.replace("every = 3", "every = 14400"))
        facts = facts_of(store, tmp_path)
        assert facts.interval_s == 3600
        volume = volume_of(facts, facts.questions[0])
        # 8,760 hours, divided by 14,400; a report of 11 bytes; 8 / 2 reports in a lifetime.
        assert volume.reports == pytest.approx(0.6083333)
        assert volume.size == "11 bytes a report, at most 44 in a lifetime, without MQTT and TLS overhead"
        assert volume.frequency == (
            "on average at most 0.609 reports (6.7 bytes) a year; never more than 4 reports in the device's "
            "lifetime. A reading is taken every hour, 8,760 times a year, and 1 in 14,400 is reported."
        )

    def test_budget_limits_the_year(self, store: Store, tmp_path: Path):
        ask(store)
        facts = facts_of(store, tmp_path)
        assert volume_of(facts, facts.questions[0]).reports == 4

    def test_unknown_interval_is_for_the_maker(self, store: Store, tmp_path: Path):
        ask(store)
        path = tmp_path / "policy.json"
        path.write_text(json.dumps({"policy": POLICY.to_dict()}))
        facts = fleet_facts.read(store, "home", None, path, AT)
        assert facts.interval_s is None
        assert "[For the maker: how often the firmware takes a reading]" in "".join(
            chapters_of(facts).values()
        )


def fill(
    store: Store, text: str, by_group: Mapping[int, Mapping[str, int]], devices: int = 2_000, each: int = 1
) -> None:
    """Add an experiment, and reports by index of the open group and window, from so many devices."""
    ask(store, text)
    definition = parse(text)
    version = next(v for v in store.experiments("home") if v.current and v.experiment.name == definition.name)
    names = [f"d{i}" for i in range(devices)]
    for group, windows in by_group.items():
        counts = {(window, 3): n for window, n in windows.items()}
        filled_store.write(store, "home", version.experiment, counts, names, group, each)


def two_days(reports: int) -> dict[str, int]:
    """Return the same number of reports for each of two days."""
    return {"2026-11-24": reports, "2026-11-25": reports}


def article_14(store: Store, folder: Path, *vulnerable: str) -> dict[str, list[list[str]]]:
    """Return the rows of the statement's tables for Article 14, by title."""
    facts = fleet_facts.read(store, "home", None, firmware(folder), AT, Evidence(vulnerable=vulnerable))
    chapters = {chapter["title"]: chapter for chapter in document.document(facts)["chapters"]}
    tables = {table["title"]: table["rows"] for table in chapters[PRODUCT_CHAPTERS[0]]["tables"]}
    return {title: rows for title, rows in tables.items() if title.startswith("Article 14")}


def shares(store: Store, folder: Path, *vulnerable: str) -> dict[str, tuple[str, str]]:
    """Return the reports and the share of each version in the statement."""
    rows = article_14(store, folder, *vulnerable)["Article 14: shares of the firmware's versions"]
    return {row[0]: (row[1], row[2]) for row in rows}


def device_numbers(store: Store, folder: Path) -> str:
    """Return what the statement says about the numbers of devices."""
    rows = dict(row[:2] for row in article_14(store, folder)["Article 14: versions that devices run"])
    return rows["numbers of devices by version"]


class TestVersionsInUse:
    def test_shares_have_exact_intervals(self, store: Store, tmp_path: Path):
        fill(store, GROUPED, {0: two_days(50), 1: two_days(450)})
        lines = shares(store, tmp_path, "1.0", "1.2")
        # Clopper and Pearson: 8.211% to 12.029% for 100 of 1,000, and up to 1 - 0.025^(1/1000) for 0.
        assert lines["1.0 (vulnerable)"] == (
            "100",
            "10.0% of readings (8.2% to 12.1%); about 164 to 241 of the 2,000 devices that have reported",
        )
        assert lines["1.2 (vulnerable)"] == (
            "0",
            "0.0% of readings (0.0% to 0.4%); about 0 to 8 of the 2,000 devices that have reported",
        )
        assert lines["1.1"][0] == "900"
        assert lines["1.0, 1.2 together (vulnerable)"] == lines["1.0 (vulnerable)"]
        assert device_numbers(store, tmp_path) == "room_temp: see below."

    def test_only_the_newest_days_count(self, store: Store, tmp_path: Path):
        fill(store, GROUPED, {0: {"2026-11-02": 5_000}, 1: {"2026-11-25": 1_000}})
        assert set(shares(store, tmp_path)) == {"1.1"}

    def test_few_reports_need_more_days(self, store: Store, tmp_path: Path):
        fill(store, GROUPED, {0: {"2026-11-02": 500, "2026-10-01": 70}, 1: {"2026-11-25": 400}})
        assert {version: n for version, (n, _) in shares(store, tmp_path).items()} == {
            "1.0": "500",
            "1.1": "400",
        }

    def test_weighs_a_report_by_its_readings(self, store: Store, tmp_path: Path):
        text = GROUPED.replace("every = 3", 'every = {"1.0" = 1, other = 9}')
        fill(store, text, {0: {"2026-11-25": 900}, 1: {"2026-11-25": 900}})
        # 900 readings with version 1.0, and 8,100 with version 1.1.
        share = shares(store, tmp_path)["1.0"][1]
        assert share.startswith("10.0% of readings (")
        assert share.endswith("; not of devices")
        assert "`every` of room_temp differs between versions" in device_numbers(store, tmp_path)

    def test_spent_budgets_hide_shares_of_devices(self, store: Store, tmp_path: Path):
        """The devices with 1.0 report 9 times as often, so all of them have spent their budgets."""
        text = GROUPED.replace("every = 3", 'every = {"1.0" = 1, other = 9}')
        fill(store, text, {1: {"2026-11-24": 400, "2026-11-25": 400}}, devices=1_000)
        fill(store, text, {0: {"2026-11-24": 1_200}}, devices=300, each=4)
        assert shares(store, tmp_path) == {
            "1.0": ("1,200", "60.0% of 2,000 reports; not of devices"),
            "1.1": ("800", "40.0% of 2,000 reports; not of devices"),
        }
        assert device_numbers(store, tmp_path) == (
            "room_temp: Not stated: 300 of 1,000 devices that reported to room_temp have no reports left, so "
            "their firmware is unknown. [For the maker: the number of devices with each version, for example "
            "from the update server]"
        )

    def test_few_spent_budgets_hide_nothing_at_equal_rates(self, store: Store, tmp_path: Path):
        days = two_days(600)
        fill(store, GROUPED, {1: days})
        fill(store, GROUPED, {0: days}, devices=100, each=4)
        assert device_numbers(store, tmp_path) == "room_temp: see below."
        fill(store, GROUPED, {1: days}, devices=201, each=4)
        assert "201 of 2,000 devices" in device_numbers(store, tmp_path)

    def test_other_questions_spend_the_lifetime_budget(self, store: Store, tmp_path: Path):
        days = two_days(600)
        fill(store, GROUPED, {0: days})
        assert POLICY.sum == 8_000_000
        fill(store, KEPT.replace('"room_temp"', '"other"'), {0: days}, each=4)
        both = dataclasses.replace(POLICY, experiments=("room_temp", "other"))
        assert "2,000 of 2,000 devices" in str(read_versions(Facts(store, AT), "home", both))
        assert "have no reports left" not in str(read_versions(Facts(store, AT), "home"))

    def test_rollout_hides_numbers_of_devices(self, store: Store, tmp_path: Path):
        fill(store, GROUPED, {0: {"2026-11-22": 900, "2026-11-25": 500}, 1: {"2026-11-25": 400}})
        assert shares(store, tmp_path)["1.1"][1].endswith("%); not of devices")
        assert "Not stated: the shares changed from 2026-11-22 to 2026-11-25. [For the maker" in (
            device_numbers(store, tmp_path)
        )

    def test_hides_versions_with_few_reports(self, store: Store, tmp_path: Path):
        fill(store, GROUPED, {0: {"2026-11-25": 40}, 1: {"2026-11-25": 900}, 2: {"2026-11-25": 800}})
        lines = shares(store, tmp_path, "1.0", "1.1")
        assert lines["1.0 (vulnerable)"] == ("–", "fewer than 50 reports")
        assert lines["1.1 (vulnerable)"][0] == "900"
        assert lines["1.2"] == ("–", "not shown, as the next smallest")
        assert lines["1.0, 1.1 together (vulnerable)"] == (
            "–",
            "not shown, because that of one of them is not",
        )

    def test_names_what_is_missing(self, store: Store, tmp_path: Path):
        ask(store)
        (line,) = shares(store, tmp_path).items()
        assert line[0] == "unknown"
        assert 'Add `group = "firmware"`' in line[1][1]

    def test_rejects_a_version_that_no_group_lists(self, store: Store, tmp_path: Path):
        ask(store, GROUPED)
        with fails(
            "no open group firmware of fleet home lists 9.9; its groups list 1.0, 1.1, 1.2", UsageError
        ):
            shares(store, tmp_path, "9.9")

    def test_standard_question_gives_devices(self, store: Store):
        definition = library.question("days_behind")
        outdated = [0.5, 0.5, *[0.0] * 14]
        days = {f"2026-11-{day}": 3_000 for day in range(10, 26)}
        experiment = filled_store.fill(
            store, "home", definition.payload(), days, outdated, unit="d", asked="30:"
        )
        devices = [f"d{i}" for i in range(400)]
        filled_store.write(store, "home", experiment, {}, devices)
        text = read_versions(Facts(store, AT), "home").days_behind
        assert text.startswith("30 d and above: 5")
        low, high = (int(n) for n in re.findall(r"about (\d+) to (\d+) of the 401 devices", text)[0])
        assert 150 < low < high < 250
        most = reports_in_budget(experiment)
        assert most is not None
        filled_store.write(store, "home", experiment, {}, devices[:100], each=most)
        text = read_versions(Facts(store, AT), "home").days_behind
        assert text.endswith("Numbers of devices are not stated: 100 of 401 have no reports left.")


class TestVex:
    def test_reads_the_repositorys_file(self, store: Store, tmp_path: Path):
        ask(store)
        statements = vex.read(ROOT / "locks" / "hushmote.openvex.json")
        facts = dataclasses.replace(facts_of(store, tmp_path), evidence=Evidence(vex=statements))
        text = chapters_of(facts)[PRODUCT_CHAPTERS[0]]
        assert statements
        for statement in statements:
            assert statement.vulnerability in text
            assert statement.status in text
        assert "No OpenVEX file was given" not in text

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "[]",
            "{}",
            '{"@context": "https://example.org"}',
            '{"@context": 1}',
            "[" * 100_000,
            '{"@context": "https://openvex.dev/ns/v0.2.0", "statements": [{"status": "fixed"}]}',
        ],
        ids=["empty", "list", "no context", "other context", "number", "brackets", "no vulnerability"],
    )
    def test_rejects_other_files_in_one_line(self, content: str, tmp_path: Path):
        path = tmp_path / "v.json"
        path.write_text(content)
        with fails("v.json is not an OpenVEX file: give JSON whose @context begins with", UsageError):
            vex.read(path)


class TestPage:
    def test_counts_missing_passages(self, store: Store, tmp_path: Path):
        ask(store)
        text = page.html(document.sign(document.document(facts_of(store, tmp_path)), None))
        overview = text[text.index("Contents, and what is left to write") :]
        overview = overview[: overview.index("</section>")]
        numbers = [int(n) for n in re.findall(r"(\d+) by (?:a lawyer|the maker|the question)", overview)]
        assert sum(numbers) == text.count("<mark>")
