"""`hushmote experiment`: versions, their grace periods, and the warning about a higher ε."""

import datetime
import json
from pathlib import Path

import pytest
from boards import SIGNING, experiment, payload_of
from command_line import Run, hushmote, runner
from rich.cells import cell_len
from traffic import publish

from hushmote.server.store import Description, Store
from hushmote.server.wire import keys, topics
from hushmote.server.words.epsilon import belief
from hushmote.simulator.broker import MosquittoBroker

TOML = """
name = "door_open"
purpose = "Do people leave the cold room open?"
owner = "ops@example.org"
expires = 9999-12-31
type = "bool"
epsilon = {epsilon}
window = "all"
[budget]
rule = "sum"
cap = 4
"""
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    for name, epsilon in (("dear", 1), ("cheap", 0.1)):
        (tmp_path / f"{name}.toml").write_text(TOML.format(epsilon=epsilon))
    return runner("experiment", tmp_path, monkeypatch)


def until(run: Run) -> list[int | None]:
    """Return how many more days each version's late reports count, or None if forever."""
    today = datetime.datetime.now(datetime.UTC).date()
    days = [line["counted_until"] for line in json.loads(run("list", "--json"))]
    return [day and (datetime.date.fromisoformat(day) - today).days + 1 for day in days]


ROOM = """
name = "room_temp"
purpose = "{purpose}"
owner = "heating@example.org"
expires = 9999-12-31
type = "number"
unit = "°C"
low = 0
high = 32
bins = 8
epsilon = 4
window = "all"
[budget]
rule = "count"
cap = 1
"""


class TestVersions:
    def test_late_reports_count_for_grace_period(self, run: Run):
        run("add", "dear.toml", "--open")
        run("add", "cheap.toml", "--grace", "7")
        for_good = until(run)[1]
        assert until(run) == [7, for_good]
        run("withdraw", "door_open")
        assert until(run) == [7, 30]
        run("withdraw", "door_open", "--grace", "0")
        assert until(run) == [0, 0]
        assert "door_open" in run("list")

    def test_warns_of_forgery_under_higher_epsilon(self, run: Run):
        assert "stolen" not in run("add", "cheap.toml", "--open")
        output = " ".join(run("add", "dear.toml").split())
        assert (
            "a stolen device could count up to 31 times under this one, but an honest device at most 4 times"
            in output
        )
        assert json.loads(run("add", "dear.toml", "--json"))["highest_number"] == 31

    def test_shows_unit_and_new_purpose_adds_no_version(self, run: Run, tmp_path):
        for purpose in ("how warm", "how cold"):
            (tmp_path / "room.toml").write_text(ROOM.format(purpose=purpose))
            run("add", "room.toml", "--open")
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as store:
            (version,) = store.experiments()
            assert version.description == Description("°C", "how cold", "heating@example.org")
            with store.ingest() as transaction:
                transaction.write({}, {(version.id, "all", 0, code): 1000 for code in range(8)}, {})
        assert "°C" in hushmote("estimate", "room_temp", cwd=tmp_path)
        assert "°C" not in hushmote("estimate", "room_temp", "--unit", "K", cwd=tmp_path)
        assert '"unit": "\\u00b0C"' in hushmote("estimate", "room_temp", "--json", cwd=tmp_path)


CHOICE = """
name = "ac_mode"
purpose = "Which mode is used?"
owner = "anna@example.org"
expires = 2099-12-31
type = "choice"
labels = ["heat", "cool"]
epsilon = 1
[budget]
rule = "sum"
cap = 4
"""


def add_text(run: Run, folder: Path, text: str, *options: str, expect: int = 0) -> str:
    (folder / "choice.toml").write_text(text)
    return run("add", "choice.toml", "--open", *options, expect=expect)


