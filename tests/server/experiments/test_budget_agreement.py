"""Board and server agree on the reports that a budget allows under each theorem."""

import ast
import json
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from enumeration import POLICY, MemoryStorage
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import fails
from running_aggregator import HANGS_S
from runtimes_here import runtimes_here
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client, ExperimentRefused, provision
from hushmote.server.accounting import MICRO, THEOREMS, History, choose
from hushmote.server.experiments.definition import parse
from hushmote.server.experiments.reading import DefinitionError
from hushmote.server.store import Store, VersionRefused

SCRIPT = Path(__file__).parents[3] / "firmware_tests" / "test_budget.py"
TREE = ast.parse(SCRIPT.read_text("utf-8")).body
LITERALS: dict[str, Any] = {
    node.targets[0].id: ast.literal_eval(node.value)
    for node in TREE
    if isinstance(node, ast.Assign)
    and isinstance(node.targets[0], ast.Name)
    and node.targets[0].id in ("PAYLOAD", "CASES", "VERSIONS")
}
RUNTIMES = runtimes_here()


def toml(budget: str, epsilon: str = "0.5") -> str:
    return (
        'name = "door"\npurpose = "p"\nowner = "o"\nexpires = 2099-12-31\n'
        f'type = "bool"\nmechanism = "rr"\nepsilon = {epsilon}\n[budget]\n{budget}\n'
    )


def server_payload(budget: str, epsilon: int) -> bytes:
    return parse(toml(budget, f"{Decimal(epsilon) / MICRO:f}")).payload()


def theorem_of(budget: str):
    fields = dict(line.split(" = ") for line in budget.splitlines())
    total = float(fields["epsilon"]) if "epsilon" in fields else None
    return choose(fields["theorem"].strip('"'), total, float(fields.get("delta", 0)))


def new_board(payload: bytes) -> Any:
    storage = MemoryStorage()
    provision(storage, consent=True)
    policy = {**POLICY, "rules": ("sum", "squares", "count", "unlimited"), "experiments": ("door",)}
    client: Any = Client({**policy, "sum": (1 << 48) - 1, "epsilon": 16_000_000}, storage, device_id="b")
    client.enroll(payload)
    return client


def exhaust(client: Any) -> int:
    made = 0
    while (report := client.report("door", made % 2 == 0)) is not None:
        client.sent(report)
        made += 1
    return made


# --- The board's own test cases match the server ---------------------------------------------


def ldp_report(epsilon: int):
    return next(iter(History.of([epsilon]).runs))[0]


class TestBoardCases:
    def test_match_the_server_for_every_theorem(self):
        names = set()
        for budget, epsilon, fields, reports in LITERALS["CASES"]:
            assert server_payload(budget, epsilon).decode() == LITERALS["PAYLOAD"] % (epsilon, fields)
            theorem = theorem_of(budget)
            names.add(theorem.name)
            target = re.search(r"reports = (\d+)", budget)
            assert reports == (int(target[1]) if target else theorem.most_reports(epsilon))
        assert names == set(THEOREMS), "CASES in firmware_tests/test_budget.py has a case for each theorem"

    def test_versions_match_the_server_and_end_with_the_theorem(self):
        for budget, fields, versions in LITERALS["VERSIONS"]:
            theorem, history = theorem_of(budget), History()
            for epsilon, calls, reports in versions:
                assert server_payload(budget, epsilon).decode() == LITERALS["PAYLOAD"] % (epsilon, fields)
                for _ in range(reports):
                    history = history.then(ldp_report(epsilon))
                assert theorem.allowed(history)
                assert theorem.allowed(history.then(ldp_report(epsilon))) == (reports == calls)

    @pytest.mark.micropython
    @pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: r.name)
    def test_pass_on_every_runtime(self, runtime, tmp_path):
        for path in (SCRIPT, SCRIPT.with_name("on_device.py"), Path(ldp_client.__file__)):
            shutil.copy(path, tmp_path)
        command = [*runtime.argv, SCRIPT.name]
        run = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_S, check=False
        )
        verdict = re.search(r"^VERDICT passed=(\d+) failed=(\d+)", run.stdout, re.MULTILINE)
        assert verdict, run.stdout + run.stderr
        assert (int(verdict[1]), int(verdict[2])) == (5, 0), run.stdout

    def test_include_a_real_micropython(self):
        if not {"unix32f", "mp32"} & {r.name for r in RUNTIMES}:
            pytest.skip("no MicroPython here: python firmware_tests/runtimes.py --install")


