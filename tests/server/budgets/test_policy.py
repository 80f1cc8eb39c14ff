"""Firmware policies from (ε, δ): caps, guarantees, files and the command."""

import ast
import json
import math
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from enumeration import MemoryStorage
from experiments import experiment_json
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.device import ldp_client, main
from hushmote.device.ldp_client import Client, ExperimentRefused, provision
from hushmote.server.accounting import MICRO, Filter, History, ZcdpFilter
from hushmote.server.budgets import policy
from hushmote.server.budgets.policy import Policy, PolicyError
from hushmote.server.errors import HushmoteError

NAMES = ("a", "b", "c")


def run(*arguments: str):
    return CliRunner().invoke(app, ["budget", "policy", *arguments])


def boot(policy: Policy, storage: Any = None) -> Any:
    if storage is None:
        storage = MemoryStorage()
        provision(storage, consent=True)
    values = policy.to_dict()
    return Client(values, storage, device_id="board-1")


def exact_delta(epsilons: list[int], total: float) -> float:
    """Return δ for the worst binary reports at these ε, over all sums of ±ε."""
    losses: dict[int, float] = {0: 1.0}
    for epsilon in epsilons:
        truth = 1 / (1 + math.exp(-epsilon / MICRO))
        after: dict[int, float] = defaultdict(float)
        for loss, chance in losses.items():
            after[loss + epsilon] += chance * truth
            after[loss - epsilon] += chance * (1 - truth)
        losses = after
    return math.fsum(p * -math.expm1(min(0.0, total - x / MICRO)) for x, p in losses.items())


# --- No mixture exceeds both caps -------------------------------------------------------------------------

EPSILONS = (50_000, 100_000, 200_000, 350_000, 500_000, 1_000_000, 2_000_000)

# A published version: name, rule, micro-nats, reports allowed by its cap, and reports requested.
VERSION = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(["sum", "squares", "count", "unlimited"]),
    st.sampled_from(EPSILONS),
    st.integers(1, 60),
    st.integers(1, 25),
)


def check_guarantee(path: list[int], total: float, delta: float) -> None:
    """Check that the stated (ε, δ) holds for a path's reports, by the sum or by the zCDP filter."""
    if not path:
        return
    if sum(path) > round(total * MICRO):
        assert ZcdpFilter(total, delta).spent(path).epsilon <= total
    assert exact_delta(path, total) <= delta + 1e-12


# --- Written and read ------------------------------------------------------------------------------------


DEFAULTS = {"groups": (), "ask": "once", "consent_from": "board", "log": None}


class TestCommand:
    def test_names_the_groups_that_reports_may_contain(self):
        arguments = ("--epsilon", "8", "--experiments", "room_temp")
        output = run(*arguments, "--groups", "firmware, model").output
        assert '"groups": ("firmware", "model"),' in output
        words = " ".join(output.replace("#", "").split())
        assert "Reports may contain the board's firmware, model, which is not protected." in words
        assert json.loads(run(*arguments, "--json").output)["policy"]["groups"] == []

    def test_prints_a_valid_policy_and_its_guarantee(self, tmp_path):
        output = run("--epsilon", "8", "--delta", "1e-6", "--experiments", "room_temp, door").output
        assert "(8, 1e-06)-LDP" in output.replace("\n# ", " ")
        assert "2 of ε = 4, 8 of ε = 1" in output.replace("\n# ", " ")
        assert max(map(len, output.splitlines())) <= 100
        printed = ast.literal_eval(output[output.index("{") :])
        assert printed | DEFAULTS == asdict(policy.policy_for(8, 1e-6, ("room_temp", "door")))
        Client(printed, MemoryStorage(), device_id="b")
        (tmp_path / "p.py").write_text(output, encoding="utf-8")
        assert asdict(policy.read(tmp_path / "p.py")) == printed | DEFAULTS
        fields = json.loads(
            run("--epsilon", "8", "--delta", "1e-6", "--experiments", "room_temp,door", "--json").output
        )
        (tmp_path / "p.json").write_text(json.dumps(fields["policy"]))
        assert asdict(policy.read(tmp_path / "p.json")) == printed | DEFAULTS
        assert (fields["guarantee"]["kind"], fields["reports"]["0.1"]) == ("(ε, δ)-LDP", 181)

    def test_writes_the_firmware_file_and_keeps_the_rest(self, tmp_path):
        path = tmp_path / "main.py"
        before = Path(main.__file__).read_text("utf-8")
        path.write_text(before, encoding="utf-8")
        arguments = ("--epsilon", "2", "--experiments", "room_temp,door", "--max-epsilon", "0.5")
        output = run(*arguments, "--write", str(path)).output
        assert "Add a function to its READINGS for: door" in output
        after = path.read_text("utf-8")
        assert policy.read(path) == policy.policy_for(2, 0, ("room_temp", "door"), 500_000)
        assert "both together give (8, 1e-6)" not in after
        other_lines = {line for line in before.splitlines() if "POLICY" not in line}
        assert len(other_lines - set(after.splitlines())) <= 6  # the comment and the values
        compile(after, "main.py", "exec")

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("--epsilon", "0", "--experiments", "a"), "the total must be a positive number"),
            (
                ("--epsilon", "8", "--delta", "1", "--experiments", "a"),
                "delta must be at least 0 and below 1",
            ),
            (("--epsilon", "0.0005", "--experiments", "a"), "allows no reports"),
            (("--epsilon", "8", "--experiments", ","), "name the experiments"),
            (
                ("--epsilon", "8", "--experiments", "a", "--max-epsilon", "0"),
                "must be a positive multiple of one millionth",
            ),
            (("--epsilon", "8", "--experiments", "a", "--max-epsilon", "17"), "from 0.001 to 16, not 17"),
            (("--epsilon", "8", "--experiments", "a", "--max-epsilon", "9"), "no report of ε = 9"),
            (("--epsilon", "8", "--experiments", "a", "--write", "/nowhere/main.py"), "cannot read"),
        ],
    )
    def test_invalid_arguments_are_one_line(self, arguments, text):
        error = run(*arguments).exception
        assert isinstance(error, HushmoteError)
        assert text in str(error)
        assert "\n" not in str(error)


