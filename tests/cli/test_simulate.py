"""`hushmote simulate`: its output, its errors, and the store for later questions."""

import json
import re
import shlex
from pathlib import Path

import experiments
import pytest
from command_line import DOOR, hushmote
from refusals import Refusal, refusals

ROOM = experiments.ROOM.replace("epsilon = 2", "epsilon = 1").replace("cap = 8", "cap = 4")
ROOM = ROOM.replace('every = 3\nwindow = "day"', "every = 90")
PAIR = Path(__file__).parents[2] / "examples" / "heating_by_window.toml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "room.toml").write_text(ROOM, encoding="utf-8")
    (tmp_path / "door.toml").write_text(DOOR, encoding="utf-8")
    return tmp_path


class TestStore:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("file", "window"), [("room.toml", "day"), ("door.toml", "all"), ("room.toml", "hour")]
    )
    def test_printed_commands_run(self, folder: Path, file: str, window: str):
        text = (folder / file).read_text(encoding="utf-8")
        (folder / file).write_text(
            f'window = "{window}"\n' + text.replace('window = "all"\n', ""), encoding="utf-8"
        )
        fleet = ("simulate", file, "--to", "sqlite:///hushmote.sqlite", "--days", "5")
        output = hushmote(*fleet, "--devices", "3000", cwd=folder)
        assert max(len(line) for line in output.splitlines() if not line.startswith("  hushmote ")) <= 80
        commands = [line.split() for line in output.splitlines() if line.startswith("  hushmote ")]
        assert len(commands) == (2 if window == "all" else 4)
        for command in commands:
            hushmote(*command[1:], cwd=folder)
        sound = hushmote("store", "check", "sqlite:///hushmote.sqlite", cwd=folder)
        assert "hushmote.sqlite is sound" in sound
        assert "has reports of" in hushmote(*fleet, cwd=folder, expect=1)

    def test_drift_of_a_pair_names_both_first_values(self, folder: Path):
        fleet = ("--to", "sqlite:///a.sqlite", "--days", "1", "--devices", "100", "--drift", "0.1")
        output = " ".join(hushmote("simulate", str(PAIR), *fleet, cwd=folder).split())
        assert "; 10% of the devices change to window=closed, heating=no each day" in output

    @pytest.mark.slow
    def test_seed_repeats_days(self, folder: Path):
        output = []
        for store in ("a", "b"):
            arguments = ("--to", f"sqlite:///{store}.sqlite", "--seed", "5", "--days", "3", "--json")
            output.append(json.loads(hushmote("simulate", "room.toml", *arguments, cwd=folder)))
        assert output[0] == output[1]
        assert output[0]["seed"] == 5
        command = shlex.split("estimate room_temp --store sqlite:///a.sqlite --fleet simulated --json")
        assert json.loads(hushmote(*command, cwd=folder))["reports"] == output[0]["reports"]


class TestQuestions:
    def test_ranges_and_quantiles_are_answered(self, folder: Path):
        options = ("--devices", "2000", "--seed", "1", "--json")
        options = ("--range", "18:22", "--range", "22:", "--quantile", "0.9", *options)
        result = json.loads(hushmote("simulate", "room.toml", *options, cwd=folder))
        assert [row["name"] for row in result["ranges"]] == ["18 to 22", "22 and above"]
        assert [row["name"] for row in result["quantiles"]] == ["90% quantile"]