class TestChanges:
    WORDS = CHOICE.replace("anna@", "bob@").replace("2099", "2098")
    NEW = WORDS.replace('"cool"]', '"cool", "dry"]').replace("epsilon = 1", "epsilon = 0.5")

    def test_same_file_is_unchanged(self, run: Run, tmp_path: Path):
        assert "unchanged" not in add_text(run, tmp_path, CHOICE)
        assert "of fleet home: unchanged" in add_text(run, tmp_path, CHOICE)
        assert "only words" in add_text(run, tmp_path, CHOICE, "--grace", "7")
        run("withdraw", "ac_mode")
        text = " ".join(add_text(run, tmp_path, CHOICE, "--grace", "7").split())
        assert "unchanged; `serve` publishes it again" in text

    def test_words_add_no_version(self, run: Run, tmp_path: Path):
        add_text(run, tmp_path, CHOICE)
        text = add_text(run, tmp_path, self.WORDS)
        assert ": only words. Devices and counts stay as they are." in " ".join(text.split())
        rows = [line.split() for line in text.splitlines()]
        assert ["owner", "anna@example.org", "bob@example.org"] in rows
        assert ["expires", "2099-12-31", "2098-12-31"] in rows
        assert len(json.loads(run("list", "--json"))) == 1

    def test_new_version_shows_differences(self, run: Run, tmp_path: Path):
        old = json.loads(add_text(run, tmp_path, self.WORDS, "--json"))
        assert (old["change"], old["replaces"], old["differences"]) == ("new experiment", None, [])
        text = add_text(run, tmp_path, self.NEW)
        sentences = " ".join(text.split())
        assert "added to fleet home: new version; `serve` publishes it." in sentences
        assert f"It replaces {old['digest']} of bob@example.org, published " in sentences
        rows = [" ".join(line.split()) for line in text.splitlines()]
        assert {"labels heat, cool heat, cool, dry", "epsilon 1 0.5"} <= {*rows}
        again = json.loads(add_text(run, tmp_path, self.WORDS, "--json"))
        assert again["change"] == "earlier version"
        assert {"field": "epsilon", "before": 0.5, "after": 1} in again["differences"]

    def test_json_names_units_of_ranges(self, run: Run, tmp_path: Path):
        room = ROOM.format(purpose="how warm")
        add_text(run, tmp_path, room)
        wider = add_text(run, tmp_path, room.replace("high = 32", "high = 40"), "--json")
        assert json.loads(wider)["differences"] == [{"field": "high", "before": 32, "after": 40}]

    def test_another_unit_is_refused(self, run: Run, tmp_path: Path):
        room = ROOM.format(purpose="how warm")
        add_text(run, tmp_path, room)
        with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store, store.ingest() as transaction:
            transaction.write({}, {(1, "all", 0, 0): 600}, {})
        refusal = add_text(run, tmp_path, room.replace("°C", "°F"), expect=1)
        assert "room_temp has reports in °C" in " ".join(refusal.split())
        assert "take a new name" in refusal


class TestList:
    @pytest.fixture
    def fleets(self, tmp_path):
        """Add experiments to two fleets, one of them with two versions."""
        texts = {
            ("home", "kitchen"): Description(purpose="How warm is the KÜCHE?", owner="heating@example.org"),
            ("home", "door"): Description(purpose="Is the door open?", owner="ops@example.org"),
            ("lab", "kitchen"): Description(purpose="How humid is it?", owner="lab@example.org"),
        }
        with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
            for (fleet, name), words in texts.items():
                store.add_fleet(fleet, keyed=False)
                store.add_experiment(fleet, payload_of(experiment(name=name)), description=words)
            newer = payload_of(experiment(name="door", epsilon=500_000))
            store.add_experiment("home", newer, description=Description(purpose="Is it shut?", owner="me"))

    def names(self, run: Run, *arguments: str) -> list[tuple[str, str]]:
        return [(v["fleet"], v["name"]) for v in json.loads(run("list", *arguments, "--json"))]

    @pytest.mark.usefixtures("fleets")
    def test_is_restricted_to_fleet_and_words(self, run: Run):
        assert len(self.names(run)) == 4
        assert self.names(run, "--fleet", "lab") == [("lab", "kitchen")]
        assert self.names(run, "kitchen") == [("home", "kitchen"), ("lab", "kitchen")]
        assert self.names(run, "warm küche", "--fleet", "home") == [("home", "kitchen")]
        assert self.names(run, "LAB@") == [("lab", "kitchen")]
        # All versions are listed if one of them matches.
        assert self.names(run, "door open") == [("home", "door")] * 2
        assert "lab" not in run("list", "kitchen", "--fleet", "home")

    @pytest.mark.usefixtures("fleets")
    def test_says_that_nothing_matches(self, run: Run):
        assert run("list", "[cellar]") == "no experiment matches [cellar]\n"
        assert run("list", "warm", "--fleet", "lab") == "no experiment matches warm in fleet lab\n"
        assert self.names(run, "cellar") == []

    @pytest.mark.usefixtures("fleets")
    def test_rejects_unknown_fleet(self, tmp_path):
        refused = hushmote("experiment", "list", "--fleet", "labs", cwd=tmp_path, expect=1)
        assert "no fleet labs" in refused
        assert "home, lab" in refused