class TestFile:
    def test_round_trips_consent_settings(self, tmp_path):
        expected = replace(policy.policy_for(8, 1e-6, ("room_temp",)), ask="each", consent_from="network")
        (tmp_path / "p.py").write_text(policy.policy_statement(expected), encoding="utf-8")
        assert policy.read(tmp_path / "p.py") == expected
        with pytest.raises(policy.PolicyError, match=r"^policy: ask must be once or each$"):
            replace(expected, ask="never")
        with pytest.raises(policy.PolicyError, match=r"^policy: consent_from must be board or network$"):
            replace(expected, consent_from="server")

    LOG = policy.PolicyLog("example.org/questions", tuple(c * 128 for c in "abc"), 2)

    def test_round_trips_log(self, tmp_path):
        expected = replace(policy.policy_for(8, 1e-6, ("room_temp",)), log=self.LOG)
        text = policy.policy_statement(expected)
        (tmp_path / "p.py").write_text(text, encoding="utf-8")
        (tmp_path / "p.json").write_text(json.dumps(asdict(expected)))
        assert policy.read(tmp_path / "p.py") == policy.read(tmp_path / "p.json") == expected
        values = ast.literal_eval(text.partition("=")[2].strip())
        assert Client(values, MemoryStorage(), "b", None, bytes(64), "home").log is not None
        assert policy.notes(expected) == [
            "Each experiment is in the log example.org/questions: asked of every device alike, checked by "
            f"{'b' * 16} and {'c' * 16}."
        ]

    @pytest.mark.parametrize(
        ("log", "text"),
        [
            ({"origin": "a b"}, "policy: log's origin must be"),
            ({"keys": ["aa" * 64] * 2}, "policy: log's keys must be 2 to 8 of 128 hex digits"),
            (
                {"need": 3},
                "policy: log's need must be more than half of the witnesses, at least 2 of 2",
            ),
            ({"needs": 1}, "policy: log must have origin, keys .* and need, and no more"),
        ],
    )
    def test_rejects_wrong_log_in_one_line(self, tmp_path, log, text):
        fields = asdict(policy.policy_for(8, 1e-6, ("room_temp",))) | {"log": asdict(self.LOG) | log}
        (tmp_path / "p.json").write_text(json.dumps(fields))
        with pytest.raises(policy.PolicyError, match=f"^[^\n]*{text}[^\n]*$"):
            policy.read(tmp_path / "p.json")

    @pytest.mark.parametrize("log", ["null", "{}", '""', "[]", "0"])
    def test_rejects_a_log_that_is_none(self, tmp_path, log):
        fields = json.dumps(asdict(policy.policy_for(8, 1e-6, ("room_temp",))))
        (tmp_path / "p.json").write_text(fields.replace('"log": null', f'"log": {log}'))
        with pytest.raises(policy.PolicyError, match=r"policy: log must have origin, keys .* and need"):
            policy.read(tmp_path / "p.json")

    def test_example_firmware_matches_its_comment(self):
        device_policy = policy.read(Path(main.__file__))
        assert asdict(device_policy) == main.POLICY | DEFAULTS
        best = policy.policy_for(8, 1e-6, device_policy.experiments)
        assert (device_policy.sum, device_policy.epsilon, device_policy.rules) == (
            best.sum,
            best.epsilon,
            best.rules,
        )
        assert best.squares - 10**9 < device_policy.squares <= best.squares

    @pytest.mark.parametrize(
        ("name", "content", "text"),
        [
            ("m.py", "x = 1\n", "exactly one POLICY = {...}, not 0"),
            ("m.py", "POLICY = {}\nPOLICY = {}\n", "not 2"),
            ("m.py", "POLICY = (", "the file is not valid Python"),
            ("m.py", "POLICY = make()\n", "must contain only plain values for sum, squares"),
            ("m.py", "POLICY = {'sum': 1}\n", "must contain only plain values for sum, squares"),
            ("p.json", "[1]", "must contain only plain values for sum, squares"),
            ("p.json", "{", "must contain only plain values for sum, squares"),
        ],
    )
    def test_without_a_policy_is_one_line(self, name, content, text, tmp_path):
        (tmp_path / name).write_text(content)
        with pytest.raises(PolicyError) as caught:
            policy.read(tmp_path / name)
        assert text in str(caught.value)
        assert str(caught.value).startswith(str(tmp_path / name))

    @pytest.mark.parametrize(
        ("name", "content", "has_pin", "text", "number"),
        [
            ("m.py", "BUTTON = 5\n", True, "", 5),
            ("m.py", "BUTTON = 0\n", True, "", None),
            ("m.py", "BUTTON = True\n", True, "", None),
            ("m.py", "BUTTON = 1e999\n", True, "", None),
            ("m.py", "BUTTON = None\n", False, "", None),
            ("m.py", "BUTTON = 'ID'\n", True, "ID", None),
            ("m.py", "LED = 5\n", None, "", None),
            ("m.py", "BUTTON = Pin(5)\n", None, "", None),
            ("m.py", "BUTTON = 'ID'\nBUTTON = None\n", None, "", None),
            ("p.json", '{"policy": {}, "BUTTON": "ID"}', True, "ID", None),
            ("p.json", '{"policy": {}, "BUTTON": 7.5}', True, "", 7.5),
            ("p.json", '{"policy": {}}', None, "", None),
        ],
    )
    def test_constant_is_known_if_assigned_once(self, name, content, has_pin, text, number, tmp_path):
        (tmp_path / name).write_text(content)
        assert policy.has_pin(tmp_path / name, "BUTTON") is has_pin
        assert policy.text_constant(tmp_path / name, "BUTTON") == text
        assert policy.number_constant(tmp_path / name, "BUTTON") == number