class TestAccuracy:
    def test_share_is_as_exact_as_stated(self, folder: Path):
        """If ±1 point takes N devices, half an interval with N devices is between 0.8 and 1.05 points."""
        output = hushmote("simulate", "room.toml", "--devices", "20000", "--seed", "2", cwd=folder)
        boards = " ".join(output.split()).split("±1 point takes ")[1].split(" devices")[0].replace(",", "")
        larger = hushmote("simulate", "room.toml", "--devices", boards, "--seed", "3", "--json", cwd=folder)
        assert 0.008 < json.loads(larger)["half_width"] < 0.0105

    def test_states_accuracy_for_mean_and_pair(self, folder: Path):
        (folder / "mean.toml").write_text(ROOM.replace("bins = 32", 'bins = 32\nstatistics = "mean"'))
        output = hushmote("simulate", "mean.toml", "--devices", "20000", "--seed", "1", cwd=folder)
        output = " ".join(output.split())
        assert "The mean is known to about ±" in output
        assert "so the mean may be off by up to another 0.5 °C." in output
        assert "A row's share" not in output
        output = " ".join(
            hushmote("simulate", str(PAIR), "--devices", "20000", "--seed", "1", cwd=folder).split()
        )
        assert 'Rows of "heating=yes given each window" are known to about ±' in output

    @pytest.mark.slow
    def test_shows_mean_with_its_truth(self, folder: Path):
        """With 2,000 boards and 4 reports each, the mean's interval matches the table, in the same unit."""
        definition = ROOM.replace("every = 90", 'statistics = "mean"')
        (folder / "mean.toml").write_text(definition, encoding="utf-8")
        arguments = ("simulate", "mean.toml", "--devices", "2000", "--seed", "1")
        output = hushmote(*arguments, "--output", "m.csv", "--output", "m.png", cwd=folder)
        assert "mean and spread" in output
        assert "The mean is known to about ±" in output
        assert "share" not in output
        for more in ((), ("--faithful", "--calls", "2")):
            result = json.loads(hushmote(*arguments, *more, "--json", cwd=folder))
            mean = result["moments"][0]
            assert mean["truth"] == pytest.approx(16, abs=0.5)
            assert result["half_width"] == pytest.approx((mean["high"] - mean["low"]) / 2)
        for option in (("--attack", "random:0.1"), ("--output", "convergence.png"), ("--range", "1:5")):
            line = hushmote(*arguments, *option, cwd=folder, expect=1)
            assert "room_temp answers only its mean: omit" in line


class TestMissing:
    """A file in which half of the cells are blank."""

    @pytest.fixture
    def half(self, folder: Path) -> Path:
        (folder / "half.csv").write_text("open,temp\n" + "yes,21\n,\n" * 50)
        door = DOOR.replace('type = "bool"', 'type = "bool"\nmissing = true')
        assert door != DOOR
        (folder / "door_missing.toml").write_text(door, encoding="utf-8")
        room = ROOM.replace("bins = 32", "bins = 31\nmissing = true")
        (folder / "room_missing.toml").write_text(room, encoding="utf-8")
        return folder

    def test_truth_covers_rows_with_reading(self, half: Path):
        arguments = ("simulate", "door_missing.toml", "--population", "file:half.csv:open", "--seed", "1")
        result = json.loads(hushmote(*arguments, "--json", cwd=half))
        assert (result["rows"], result["rows_without_reading"]) == (100, 50)
        assert [row["truth"] for row in result["histogram"]] == [0, 1]
        assert result["missing"]["truth"] == pytest.approx(0.5, abs=0.01)
        assert result["missing"]["covered"]
        output = " ".join(hushmote(*arguments, cwd=half).split())
        assert "50 of 100 rows have no reading; shares and truth cover only the others." in output
        assert "no reading: " in output

    def test_deviation_covers_rows_with_reading(self, half: Path):
        arguments = ("simulate", "room_missing.toml", "--population", "file:half.csv:temp", "--seed", "1")
        mean, deviation = json.loads(hushmote(*arguments, "--json", cwd=half))["moments"]
        assert (mean["truth"], deviation["truth"]) == pytest.approx((21.161290, 0), abs=1e-5)
        assert mean["covered"]

    def test_is_spread_without_setting(self, half: Path):
        arguments = ("simulate", "door.toml", "--population", "file:half.csv:open", "--seed", "1")
        output = " ".join(hushmote(*arguments, cwd=half).split())
        assert "50 of 100 rows have no reading. The experiment does not set missing, so these are" in output
        result = json.loads(hushmote(*arguments, "--json", cwd=half))
        assert [row["truth"] for row in result["histogram"]] == pytest.approx([0.25, 0.75], abs=0.01)
        assert "missing" not in result

    def test_real_clients_give_same_truth(self, half: Path):
        arguments = ("simulate", "door_missing.toml", "--population", "file:half.csv:open", "--seed", "1")
        result = json.loads(hushmote(*arguments, "--devices", "300", "--faithful", "--json", cwd=half))
        assert [row["truth"] for row in result["histogram"]] == [0, 1]

    def test_convergence_covers_rows_with_reading(self, half: Path):
        arguments = ("simulate", "door_missing.toml", "--population", "file:half.csv:open", "--seed", "1")
        hushmote(*arguments, "--output", "convergence.png", cwd=half)
        assert (half / "convergence.png").stat().st_size > 1000