class TestShow:
    def test_describes_question_and_frequency(self, run: Run, tmp_path):
        (tmp_path / "room.toml").write_text(ROOM.format(purpose="how warm"))
        text = " ".join(hushmote("experiment", "show", "room.toml", cwd=tmp_path).split())
        for part in ("0 to 32 °C, 8 bins of 4 °C", "heating@example.org", "9999-12-31", "how warm"):
            assert part in text
        assert belief(4) in text
        result = json.loads(run("show", "room.toml", "--json"))
        assert (result["low"], result["high"], result["unit"], result["belief"]) == (0, 32, "°C", belief(4))
        run("add", "room.toml", "--open")
        assert run("list").splitlines()[0].split()[:6] == ["fleet", "name", "digest", "ε", "every", "current"]
        assert "of home: how warm (heating@example.org)" in " ".join(run("list").split())

    def test_says_that_a_group_is_not_protected(self, run: Run, tmp_path: Path):
        file = str(EXAMPLES / "board_crash.toml")
        text = " ".join(hushmote("experiment", "show", file, cwd=tmp_path).split())
        assert "Each report contains the board's firmware (2.3.1, 2.4.0, other) in the clear" in text
        assert "1 call in 130 makes a report, with firmware 2.4.0 every call" in text
        assert "11 bytes, 19 authenticated" in text
        result = json.loads(run("show", file, "--json"))
        assert (result["group"], result["groups"]) == ("firmware", ["2.3.1", "2.4.0", "other"])
        assert result["every_by_group"] == {"2.3.1": 130, "2.4.0": 1, "other": 130}
        assert (result["report_bytes"], result["authenticated_report_bytes"]) == (11, 19)
        run("add", file, "--open")
        assert "1 to 130" in run("list")

    def test_json_gives_epsilon_and_caps_in_nats(self, run: Run, tmp_path):
        caps = {"sum": 4, "squares": 2.5, "count": 3}
        for rule, cap in caps.items():
            toml = TOML.format(epsilon=1).replace('"sum"', f'"{rule}"').replace("cap = 4", f"cap = {cap}")
            (tmp_path / "x.toml").write_text(toml)
            result = json.loads(run("show", "x.toml", "--json"))
            assert (result["epsilon"], result["rule"], result["cap"]) == (1, rule, cap)
            assert (result["low"], result["labels"]) == (None, None)


class TestDefaultFleet:
    def test_is_never_simulated(self, run: Run, tmp_path):
        with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
            store.add_fleet("simulated", keyed=False)
        assert "added to fleet home" in run("add", "dear.toml", "--open")
        assert "added to fleet home" in run("add", "cheap.toml")
        assert "fleet lab is new: add --keys" in run("add", "cheap.toml", "--fleet", "lab", expect=1)

    def test_name_is_optional_for_single_fleet(self, run: Run):
        assert json.loads(run("add", "dear.toml", "--keys", "--fleet", "lab", "--json"))["fleet"] == "lab"
        assert json.loads(run("add", "cheap.toml", "--json"))["fleet"] == "lab"
        assert "fleet lab" in run("withdraw", "door_open")
        run("add", "dear.toml", "--open", "--fleet", "home")
        for arguments in (("add", "dear.toml"), ("withdraw", "door_open")):
            assert "hushmote.sqlite; its fleets: home, lab" in run(*arguments, expect=1)
        run("add", "dear.toml", "--open", "--fleet", "home")


class TestStatus:
    def test_distinguishes_open_and_keyed_fleets(self, run: Run, tmp_path):
        run("add", "dear.toml", "--keys", "--fleet", "lab")
        run("add", "dear.toml", "--open", "--fleet", "home")
        status = json.loads(hushmote("status", "--json", cwd=tmp_path))
        assert status["fleets"] == [
            {"fleet": "home", "reports": "open"},
            {"fleet": "lab", "reports": "keyed"},
        ]
        text = hushmote("status", cwd=tmp_path)
        assert "Fleet home: open, so anyone can forge reports" in text
        assert "Fleet lab: keyed" in text


