"""`hushmote statement`: its files, their signing keys, and one-line errors."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import hushmote
from refusals import Refusal, refusals
from statements import KEPT, ask, firmware

from hushmote.fleet.provisioning import fleet_folder
from hushmote.fleet.provisioning.fleet_spec import FleetSpec
from hushmote.fleet.provisioning.master_key import create_keys, load_keys
from hushmote.fleet.provisioning.settings import provision_device
from hushmote.server.store.store import Store
from hushmote.server.words.label import LANGUAGES

STORE = "hushmote.sqlite"
UNKNOWN_OWNER = "hushmote: the signature is valid, but the owner of the key is unknown; give --announce-key\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Provide a folder with the store of a keyed fleet, home, its keys, and its boards' main.py."""
    with Store(f"sqlite:///{tmp_path / STORE}") as store:
        ask(store, keyed=True, windows={"2026-11-20": 1000})
    create_keys(tmp_path / "master.key")
    firmware(tmp_path)
    return tmp_path


class TestUndecided:
    def test_planned_experiment_gets_label(self, home: Path):
        """Plan, simulate and write the fleet's label, as in the tutorial."""
        plan = ("--devices", "20000", "--lifetime", "4", "--horizon", "30d", "--call", "1h")
        answers = ("--values", "yes-no", "--share", "0.05", "--output", "too_warm.toml")
        hushmote("plan", *plan, *answers, cwd=home)
        population = ("--population", "weights:19:1", "--days", "2", "--calls", "24", "--devices", "200")
        to = ("--to", "sqlite:///fridges.sqlite", "--seed", "1")
        hushmote("simulate", "too_warm.toml", *population, *to, cwd=home)
        policy = hushmote("budget", "policy", "--epsilon", "4", "--experiments", "too_warm", cwd=home)
        (home / "policy.py").write_text(policy)
        write = ("statement", "write", "--policy", "policy.py", "--store", "sqlite:///fridges.sqlite")
        command = [sys.executable, "-m", "hushmote", *write, "--output", "label.html"]
        run = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)
        assert run.stdout == "wrote label.html\n"
        assert run.stderr == (
            'too_warm: the retention of its counts is not set; add keep = "400d" to its experiment\'s '
            "file, and run `hushmote experiment add` again\n"
        )
        assert (
            "until the owner erases them <mark>[Not decided: for how long]</mark>"
            in (home / "label.html").read_text()
        )


class TestLabel:
    def test_is_printed_without_output_file(self, home: Path):
        text = hushmote("statement", "write", "--policy", "main.py", cwd=home)
        assert text.startswith(
            "What this device tells about you\n\nWhat is asked?\n“How warm is it?” (room_temp). "
        )
        assert "from 10% to at most 46%." in " ".join(text.split())

    def test_is_translated(self, home: Path):
        text = hushmote("statement", "write", "--policy", "main.py", "--lang", "de", cwd=home)
        assert text.startswith("Was dieses Gerät über Sie verrät\n\nWas wird gefragt?\n„How warm is it?“ ")
        assert "statt zu 10\u00a0% höchstens zu 46\u00a0% sicher sein." in text.replace("\n", " ")
        assert "gefragt wird bis zum 31. Dezember 2027, danach" in text.replace("\n", " ")