class TestGroup:
    """Boards with a firmware version, which the reports name."""

    CRASH = str(Path(__file__).parents[2] / "examples" / "board_crash.toml")

    def test_shows_each_version(self, folder: Path):
        """Each truth is within 6 standard deviations of its share (2e-9)."""
        arguments = (
            "simulate",
            self.CRASH,
            "--population",
            "weights:95:5",
            "--devices",
            "20000",
            "--seed",
            "1",
        )
        versions = ("--group", "2.4.0=0.25", "--shift", "2.4.0=0.2")
        output = hushmote(*arguments, *versions, "--calls", "2", cwd=folder)
        assert "firmware " in output
        assert all(len(line) <= 80 for line in output.splitlines() if self.CRASH not in line)
        output = " ".join(output.split())
        assert "of which one in 130 makes a report (firmware 2.4.0: each)" in output
        result = json.loads(hushmote(*arguments, *versions, "--json", cwd=folder))
        old, new = result["groups"]["2.3.1"], result["groups"]["2.4.0"]
        assert old["devices"] + new["devices"] == 20_000
        assert old["reports"] + new["reports"] == result["reports"] == 80_000
        assert old["truth"] == pytest.approx(0.05, abs=6 * (0.0475 / 60_000) ** 0.5)
        assert new["truth"] == pytest.approx(0.24, abs=6 * (0.1824 / 19_000) ** 0.5)

    def test_rolls_back_over_days(self, folder: Path):
        store = ("--to", "sqlite:///a.sqlite", "--days", "6", "--devices", "2000", "--seed", "1")
        versions = ("--group", "2.4.0=0.1,1,0", "--drift", "0")
        output = hushmote("simulate", self.CRASH, *store, *versions, cwd=folder)
        assert "groups    firmware 2.3.1 on 90%, 0%, 100% of the devices\n" in output
        assert "          firmware 2.4.0 on 10%, 100%, 0% of the devices\n" in output
        assert re.search(r"\nall, 2\.4\.0 +[\d,]+ ", output)
        (command,) = (line.split()[1:] for line in output.splitlines() if "hushmote release" in line)
        assert command == ["release", "2.4.0", "--against", "2.3.1"]
        verdict = hushmote(*command, "--store", "sqlite:///a.sqlite", cwd=folder, expect=4)
        assert "Not yet" in verdict