# --- Any budget ------------------------------------------------------------------------------------------


class TestReports:
    @pytest.mark.slow
    @given(
        name=st.sampled_from([n for n in THEOREMS if n != "none"]),
        total=st.integers(1, 12_000).map(lambda x: x / 1000),
        delta=st.sampled_from([1e-9, 1e-6, 0.001, 0.1, 0.5]),
        epsilon=st.integers(200_000, 4_000_000),
        reports=st.none() | st.integers(1, 30),
    )
    @example(name="basic", total=0.3, delta=0.1, epsilon=100_000, reports=3)
    @settings(max_examples=60)
    def test_are_exactly_what_the_theorem_allows(self, name, total, delta, epsilon, reports):
        delta = 0 if name == "basic" else delta
        budget = f'theorem = "{name}"\nepsilon = {total!r}\n' + (f"delta = {delta!r}\n" if delta else "")
        budget += f"reports = {reports}\n" if reports else ""
        most = choose(name, total, delta).most_reports(epsilon)
        assert most is not None
        if most < (reports or 1):
            with fails("composition allows", DefinitionError):
                server_payload(budget, epsilon)
            return
        client = new_board(server_payload(budget, epsilon))
        assert client.status()["experiments"]["door"]["left"] == (reports or most)
        if (reports or most) <= 40:
            assert exhaust(client) == (reports or most)

    def test_digits_beyond_a_double_are_rounded_down(self):
        fields = json.loads(server_payload('theorem = "basic"\nepsilon = 3.99999999999999999999', 1_000_000))
        assert fields["budget"] == {"rule": "sum", "cap": 3_999_999}


class TestVersions:
    def test_at_another_epsilon_agree_between_store_and_board(self, tmp_path):
        def versions(budget):
            return server_payload(budget, 500_000), server_payload(budget, 250_000)

        with Store(f"sqlite:///{tmp_path / 's.sqlite'}") as store:
            for fleet, budget in (("a", 'theorem = "basic"\nepsilon = 8'), ("b", ZCDP)):
                store.add_fleet(fleet, keyed=False)
                first, second = versions(budget)
                store.add_experiment(fleet, first)
                client = new_board(first)
                client.sent(client.report("door", True))
                assert store.add_experiment(fleet, second).cap == client.enroll(second).cap
                assert exhaust(client) == (30 if fleet == "a" else 25)
            store.add_fleet("c", keyed=False)
            first = server_payload(ZCDP.replace("zcdp", "optimal"), 500_000)
            second = first.replace(b"500000", b"250000")
            store.add_experiment("c", first)
            client = new_board(first)
            client.sent(client.report("door", True))
            with fails(r"its epsilon must remain 0\.5", VersionRefused):
                store.add_experiment("c", second)
            with pytest.raises(ExperimentRefused, match="its epsilon was pinned as 500000"):
                client.enroll(second)


ZCDP = 'theorem = "zcdp"\nepsilon = 8\ndelta = 1e-6'


# --- Contradictions --------------------------------------------------------------------------------------