class TestCaps:
    @pytest.mark.slow
    @given(
        total=st.integers(5, 100).map(lambda x: x / 10),
        delta=st.sampled_from([0.0, 1e-9, 1e-6, 0.01, 0.3]),
        max_epsilon=st.sampled_from(EPSILONS),
        versions=st.lists(VERSION, min_size=1, max_size=8),
    )
    @settings(max_examples=60)
    def test_no_mixture_of_experiments_exceeds_both(self, total, delta, max_epsilon, versions):
        allowed = min(max_epsilon, round(total * MICRO))
        device_policy = policy.policy_for(
            total, delta, NAMES, allowed, ("sum", "squares", "count", "unlimited")
        )
        client, path = boot(device_policy), []
        filter = Filter(total, delta)
        # Finally, publish an experiment that tries to spend the rest in small reports.
        for name, rule, epsilon, holds, calls in [*versions, ("c", "unlimited", EPSILONS[0], 1, 400)]:
            cap = holds * {"sum": epsilon, "squares": epsilon * epsilon, "count": 1}.get(rule, 0)
            budget = {"rule": rule} | ({"cap": cap} if cap else {})
            try:
                client.enroll(experiment_json(name=name, epsilon=epsilon, budget=budget))
            except ExperimentRefused:
                continue
            for _ in range(calls):
                fits = filter.allows(epsilon)
                left = client.status()["experiments"][name]["left"]
                assert left <= device_policy.remaining_reports(
                    epsilon, filter.history.sum, filter.history.squares
                )
                assert left <= filter.remaining_reports(epsilon)
                report = client.report(name, True)
                assert (report is not None) == (left > 0)
                if rule == "unlimited":
                    assert (report is not None) == fits, "the policy alone decides, and as the filter does"
                if report is None:
                    break
                client.sent(report)
                filter.spend(epsilon)  # raises if the report exceeds both caps
                path.append(epsilon)
            client = boot(device_policy, client._ledger._storage)
        status = client.status()
        assert (status["sum"], status["squares"]) == (sum(path), sum(x * x for x in path))
        assert status["sum"] <= device_policy.sum or status["squares"] <= device_policy.squares
        check_guarantee(path, total, delta)

    def test_examples_last_exactly_as_stated(self):
        device_policy = policy.policy_for(8, 1e-6, ("a",))
        for epsilon, reports in ((4_000_000, 2), (1_000_000, 8), (500_000, 16), (100_000, 181)):
            assert (
                policy.examples(device_policy)[epsilon]
                == reports
                == Filter(8, 1e-6).remaining_reports(epsilon)
            )
            client = boot(device_policy)
            client.enroll(experiment_json(name="a", epsilon=epsilon, budget={"rule": "sum", "cap": 1 << 50}))
            count = 0
            while (report := client.report("a", True)) is not None:
                client.sent(report)
                count += 1
            assert count == reports
            check_guarantee([epsilon] * count, 8, 1e-6)

    def test_pure_policy_counts_only_the_sum(self):
        device_policy = policy.policy_for(1, 0, ("a",))
        assert (device_policy.sum, device_policy.squares, device_policy.epsilon) == (
            1_000_000,
            0,
            1_000_000,
        )
        assert device_policy.remaining_reports(100_000) == 10
        assert exact_delta([100_000] * 10, 1) == 0

    def test_remaining_reports_deduct_past_costs(self):
        device_policy = policy.policy_for(8, 1e-6, ("a",))
        spent = History.equal(500_000, 3)
        assert device_policy.remaining_reports(500_000, spent.sum, spent.squares) == 13
        assert device_policy.remaining_reports(ldp_client.EPSILON_MAX) == 0


