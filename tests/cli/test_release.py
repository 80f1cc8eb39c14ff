"""`hushmote release`: its output, exit status and refusals on a store of the last days."""

import datetime
import http.server
import json
import threading
from pathlib import Path

import pytest
from command_line import hushmote
from release_store import NEW, OLD, add_release

import hushmote as package
from hushmote.server.store.store import Store

COMMAND = ("release", NEW, "--store", "sqlite:///store.sqlite")
PROCEED, USAGE, STOP, NOT_YET = 0, 1, 3, 4


def fill(folder: Path, new: int, share: float, days: int = 14) -> None:
    """Fill a store up to yesterday, with 2,000 reports of the old version a day."""
    first = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days)
    with Store(f"sqlite:///{folder / 'store.sqlite'}") as store:
        reports = {NEW: [new] * days, OLD: [2000] * days}
        add_release(store, reports, {NEW: share, OLD: 0.05}, first=first)


def plan(folder: Path) -> str | None:
    with Store(f"sqlite:///{folder / 'store.sqlite'}") as store:
        return store.release_plan("home", "firmware", NEW)


class TestExitStatus:
    @pytest.mark.parametrize(
        ("new", "share", "status", "verdict"),
        [(2000, 0.05, PROCEED, "Proceed"), (400, 0.2, STOP, "Stop"), (20, 0.05, NOT_YET, "Not yet")],
    )
    def test_follows_the_verdict(self, tmp_path: Path, new: int, share: float, status: int, verdict: str):
        fill(tmp_path, new, share)
        text = hushmote(*COMMAND, "--against", OLD, cwd=tmp_path, expect=status)
        assert text.startswith(f"{verdict}: ")
        fields = json.loads(hushmote(*COMMAND, "--json", cwd=tmp_path, expect=status))
        assert fields["verdict"] == verdict.lower()

    def test_silent_boards_stop_a_release(self, tmp_path: Path):
        fill(tmp_path, 0, 0.05)
        text = hushmote(*COMMAND, "--against", OLD, "--installed=1000/20000", cwd=tmp_path, expect=STOP)
        assert text.startswith("Stop: boards with 2.4.0 are silent; 0 of about 105 reports arrived")


class TestPlan:
    def test_first_call_stores_it(self, tmp_path: Path):
        fill(tmp_path, 20, 0.05)
        hushmote(*COMMAND, "--against", OLD, "--reports=500", cwd=tmp_path, expect=NOT_YET)
        stored = plan(tmp_path)
        assert stored is not None
        text = hushmote(*COMMAND, "--json", cwd=tmp_path, expect=NOT_YET)
        assert json.loads(text)["plan"] == json.loads(stored)
        assert plan(tmp_path) == stored

    def test_change_is_refused_in_one_line(self, tmp_path: Path):
        fill(tmp_path, 20, 0.05)
        hushmote(*COMMAND, "--against", OLD, cwd=tmp_path, expect=NOT_YET)
        error = hushmote(*COMMAND, "--days", "7", cwd=tmp_path, expect=USAGE)
        assert "the plan of 2.4.0 cannot change after its first look: days is 14, not 7; omit it" in error

    def test_page_api_and_command_share_it(self, tmp_path: Path):
        fill(tmp_path, 20, 0.05)
        with package.open(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            release = store.fleet().release(NEW, against=OLD, not_randomized="by region")
        assert release.plan is not None
        assert plan(tmp_path) == release.plan.to_json()
        assert "(by region)" in hushmote(*COMMAND, cwd=tmp_path, expect=NOT_YET)


class TestInstalled:
    @pytest.mark.parametrize("content", ["1000/20000\n", '{"2.4.0": 1000, "2.3.1": 19000}'])
    def test_reads_a_file(self, tmp_path: Path, content: str):
        fill(tmp_path, 0, 0.05)
        (tmp_path / "installed").write_text(content)
        text = hushmote(*COMMAND, "--against", OLD, "--installed=installed", cwd=tmp_path, expect=STOP)
        assert text.startswith("Stop: boards with 2.4.0 are silent")

    def test_reads_an_address(self, tmp_path: Path):
        fill(tmp_path, 0, 0.05)
        (tmp_path / "installed.json").write_text('{"2.4.0": 1000, "2.3.1": 19000}')

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, directory=str(tmp_path), **options)

            def log_message(self, *_arguments):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            arguments = *COMMAND, "--against", OLD
            hushmote(*arguments, f"--installed={url}/installed.json", cwd=tmp_path, expect=STOP)
            error = hushmote(*arguments, f"--installed={url}/missing", cwd=tmp_path, expect=USAGE)
            server.shutdown()
        assert f"cannot read {url}/missing: " in error

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("missing.json", "missing.json: No such file"),
            ("5/3", "5/3: all devices, after the /, cannot be fewer than those before it"),
            ("bad.json", "bad.json must contain numbers such as 1200/20000, or JSON"),
            ("text.json", "the devices must be a whole number of 0 or more, not 'many'"),
            ("days.json", "Monday is not a day such as 2026-11-21"),
            ("1000", "give numbers such as 1200/20000"),
        ],
    )
    def test_rejects_something_else(self, tmp_path: Path, value: str, message: str):
        fill(tmp_path, 20, 0.05)
        (tmp_path / "bad.json").write_text("[1")
        (tmp_path / "text.json").write_text('{"2.4.0": "many"}')
        (tmp_path / "days.json").write_text('{"Monday": {"2.4.0": 1}}')
        error = hushmote(*COMMAND, "--against", OLD, f"--installed={value}", cwd=tmp_path, expect=USAGE)
        assert message in error
        assert plan(tmp_path) is None


class TestRefusal:
    def test_names_the_versions(self, tmp_path: Path):
        fill(tmp_path, 20, 0.05)
        error = hushmote("release", "9", "--store=sqlite:///store.sqlite", cwd=tmp_path, expect=USAGE)
        assert (
            "no open group of fleet home lists 9: add it to groups in the file; firmware: 2.3.1, 2.4.0"
            in error
        )
        error = hushmote(*COMMAND, cwd=tmp_path, expect=USAGE)
        assert "name the version to compare 2.4.0 with (--against); firmware has 2.3.1" in error

    def test_needs_a_store(self, tmp_path: Path):
        assert "there is no store" in hushmote(*COMMAND, "--against", OLD, cwd=tmp_path, expect=USAGE)
        assert not (tmp_path / "store.sqlite").exists()