class TestClear:
    def test_clears_what_the_store_does_not_have(self, run: Run):
        run("add", "dear.toml", "--open")
        with MosquittoBroker() as broker:
            where = ("--broker", f"mqtt://127.0.0.1:{broker.port}")
            publish(broker, [(topics.experiment_topic("home", "old"), b"{}")], retain=True)
            assert "use `hushmote experiment withdraw door_open --fleet home`" in run(
                "clear", "door_open", *where, expect=1
            )
            assert (
                run("clear", "old", *where) == "old of fleet home is cleared: boards stop reporting to it\n"
            )
            assert "retains no experiment old of fleet home" in run("clear", "old", *where, expect=1)

    def test_without_store_needs_the_fleet(self, run: Run):
        assert "add --fleet NAME" in run("clear", "old", expect=1)
        assert "no broker at localhost:1 " in run(
            "clear", "old", "--fleet", "home", "--broker", "mqtt://localhost:1", expect=1
        )

    def test_signed_experiment_needs_the_signing_key(self, run: Run):
        topic = topics.experiment_topic("home", "temp")
        signed = keys.sign_experiment(SIGNING, topic, payload_of(experiment()), 7)
        with MosquittoBroker() as broker:
            publish(broker, [(topic, signed)], retain=True)
            command = ("clear", "temp", "--fleet", "home", "--broker", f"mqtt://127.0.0.1:{broker.port}")
            assert "give its file with --signing-key" in run(*command, expect=1)


class TestOtherAlphabets:
    LABELS = ("Österreich", "日本", "👩‍🌾", "العربية", "é12")
    FILE = TOML.format(epsilon=2).replace(
        'type = "bool"', f'type = "choice"\nlabels = {json.dumps(LABELS, ensure_ascii=False)}'
    )

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "file.toml").write_text(self.FILE)
        accents = "O\u0308sterreich"  # as a file from a Mac may spell it
        rows = [accents, *self.LABELS[1:]] * 20
        (tmp_path / "people.csv").write_text("\n".join(["land", *rows]) + "\n")
        hushmote(
            *("simulate", "file.toml", "--devices", "2000", "--population", "file:people.csv:land"),
            *("--to", "sqlite:///hushmote.sqlite"),
            cwd=tmp_path,
        )
        return tmp_path

    def test_boards_get_labels_without_escapes(self, folder: Path):
        text = hushmote("experiment", "show", "file.toml", cwd=folder)
        assert f'"labels":{json.dumps(self.LABELS, ensure_ascii=False, separators=(",", ":"))}' in text

    @pytest.mark.slow
    def test_estimate_names_and_finds_labels(self, folder: Path):
        text = hushmote("estimate", "door_open", "--range", "o\u0308sterreich", "--json", cwd=folder)
        tables = {answer["kind"]: answer["rows"] for answer in json.loads(text)["answers"]}
        assert [row["name"] for row in tables["histogram"]] == [*self.LABELS, "other"]
        assert [row["name"] for row in tables["ranges"]] == ["Österreich"]
        assert all(abs(row["value"] - 0.2) < 0.15 for row in tables["histogram"][:5])

    @pytest.mark.slow
    def test_plots_characters_without_a_font_and_warning(self, folder: Path):
        text = hushmote("estimate", "door_open", "--plot", "a.png", cwd=folder)
        assert "Glyph" not in text
        assert (folder / "a.png").stat().st_size > 1000

    @pytest.mark.slow
    def test_status_aligns_wide_characters(self, folder: Path):
        lines = hushmote("status", cwd=folder).splitlines()
        bars = [line[: line.index("█")] for line in lines if "█" in line]
        assert len(bars) >= 3
        assert len({cell_len(line) for line in bars}) == 1

    @pytest.mark.slow
    def test_plan_takes_labels_from_a_file(self, folder: Path):
        plan = ("plan", "--devices", "5000", "--epsilon", "2", "--input", "people.csv:land")
        hushmote(*plan, "--output", "planned.toml", cwd=folder)
        assert '"Österreich"' in (folder / "planned.toml").read_text()
        hushmote("experiment", "show", "planned.toml", cwd=folder)