def printed_pages(page: Path) -> int:
    """Return the number of sheets that Chromium prints for a page."""
    paper = page.with_suffix(".pdf")
    command = ["chromium", "--headless=new", "--no-sandbox", f"--user-data-dir={page.parent / 'chromium'}"]
    command += ["--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri()]
    subprocess.run(command, capture_output=True, check=True)
    counts = re.findall(rb"/Type /Pages\s+/Count (\d+)", paper.read_bytes())
    return max(map(int, counts))  # the root of the page tree counts all pages


@pytest.mark.browser
class TestOnPaper:
    WRITE = ("statement", "write", "--policy", "main.py", "--master-key", "master.key")

    def test_chapters_follow_the_label(self, home: Path):
        hushmote(*self.WRITE, "--output", "whole.html", cwd=home)
        assert printed_pages(home / "whole.html") >= 8  # label, files, signature, and one page per chapter

    @pytest.mark.parametrize("language", LANGUAGES)
    def test_three_questions_fit_on_a_sheet(self, language: str, home: Path):
        names = ("room_temp", "room_temp_2", "room_temp_3")
        budget = ("budget", "policy", "--epsilon", "8", "--delta", "1e-6", "--experiments", ",".join(names))
        hushmote(*budget, "--write", "main.py", cwd=home)
        with Store(f"sqlite:///{home / STORE}") as store:
            for name in names[1:]:
                ask(store, KEPT.replace("room_temp", name))
        hushmote(*self.WRITE, "--public", "--lang", language, "--output", "label.html", cwd=home)
        assert printed_pages(home / "label.html") == 3  # label, files, signature


class TestFleetKey:
    """The key that proves that a statement is the fleet's, which the file alone cannot do."""

    @pytest.fixture
    def signed(self, home: Path) -> Path:
        """Provide the statement of a fleet with a folder, next to the settings of one of its devices."""
        folder = fleet_folder.make(home / "fl", FleetSpec("home", ("broker.example",)), write_master=True)
        hushmote("statement", "write", "fl", "--policy", "main.py", "--output", "s.json", cwd=home)
        keys = load_keys(folder.master_file())
        provision_device(keys, "home", "k3f9", path=home / "k3f9.settings.json")
        return home

    def test_rejects_strangers_statement(self, signed: Path):
        create_keys(signed / "stranger.key")
        write = ("statement", "write", "--policy", "main.py", "--master-key", "stranger.key")
        hushmote(*write, "--output", "stranger.json", cwd=signed)
        verify = ("statement", "verify", "stranger.json")
        assert hushmote(*verify, cwd=signed, expect=3) == UNKNOWN_OWNER
        for key in ("fl", "k3f9.settings.json"):
            message = hushmote(*verify, "--announce-key", key, cwd=signed, expect=1)
            assert "stranger.json is signed with another key" in message
            assert message.count("\n") == 1

    def test_accepts_key_from_folder_settings_and_hex(self, signed: Path):
        verify = ("statement", "verify", "s.json", "--announce-key")
        key = json.loads((signed / "k3f9.settings.json").read_text())["announce_key"]
        for key_option in ("fl", "k3f9.settings.json", key, key.upper()):
            text = hushmote(*verify, key_option, cwd=signed)
            assert text.startswith("signed for fleet home on ")
            assert "nothing says" not in text

    @refusals(
        ("shed", "shed belongs to fleet shed and the statement to fleet home; give that fleet's key"),
        ("open.settings.json", "open.settings.json contains no announce key; give the settings of a device"),
        (
            "ab" * 63,
            "must be 128 hex digits, the fleet's folder, in which fleet.json is, or a device's settings",
        ),
        (
            "none.json",
            "must be 128 hex digits, the fleet's folder, in which fleet.json is, or a device's settings",
        ),
        (
            "fl/fleet.json",
            "--announce-key fl/fleet.json must be 128 hex digits, the fleet's folder, in which",
        ),
        command="statement verify s.json --announce-key",
    )
    def test_rejects_wrong_and_missing_key(self, refusal: Refusal, signed: Path):
        fleet_folder.make(signed / "shed", FleetSpec("shed", ("broker.example",)), write_master=True)
        provision_device(None, "home", "open", path=signed / "open.settings.json")
        refusal.check(signed)


class TestFiles:
    def test_written_statement_verifies(self, home: Path):
        write = ("statement", "write", "home", "--policy", "main.py", "--master-key", "master.key")
        output = hushmote(*write, "--output", "label.html", "--output", "statement.json", cwd=home)
        assert output == "wrote label.html\nwrote statement.json\n"
        assert (home / "label.html").read_text().startswith("<!doctype html>")
        keys = load_keys(home / "master.key")
        assert keys is not None
        verify = ("statement", "verify", "statement.json", "--announce-key", keys.announce_key.hex())
        checked = hushmote(*verify, cwd=home)
        assert checked.startswith("signed for fleet home on ")
        assert "main: as main.py, SHA-256 " in checked
        text = (home / "statement.json").read_text()
        (home / "statement.json").write_text(text.replace("at most 4 reports", "at most 3 reports"))
        assert hushmote("statement", "verify", "statement.json", cwd=home, expect=1) == (
            "hushmote: statement.json was altered after it was signed, or signed with another key\n"
        )
        (home / "statement.json").write_text(text[:-9])
        message = (
            "hushmote: statement.json is not a statement, or is damaged: use the file that was published\n"
        )
        assert hushmote("statement", "verify", "statement.json", cwd=home, expect=1) == message
        assert hushmote("statement", "verify", "none.json", cwd=home, expect=1) == (
            "hushmote: cannot read none.json: No such file or directory\n"
        )

    def test_public_statement_has_no_counts(self, home: Path):
        write = ("statement", "write", "--public", "--policy", "main.py", "--master-key", "master.key")
        hushmote(*write, "--output", "public.html", "--output", "public.json", cwd=home)
        for name in ("public.html", "public.json"):
            text = (home / name).read_text()
            assert "1,000 reports" not in text
            assert "reports counted" not in text
            assert "room_temp: the counts reveal no more than the reports themselves." in text
        assert hushmote("statement", "verify", "public.json", cwd=home, expect=3) == UNKNOWN_OWNER

    def test_vulnerable_versions_and_vex_are_listed(self, home: Path):
        with Store(f"sqlite:///{home / STORE}") as store:
            ask(store, KEPT.replace("[budget]", 'group = "firmware"\ngroups = ["1.0", "1.1"]\n[budget]'))
        statement = {"vulnerability": {"name": "CVE-2026-1"}, "status": "affected"}
        context = {"@context": "https://openvex.dev/ns/v0.2.0", "statements": [statement]}
        (home / "product.json").write_text(json.dumps(context))
        write = ("statement", "write", "--policy", "main.py", "--master-key", "master.key")
        options = ("--vulnerable", "1.0", "--vulnerable", "1.1", "--vex", "product.json")
        hushmote(*write, *options, "--output", "s.html", cwd=home)
        text = (home / "s.html").read_text()
        assert "<td>1.0, 1.1</td>" in text
        assert "<td>CVE-2026-1</td><td>affected</td><td>none stated</td><td>product.json</td>" in text

    def test_test_results_and_micropython_are_listed(self, home: Path):
        (home / "t.xml").write_text(
            '<testsuites><testsuite tests="7" failures="1" errors="0" skipped="2" '
            'timestamp="2026-11-29T23:00:00+00:00"><properties><property name="commit" value="0a1b2c"/>'
            "</properties></testsuite></testsuites>"
        )
        write = ("statement", "write", "--policy", "main.py", "--master-key", "master.key")
        options = ("--tests", "t.xml", "--micropython", "v1.28.0", "--output")
        hushmote(*write, *options, "s.html", cwd=home)
        text = (home / "s.html").read_text()
        line = "t.xml: 7 tests at commit 0a1b2c, 2026-11-29T23:00:00+00:00: 4 passed, 1 failed, 2 skipped."
        assert line in text
        assert "<td>MicroPython</td><td></td><td>1.28.0</td>" in text
        hushmote(*write, "--public", "--micropython", "1.28.0", "--output", "p.html", cwd=home)
        assert "<td>MicroPython</td><td></td><td>1.28.0</td>" in (home / "p.html").read_text()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("--public --vulnerable 1.0", "--vulnerable, --vex and --tests are for chapters that a --public"),
            ("--public --vex v.json", "--vulnerable, --vex and --tests are for chapters that a --public"),
            ("--micropython newest", "--micropython must be a version such as 1.28.0, not newest"),
            (
                "--tests v.json",
                "v.json is not a JUnit file with tests: give one that `pytest --junitxml=FILE`",
            ),
            ("--tests none.xml", "cannot read none.xml: No such file or directory"),
        ],
    )
    def test_refuses_unsuitable_evidence(self, home: Path, options: str, message: str):
        vex = {"@context": "https://openvex.dev/ns/v0.2.0", "statements": []}
        (home / "v.json").write_text(json.dumps(vex))
        Refusal(f"statement write --policy main.py {options}", f"hushmote: {message}").check(home)

    def test_same_epoch_gives_same_bytes(self, home: Path):
        write = ("statement", "write", "--policy", "main.py", "--master-key", "master.key", "--output")
        for name in ("a.json", "b.json"):
            hushmote(*write, name, cwd=home, environment={"SOURCE_DATE_EPOCH": "1795600000"})
        assert (home / "a.json").read_bytes() == (home / "b.json").read_bytes()
        assert (
            json.loads((home / "a.json").read_text())["statement"]["made_at"] == "2026-11-25T09:46:40+00:00"
        )
        message = "hushmote: SOURCE_DATE_EPOCH must be a time in seconds since 1970, not soon\n"
        assert (
            hushmote(*write, "c.json", cwd=home, expect=1, environment={"SOURCE_DATE_EPOCH": "soon"})
            == message
        )

    def test_keyed_fleet_signs_only_with_its_own_keys(self, home: Path):
        write = "statement write --policy main.py --output s.json"
        Refusal(
            write,
            "hushmote: fleet home has keys, so its statement must be signed: give its folder, or its "
            "key files with --master-key and --signing-key\n",
        ).check(home)
        with Store(f"sqlite:///{home / STORE}") as store:
            store.set_master_check("home", "0123456789abcdef")
        Refusal(
            f"{write} --master-key master.key", "hushmote: these are not the keys of fleet home in "
        ).check(home)

    def test_folder_gives_fleet_and_transport(self, home: Path):
        folder = fleet_folder.make(
            home / "fleet-home", FleetSpec("home", ("broker.example",)), write_master=True
        )
        write = ("statement", "write", "fleet-home", "--policy", "main.py")
        assert "The reports travel encrypted to broker.example." in " ".join(
            hushmote(*write, cwd=home).split()
        )
        hushmote(*write, "--output", "s.json", cwd=home)
        statement = json.loads((home / "s.json").read_text())
        loaded = load_keys(folder.master_file())
        assert loaded is not None
        assert statement["announce_key"] == loaded.announce_key.hex()
        fleet_folder.make(home / "other", FleetSpec("shed", ("broker.example",)), write_master=True)
        message = hushmote("statement", "write", "other", "--policy", "main.py", cwd=home, expect=1)
        assert message.startswith("hushmote: no fleet shed in ")
        assert message.endswith("its fleets: home\n")

    def test_open_fleets_statement_is_unsigned(self, tmp_path: Path):
        with Store(f"sqlite:///{tmp_path / STORE}") as store:
            ask(store, KEPT)
        firmware(tmp_path)
        hushmote("statement", "write", "--policy", "main.py", "--output", "s.json", cwd=tmp_path)
        assert "nobody vouches for this" in json.loads((tmp_path / "s.json").read_text())["unsigned"]
        assert hushmote("statement", "verify", "s.json", cwd=tmp_path, expect=1) == (
            "hushmote: s.json is unsigned: nobody can tell whether it was altered\n"
        )


