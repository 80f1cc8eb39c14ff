"""A custom mechanism, from the analyst's file to the answer, in a new process."""

import datetime
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, hushmote
from custom_mechanisms import EXAMPLES
from running_aggregator import WAIT_S, until

from hushmote.device import ldp_client
from hushmote.fleet.results.result import result_of
from hushmote.server.service.process import READY
from hushmote.server.store.store import Store
from hushmote.server.wire import experiments as wire
from hushmote.server.wire.experiments import parse_experiment
from hushmote.simulator.broker import EmbeddedBroker
from hushmote.simulator.faithful import SimulatedFleet
from hushmote.simulator.gateway import Gateways

CUPS = """
name = "cups"
purpose = "How many cups does a machine make?"
owner = "ops@example.org"
expires = 9999-12-31
type = "number"
unit = "cups"
low = 0
high = 80
bins = 8
mechanism = "unary:Unary"
epsilon = 2
window = "day"
[budget]
rule = "sum"
cap = 8
"""


@pytest.fixture
def cups(tmp_path: Path) -> Path:
    """Provide a folder with an experiment that uses the documented example mechanism, and its two files."""
    for path in EXAMPLES.glob("unary*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "cups.toml").write_text(CUPS)
    return tmp_path


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Provide the command line of a new process that knows only the shipped mechanisms."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path).resolve() != EXAMPLES])
    modules = {path.stem: sys.modules.get(path.stem) for path in EXAMPLES.glob("*.py")}
    known = [vars(ldp_client)["MECHANISMS"], vars(ldp_client)["TYPES"]]
    before = [dict(words) for words in known]

    def forget() -> None:
        for name in modules:
            sys.modules.pop(name, None)
        for words in known:
            for word in [word for word in words if ":" in word or word == "letters"]:
                del words[word]

    def run(*arguments: str, cwd: Path, expect: int = 0) -> str:
        forget()
        return hushmote(*arguments, cwd=cwd, expect=expect)

    yield run
    forget()
    sys.modules.update({name: module for name, module in modules.items() if module is not None})
    for words, all_of_them in zip(known, before, strict=True):
        words.update(all_of_them)


LETTERS = {"type": "letters", "alphabet": "abcdefgh", "length": 6}
SKETCHES = {
    "hcms": (
        {"type": "choice", "labels": ["a", "b", "c"]},
        "hcms:HadamardSketch",
        {"hashes": 4, "width": 16},
    ),
    "hcms text": ({"type": "text", "slots": 256}, "hcms:HadamardSketch", {"hashes": 8, "width": 64}),
    "sfp": (LETTERS, "sfp:FragmentPuzzle", {"hashes": 8, "width": 4096}),
}


@pytest.fixture
def sketch(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """Provide a folder with the example sketches, a word list and sketch.toml, and the sketch's kind."""
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, tmp_path)
    reading, word, parameters = SKETCHES[request.param]
    start, end = CUPS.index('type = "number"'), CUPS.index("epsilon")
    fields = reading | {"mechanism": word} | parameters
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
    text = CUPS[:start] + lines + CUPS[end:]
    text = text.replace("epsilon = 2", "epsilon = 4").replace('"cups"', '"sketch"')
    (tmp_path / "sketch.toml").write_text(text)
    (tmp_path / "list.txt").write_text("cab\nheadache\nbad\n")
    return tmp_path, request.param


class TestApproximateAnswers:
    """Answers of examples/channels are marked as approximate wherever they are shown."""

    NOTE = "Approximate: the intervals include an error"

    @pytest.mark.parametrize("sketch", SKETCHES, indirect=True)
    def test_are_marked_in_a_simulation(self, sketch: tuple[Path, str], fresh: Run):
        folder, kind = sketch
        population = "weights:5:3:1:1" if kind == "hcms" else "zipf:1:list.txt"
        simulated = (
            "simulate",
            "sketch.toml",
            "--population",
            population,
            "--devices",
            "40000",
            "--seed",
            "1",
        )
        output = " ".join(fresh(*simulated, cwd=folder).split())
        assert self.NOTE in output
        assert ", approximate" in output
        assert "halve" not in output
        result = json.loads(fresh(*simulated, "--json", cwd=folder))
        rows = result["discovery" if kind == "sfp" else "candidates" if "text" in kind else "histogram"]
        assert [row["name"] for row in rows[:3]] == (
            ["cab", "headac…", "bad"]
            if kind == "sfp"
            else ["cab", "headache", "bad"]
            if "text" in kind
            else [*"abc"]
        )
        assert all(row["truth"] is not None for row in rows)
        assert result["approximate"] is True
        assert result["intervals_that_hold_the_truth"] >= len(rows) - 1

    @pytest.mark.parametrize("sketch", SKETCHES, indirect=True)
    def test_are_marked_in_tables_findings_and_files(self, sketch: tuple[Path, str], fresh: Run):
        folder, kind = sketch
        store = ("--store", "sqlite:///s.sqlite")
        population = () if kind == "hcms" else ("--population", "zipf:1:list.txt")
        filled = ("simulate", "sketch.toml", "--devices", "20000", "--days", "2", "--seed", "1")
        fresh(*filled, *population, "--to", store[1], cwd=folder)
        named = ("--range", "cab", "--range", "bad") if "text" in kind else ()
        command = ("estimate", "sketch", *store, *named)
        output = " ".join(fresh(*command, cwd=folder).split())
        assert self.NOTE in output
        reply = json.loads(fresh(*command, "--json", cwd=folder))
        assert reply["approximate"] is True
        assert all(answer["approximate"] for answer in reply["answers"])
        if not named:
            assert ", approximate, " in reply["finding"]
            assert all(finding["approximate"] for finding in reply["findings"])
        fresh(*command, "--output", "table.csv", "--output", "picture.svg", cwd=folder)
        header, first, *_ = (folder / "table.csv").read_text().splitlines()
        assert dict(zip(header.split(","), first.split(","), strict=True))["approximate"] == "True"
        status = fresh("status", *store, cwd=folder)
        assert ("approximate" in status) == (kind == "hcms")

    @pytest.mark.parametrize("sketch", ["hcms"], indirect=True)
    def test_are_marked_in_published_results(self, sketch: tuple[Path, str], fresh: Run):
        folder, _ = sketch
        filled = (
            "simulate",
            "sketch.toml",
            "--devices",
            "20000",
            "--days",
            "2",
            "--to",
            "sqlite:///s.sqlite",
        )
        fresh(*filled, cwd=folder)
        with Store(f"sqlite:///{folder / 's.sqlite'}") as store:
            result = result_of(store, "simulated", "sketch", datetime.datetime.now(datetime.UTC))
        assert result.approximate
        assert ", approximate, " in result.finding
        assert json.loads(result.to_json())["approximate"] is True

    @pytest.mark.parametrize("sketch", ["sfp"], indirect=True)
    def test_words_need_a_list(self, sketch: tuple[Path, str], fresh: Run):
        folder, _ = sketch
        message = fresh("simulate", "sketch.toml", cwd=folder, expect=1)
        assert "list the texts of type letters in a file: zipf:1:FILE" in message


def report_count(folder: Path) -> int:
    return json.loads(hushmote("status", "--json", cwd=folder))["experiments"][0]["reports"]


class TestOwnMechanism:
    @pytest.mark.slow
    def test_works_with_every_command(self, cups: Path, fresh: Run):
        result = json.loads(fresh("experiment", "show", "cups.toml", "--json", cwd=cups))
        assert json.loads(result["payload"])["mechanism"] == "unary:Unary"
        store = ("--store", "sqlite:///s.sqlite")
        simulated = ("--population", "normal:30:12", "--devices", "2000", "--seed", "1")
        fresh("simulate", "cups.toml", *simulated, "--days", "2", "--to", store[1], cwd=cups)
        status = json.loads(fresh("status", "--json", *store, cwd=cups))["experiments"][0]
        estimated = json.loads(fresh("estimate", "cups", "--json", *store, cwd=cups))
        assert estimated["reports"] == status["reports"] > 1000
        assert "sound" in fresh("store", "check", "sqlite:///s.sqlite", cwd=cups)
        assert "1.0986" in fresh("epsilon", "cups.toml", "--risk", "0.3", cwd=cups)
        (cups / "halved_post.py").write_text("def half(estimates): return estimates.frequencies / 2")
        command = ("estimate", "cups", "--post", "halved_post:half", "--json", *store)
        processed = json.loads(fresh(*command, cwd=cups))
        assert "halved_post:half" in json.dumps(processed)

    @pytest.mark.parametrize(
        ("reading", "word", "parameters", "shown"),
        [
            (
                {"type": "text", "slots": 32},
                "hcms:HadamardSketch",
                {"hashes": 4, "width": 16},
                ("any text, hashed into 32 slots", "hcms, 4 hash functions of 16 cells"),
            ),
            (
                {"type": "letters"},
                "sfp:FragmentPuzzle",
                {"alphabet": "abc", "length": 4, "hashes": 4, "width": 16, "weights": [1, 1, 2]},
                ("letters, 256 values", "sfp, words of 4 letters, 4 hash functions of 16 cells"),
            ),
        ],
        ids=["hcms", "sfp"],
    )
    def test_file_sets_sketch_parameters(self, tmp_path: Path, fresh: Run, reading, word, parameters, shown):
        for path in EXAMPLES.glob("*.py"):
            shutil.copy(path, tmp_path)
        start, end = CUPS.index('type = "number"'), CUPS.index("epsilon")
        fields = reading | {"mechanism": word} | parameters
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
        (tmp_path / "words.toml").write_text(CUPS[:start] + lines + CUPS[end:])
        result = json.loads(fresh("experiment", "show", "words.toml", "--json", cwd=tmp_path))
        published = json.loads(result["payload"])
        assert {name: published[name] for name in fields} == fields
        people = " ".join(fresh("experiment", "show", "words.toml", cwd=tmp_path).split())
        assert all(words in people for words in shown)
        store = ("--store", "sqlite:///s.sqlite")
        fresh("experiment", "add", "words.toml", "--open", *store, cwd=tmp_path)
        fresh("status", *store, cwd=tmp_path)
        missing = CUPS[:start] + lines.replace("width = 16", "width = 6") + CUPS[end:]
        (tmp_path / "words.toml").write_text(missing)
        assert "width must be a power of 2" in fresh(
            "experiment", "show", "words.toml", cwd=tmp_path, expect=1
        )

    def test_missing_module_is_not_a_damaged_store(
        self, cups: Path, fresh: Run, tmp_path_factory: pytest.TempPathFactory
    ):
        store = f"sqlite:///{cups}/s.sqlite"
        fresh("experiment", "add", "cups.toml", "--open", "--store", store, cwd=cups)
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        for arguments in (("status",), ("status", "--json"), ("experiment", "list")):
            message = fresh(*arguments, "--store", store, cwd=elsewhere, expect=1)
            assert (
                "cannot be read here: mechanism unary:Unary: cannot find module unary; run hushmote in"
                in message
            )
        message = fresh("experiment", "show", str(cups / "cups.toml"), cwd=elsewhere, expect=1)
        assert "cannot find module unary" in message

    def test_served_reports_are_counted_and_estimated(self, cups: Path, monkeypatch: pytest.MonkeyPatch):
        hushmote("experiment", "add", "cups.toml", "--open", "--fleet", "bar", cwd=cups)
        result = json.loads(hushmote("experiment", "show", "cups.toml", "--json", cwd=cups))
        payload = result["payload"].encode()
        monkeypatch.setattr(wire, "FOLDERS", [str(cups)])
        parse_experiment(payload)
        with EmbeddedBroker() as broker:
            command = [sys.executable, "-P", "-m", "hushmote", "serve"]
            command += ["--broker", f"mqtt://{broker.host}:{broker.port}", "--batch", "0.2s"]
            with subprocess.Popen(
                command, cwd=cups, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as server:
                assert server.stdout is not None
                assert server.stdout.readline().strip() == READY
                fleet = SimulatedFleet("bar", [payload], size=300, rng=np.random.default_rng())
                with Gateways(broker.host, broker.port) as gateways:
                    gateways.deliver(fleet, fleet.make_reports({"cups": [25.0] * 300}))
                until(lambda: report_count(cups) == 300, "300 reports counted")
                server.terminate()
                log = server.communicate(timeout=WAIT_S)[1]
        assert "stopped: 300 reports accepted; rejected: none" in log
        estimated = json.loads(hushmote("estimate", "cups", "--json", cwd=cups))
        assert estimated["reports"] == 300
