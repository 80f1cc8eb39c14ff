"""A mechanism of one's own from the analyst's file to the answer, with nothing loaded beforehand."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, hushmote
from own_channels import EXAMPLES
from running import WAIT_S, until

from hushmote.device import ldp_client
from hushmote.server.service.process import READY
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
    """A folder with an experiment that takes the documents' example, and the two files of that."""
    for path in EXAMPLES.glob("unary*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "cups.toml").write_text(CUPS)
    return tmp_path


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The command line as in a process of its own: no mechanism but the shipped ones is loaded, or found."""
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


def test_every_command_that_reads_an_experiment_takes_it(cups: Path, fresh: Run):
    shown = json.loads(fresh("experiment", "show", "cups.toml", "--json", cwd=cups))
    assert json.loads(shown["payload"])["mechanism"] == "unary:Unary"
    store = ("--store", "sqlite:///s.sqlite")
    simulated = ("--population", "normal:30:12", "--devices", "2000", "--seed", "1")
    fresh("simulate", "cups.toml", *simulated, "--days", "2", "--to", store[1], cwd=cups)
    counted = json.loads(fresh("status", "--json", *store, cwd=cups))["experiments"][0]
    found = json.loads(fresh("estimate", "cups", "--json", *store, cwd=cups))
    assert found["reports"] == counted["reports"] > 1000
    assert "sound" in fresh("store", "check", "sqlite:///s.sqlite", cwd=cups)
    assert "1.0986" in fresh("epsilon", "cups.toml", "--risk", "0.3", cwd=cups)
    (cups / "halved_post.py").write_text("def half(estimates): return estimates.frequencies / 2")
    asked = ("estimate", "cups", "--post", "halved_post:half", "--json", *store)
    processed = json.loads(fresh(*asked, cwd=cups))
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
def test_a_file_asks_for_a_sketch_with_its_parameters(
    tmp_path: Path, fresh: Run, reading, word, parameters, shown
):
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, tmp_path)
    start, end = CUPS.index('type = "number"'), CUPS.index("epsilon")
    fields = reading | {"mechanism": word} | parameters
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
    (tmp_path / "words.toml").write_text(CUPS[:start] + lines + CUPS[end:])
    said = json.loads(fresh("experiment", "show", "words.toml", "--json", cwd=tmp_path))
    published = json.loads(said["payload"])
    assert {name: published[name] for name in fields} == fields
    people = " ".join(fresh("experiment", "show", "words.toml", cwd=tmp_path).split())
    assert all(words in people for words in shown)
    store = ("--store", "sqlite:///s.sqlite")
    fresh("experiment", "add", "words.toml", "--open", *store, cwd=tmp_path)
    fresh("status", *store, cwd=tmp_path)
    missing = CUPS[:start] + lines.replace("width = 16", "width = 6") + CUPS[end:]
    (tmp_path / "words.toml").write_text(missing)
    assert "width must be a power of 2" in fresh("experiment", "show", "words.toml", cwd=tmp_path, expect=1)


def test_elsewhere_it_is_a_line_and_not_a_damaged_store(
    cups: Path, fresh: Run, tmp_path_factory: pytest.TempPathFactory
):
    store = f"sqlite:///{cups}/s.sqlite"
    fresh("experiment", "add", "cups.toml", "--open", "--store", store, cwd=cups)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for arguments in (("status", "--store", store), ("store", "check", store)):
        said = fresh(*arguments, cwd=elsewhere, expect=1)
        assert "cannot be read here: mechanism unary:Unary: there is no module unary: run hushmote in" in said
    said = fresh("experiment", "show", str(cups / "cups.toml"), cwd=elsewhere, expect=1)
    assert "there is no module unary" in said


def counted(folder: Path) -> int:
    return json.loads(hushmote("status", "--json", cwd=folder))["experiments"][0]["reports"]


def test_served_reports_are_counted_and_estimated(cups: Path, monkeypatch: pytest.MonkeyPatch):
    hushmote("experiment", "add", "cups.toml", "--open", "--fleet", "bar", cwd=cups)
    shown = json.loads(hushmote("experiment", "show", "cups.toml", "--json", cwd=cups))
    payload = shown["payload"].encode()
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
                gateways.deliver(fleet, fleet.round({"cups": [25.0] * 300}))
            until(lambda: counted(cups) == 300, "300 reports counted")
            server.terminate()
            log = server.communicate(timeout=WAIT_S)[1]
    assert "stopped: 300 reports accepted; rejected: none" in log
    found = json.loads(hushmote("estimate", "cups", "--json", cwd=cups))
    assert found["reports"] == 300