class TestOutput:
    def test_advises_on_too_few_reports(self, folder: Path):
        arguments = ("simulate", "room.toml", "--devices", "2000", "--seed", "1")
        output = " ".join(hushmote(*arguments, "--calls", "1", cwd=folder).split())
        assert "devices reported, with 1 call to report(), of which one in 90 makes a report" in output
        assert "Too few reports: shares are known only to ±" in output
        assert "--calls 360 makes about 6,446 reports" in output  # not 8,000: some boards are slower
        enough = " ".join(hushmote(*arguments, "--calls", "360", cwd=folder).split())
        assert "±1 point takes" in enough
        assert "--calls" not in enough
        better = hushmote(*arguments, cwd=folder)
        assert "from 10% to at most 24%" in " ".join(better.split())
        assert "8,000 reports from 2,000 devices with normal:16:2 °C" in better
        assert "Too few" not in better
        for paragraph in ("Privacy: ", "How exact: ", "Next: "):
            assert paragraph in better
        assert max(map(len, better.splitlines())) <= 80

    @pytest.mark.slow
    def test_does_not_overwrite_files_by_default(self, folder: Path):
        arguments = ("simulate", "door.toml", "--devices", "500", "--seed", "1")
        files = ("--output", "a.csv", "--output", "a.json", "--output", "a.png")
        output = hushmote(*arguments, *files, cwd=folder)
        written = [line for line in output.splitlines() if "written" in line]
        assert written == ["written: a.csv", "written: a.json", "written: a.png"]
        result = json.loads((folder / "a.json").read_text())
        assert result == json.loads(hushmote(*arguments, "--json", cwd=folder))
        assert (result["epsilon"], result["reports"], result["spent"]) == (2, 1000, 500)
        assert (folder / "a.csv").read_text().startswith("kind,quantity,name,value")
        (folder / "a.png").write_text("mine")
        assert "a.png already exists" in hushmote(*arguments, *files[4:], cwd=folder, expect=1)
        picture = ("--output", "convergence.png")
        assert (folder / "a.png").read_text() == "mine"
        hushmote(*arguments, *picture, cwd=folder)
        assert "convergence.png already exists" in hushmote(*arguments, *picture, cwd=folder, expect=1)
        assert (folder / "convergence.png").read_bytes().startswith(b"\x89PNG")

    @refusals(
        (f"room.toml --devices {10**15}", "and the limit is 1,000,000,000"),
        (f"room.toml --devices {10**15} --calls 90", "and the limit is 1,000,000,000"),
        (f"room.toml --devices {10**15} --faithful", "calls, more than the"),
        (f"room.toml --devices {10**15} --to sqlite:///a.sqlite", "and the limit is 1,000,000,000"),
        ("room.toml --devices 3 --calls 1", "use more --devices or --calls"),
        ("room.toml --days 3 --drift 1", "or omit --days, --drift"),
        ("room.toml --calls 2.5", "a whole number per device, not 2.5"),
        ("room.toml --calls nan", "a whole number per device, not nan"),
        ("room.toml --to sqlite:///a.sqlite --drift nan", "a finite number, not nan"),
        ("room.toml --to sqlite:///a.sqlite --faithful", "omit --faithful"),
        ("room.toml --to sqlite:///a.sqlite --rows 3 --privacy", "omit --rows, --privacy"),
        ("room.toml --to sqlite:///a.sqlite --csv-dialect excel-eu", "omit --csv-dialect"),
        ("room.toml --decimal ,", "add --population file:FILE:COLUMN, or omit --decimal"),
        ("room.toml --keep-value -200", "add --population file:FILE:COLUMN, or omit --keep-value"),
        ("door.toml --rows 3", "door_open has no number; omit it"),
        (f"{PAIR} --devices 2000 --quantile 0.5", "omit --quantile"),
        (f"{PAIR} --devices 2000 --range yes", "omit --range"),
        ("room.toml --fault offline=2", "offline must be a probability"),
        (
            "room.toml --fault hail=0.1",
            "a fault must be one of offline, online, duplicate, late, reboot, such as",
        ),
        ("room.toml --fault late", "probability must be from 0 to 1, such as offline=0.1, not late"),
        ("room.toml --to sqlite:///a.sqlite --days 0", "--days must be from 1 to 3,660"),
        ("room.toml --to sqlite:///a.sqlite --fleet home", "begins with sim"),
        ("room.toml --to sqlite:///a.sqlite --calls 0", "must be above 0"),
        ("door.toml --to sqlite:///a.sqlite --drift 2", "from 0 to 1"),
        ("door.toml --group 2.4.0=0.1", "door_open has no open group; omit 2.4.0=0.1"),
        ("door.toml --shift 2.4.0=0.1", "door_open has no open group; omit 2.4.0=0.1"),
        command="simulate",
    )
    def test_refusal_is_one_line(self, refusal: Refusal, folder: Path):
        refusal.check(folder)

    def test_details_appear_only_on_request(self, folder: Path):
        arguments = ("simulate", "room.toml", "--devices", "20000", "--seed", "1")
        plain, private, method = (
            hushmote(*arguments, *more, cwd=folder) for more in ((), ("--privacy",), ("--verbose",))
        )
        assert plain.startswith("A share is known to about ±")
        assert not any(word in plain for word in ("ε", "Σ", "hh", "cells"))
        assert "ε of a report: 1; Σε at most 4: 4 reports per lifetime; 1 call in 90 makes a" in private
        assert "hh" not in private
        assert ": hh, fanout " in method
        assert "ε" not in method