class TestErrors:
    @pytest.mark.parametrize(
        ("budget", "text"),
        [
            (f'{ZCDP}\nrule = "sum"', "rule and cap follow from the theorem"),
            (f"{ZCDP}\ncap = 4", "rule and cap follow from the theorem"),
            ("", "write theorem and epsilon .*, or rule and cap"),
            ("epsilon = 8\ndelta = 1e-6", "need a theorem: add one"),
            ('rule = "sum"\ncap = 4\nreports = 4', "need a theorem: add one"),
            ('theorem = "basic"', "epsilon is missing: give the total of all reports under basic"),
            (
                'theorem = "basic"\nepsilon = 8\ndelta = 1e-6',
                "basic composition needs no delta: omit it",
            ),
            ('theorem = "zcdp"\nepsilon = 8', "zcdp composition needs a delta above 0"),
            ('theorem = "optimal"\nepsilon = 8', "optimal composition needs a delta above 0"),
            (
                'theorem = "basic"\nepsilon = 0',
                "epsilon, the total of all reports, must be a positive number",
            ),
            (
                'theorem = "basic"\nepsilon = -1',
                "epsilon, the total of all reports, must be a positive number",
            ),
            ('theorem = "basic"\nepsilon = inf', "budget.epsilon must be a number, not Infinity"),
            ('theorem = "zcdp"\nepsilon = 8\ndelta = 1', "delta must be at least 0 and below 1, not 1"),
            (
                'theorem = "zcdp"\nepsilon = 8\ndelta = -1e-6',
                "delta must be at least 0 and below 1, not -1e-06",
            ),
            ('theorem = "basic"\nepsilon = 8\nreports = 0', "reports must be a whole number from 1"),
            (
                'theorem = "basic"\nepsilon = 8\nreports = 2.5',
                "budget.reports must be a whole number, not 2.5",
            ),
            (
                f"{ZCDP}\nreports = 8",
                "allows 7 reports of ε = 0.5 within .*: for 8 reports, ε is at most 0.476",
            ),
            (
                'theorem = "basic"\nepsilon = 0.4',
                "allows no report of ε = 0.5 within 0.4: lower the report's",
            ),
            ('theorem = "none"\nepsilon = 8', "none does not accept a total or a delta"),
            ('theorem = "none"\nreports = 8', "none does not count reports"),
            ('theorem = "laplace"\nepsilon = 8', "unknown theorem laplace; choose from basic"),
            ('theorem = "nowhere:Class"\nepsilon = 8', "unknown theorem nowhere:Class"),
        ],
    )
    def test_contradictory_budget_is_one_line(self, budget, text):
        with fails(text, DefinitionError):
            parse(toml(budget)).payload()


# --- Output ---------------------------------------------------------------------------------------


class TestGuarantee:
    @pytest.mark.parametrize(
        ("budget", "kind", "epsilon", "delta", "words"),
        [
            ('theorem = "basic"\nepsilon = 8', "ε-LDP", 8, 0, "8-LDP: whatever an observer sees"),
            (ZCDP, "(ε, δ)-LDP", 8, 1e-6, "(8, 1e-06)-LDP: 8-LDP except with probability"),
            ('theorem = "none"', "no bound", None, 0, "Nothing bounds the total loss"),
            ('rule = "sum"\ncap = 4', "ε-LDP", 4, 0, "4-LDP"),
            ('rule = "count"\ncap = 60', "ε-LDP", 30, 0, "30-LDP, and ("),
            ('rule = "squares"\ncap = 1.819413', "(ε, δ)-LDP", 8, 1e-6, "1e-06)-LDP"),
        ],
        ids=["basic", "zcdp", "none", "sum", "count", "squares"],
    )
    def test_is_shown_in_words_and_numbers(self, budget, kind, epsilon, delta, words, tmp_path):
        (tmp_path / "door.toml").write_text(toml(budget), encoding="utf-8")
        shown = CliRunner().invoke(app, ["experiment", "show", str(tmp_path / "door.toml")]).output
        assert words in re.sub(r"\s+", " ", shown)
        fields = json.loads(
            CliRunner().invoke(app, ["experiment", "show", str(tmp_path / "door.toml"), "--json"]).output
        )["guarantee"]
        assert fields["kind"].startswith(kind)
        if epsilon is None:
            assert fields["epsilon"] is None
        else:
            assert fields["epsilon"] == pytest.approx(epsilon, abs=1e-4)
            assert fields["epsilon"] >= epsilon - 1e-5
        assert fields["delta"] == delta

    def test_of_a_bare_rule_is_never_overstated(self):
        for cap in ("0.3", "1.819413", "1.819414", "40"):
            result = parse(toml(f'rule = "squares"\ncap = {cap}')).guarantee()
            assert choose("zcdp", result.epsilon, result.delta).cap(1) >= int(Decimal(cap) * MICRO**2)