class TestRefusals:
    @refusals(
        ("--output s.txt", "s.txt must end in .html or .json, which selects the format"),
        ("--policy none.py", "cannot read none.py: No such file or directory"),
        ("cellar", "no fleet cellar in "),
        ("--vulnerable 1.0", "no open group firmware of fleet home lists 1.0; name a version"),
        ("--vex main.py", "main.py is not an OpenVEX file: give JSON whose @context begins with https://"),
        ("--vex none.json", "cannot read none.json: No such file or directory"),
        command="statement write --policy main.py",
    )
    def test_is_one_line(self, refusal: Refusal, home: Path):
        refusal.check(home)


class TestPolicy:
    """The devices' policy must be given; it is never guessed."""

    def test_is_required(self, home: Path):
        Refusal(
            "statement write home --output s.html",
            "hushmote: --policy is missing; give the devices' firmware file, such as their main.py; "
            "`hushmote budget policy --write` writes POLICY into it\n",
        ).check(home)

    @pytest.mark.parametrize("name", ["policy.py", "policy.json"])
    def test_accepts_budget_policy_output(self, name: str, home: Path):
        budget = ("budget", "policy", "--epsilon", "8", "--experiments", "room_temp")
        (home / name).write_text(hushmote(*budget, *(["--json"] if name.endswith("json") else []), cwd=home))
        write = ("statement", "write", "--policy", name, "--master-key", "master.key", "--output", "s.json")
        hushmote(*write, cwd=home)
        statement = json.loads((home / "s.json").read_text())["statement"]
        assert "/main" not in [file["path"] for file in statement["board_files"]]
        (stop,) = (answers for question, answers in statement["label"].items() if "stop" in question)
        assert "[For the maker: how: its button or switch]" in " ".join(stop)

    def test_must_allow_every_question(self, home: Path):
        with Store(f"sqlite:///{home / STORE}") as store:
            ask(store, KEPT.replace("room_temp", "room_temp_2"))
        right = "refuse room_temp_2: give their actual firmware with --policy"
        Refusal("statement write --policy main.py", right).check(home)