class TestPolicy:
    @pytest.mark.parametrize(
        ("field", "bad", "text"),
        [
            *(
                ("sum", bad, "sum must be an integer from 0 to 281474976710655")
                for bad in (-1, 1.0, "8", None, 2**48, True)
            ),
            *(("squares", bad, "squares must be an integer from 0") for bad in (-1, 0.5, None, 2**64)),
            *(
                ("epsilon", bad, "epsilon must be an integer from 1000 to 16000000")
                for bad in (0, 999, 16_000_001, 1e6)
            ),
            *(("rules", bad, "rules must be a tuple of str") for bad in ("sum", None, 5)),
            *(
                ("rules", bad, "rules must be chosen from unlimited, sum, squares, count")
                for bad in (("total",), (["sum"],))
            ),
            *(("experiments", bad, "experiments must be a tuple of str") for bad in ("bath", None, 5)),
            *(("experiments", bad, "1 to 32 of a-z") for bad in (("A",), ("",), (5,), ("a/b",))),
            *(
                ("experiments", bad, "at most 64 names, each only once")
                for bad in (("a", "a"), tuple(f"n{i}" for i in range(65)))
            ),
        ],
    )
    def test_rejects_values_beyond_any_board(self, field, bad, text):
        good: dict[str, Any] = {
            "sum": 1,
            "squares": 0,
            "epsilon": 1000,
            "rules": ("sum",),
            "experiments": ("a",),
        }
        with pytest.raises(PolicyError) as caught:
            Policy(**{**good, field: bad})
        assert str(caught.value).startswith("policy: ")
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)


class TestGuarantee:
    @given(st.integers(1, 40_000), st.sampled_from((0.0, 1e-9, 1e-6, 1e-3)))
    def test_is_the_least_total_whose_caps_cover_the_policy(self, thousandths, delta):
        device_policy = policy.policy_for(thousandths / 1000, delta, NAMES)
        assert policy.guarantee_of(device_policy, delta or 1e-6) == policy.guarantee(
            thousandths / 1000, delta
        )

    @given(st.integers(0, 2**40), st.integers(1, 2**50))
    def test_covers_everything_the_policy_allows(self, total, squares):
        device_policy = Policy(total, squares, 1000, ("sum",), NAMES)
        promised = policy.guarantee_of(device_policy)
        caps = Filter(promised.epsilon, promised.delta)
        assert (caps.sum_cap >= total, caps.squares_cap >= squares) == (True, True)
        least = Filter(promised.epsilon - 0.001, promised.delta) if promised.epsilon > 0.001 else None
        assert least is None or least.sum_cap < total or least.squares_cap < squares

    def test_exists_for_an_empty_policy(self):
        assert policy.guarantee_of(Policy(0, 0, 1000, (), ())).epsilon == 1e-6
