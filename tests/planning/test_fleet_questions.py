"""A fleet's questions: their common rate, and what a policy cannot pay for."""

import json
from pathlib import Path

import pytest
from command_line import Run, hushmote, runner

from hushmote.planning import library
from hushmote.server.store import Store

OWN = """
name = "{name}"
purpose = "Mine?"
owner = "me"
expires = 9999-12-31
type = "bool"
epsilon = {epsilon}
[budget]
rule = "{rule}"
cap = {cap}
"""
POLICY = (
    'POLICY = {{"sum": {sum}, "squares": {squares}, "epsilon": {epsilon}, "rules": {rules}, '
    '"experiments": ("crashed", "update", "mine", "yours")}}\n'
)
ADD = ("--owner", "ops@example.org")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    own(tmp_path)
    return runner("experiment", tmp_path, monkeypatch)


def own(
    folder: Path, name: str = "mine", epsilon: float = 2, rule: str = "sum", cap: float = 8, file: str = ""
) -> None:
    text = OWN.format(name=name, epsilon=epsilon, rule=rule, cap=cap)
    (folder / f"{file or name}.toml").write_text(text)


def policy(
    folder: Path,
    sum: int = 8_000_000,
    squares: int = 0,
    epsilon: int = 4_000_000,
    rules: str = '("sum",)',
) -> tuple[str, str]:
    (folder / "main.py").write_text(POLICY.format(sum=sum, squares=squares, epsilon=epsilon, rules=rules))
    return "--policy", "main.py"


def current(folder: Path, fleet: str = "home") -> dict[str, int]:
    """Return the current `every` of a fleet's experiments."""
    with Store(f"sqlite:///{folder}/hushmote.sqlite", create=False) as store:
        versions = [v for v in store.experiments(fleet) if v.current]
    return {v.experiment.name: v.experiment.every for v in versions}


class TestAddition:
    def test_first_question_has_the_whole_budget(self, run: Run, tmp_path: Path):
        output = " ".join(run("add", "std:crashed", *ADD, "--open").split())
        assert "crashed has a device's ε of 8: at most 4 reports in 5 years." in output
        assert "with 20,000 devices: crashed ±1.97." in output
        assert current(tmp_path) == {"crashed": library.question("crashed").every}

    def test_second_question_states_its_effect(self, run: Run, tmp_path: Path):
        run("add", "std:crashed", *ADD, "--open")
        output = " ".join(run("add", "std:update", *ADD, "--devices", "5,000").split())
        assert "2 standard questions share a device's ε of 8: at most 4 reports in 5 years." in output
        assert "with 5,000 devices: crashed ±5.56 (before: ±3.93), update ±15.7." in output
        assert "for crashed it was 14,400." in output
        rates = current(tmp_path)
        assert rates["crashed"] == rates["update"] == pytest.approx(2 * 14_400, rel=0.01)

    @pytest.mark.slow
    def test_twelve_questions_share_one_rate(self, run: Run, tmp_path: Path):
        run("add", "pack:release", *ADD, "--open")
        output = ""
        for name in ("pack:radio", "pack:power", "std:heap_low", "std:chip", "std:setup_step"):
            output = run("add", name, *ADD)
        assert "12 standard questions share a device's ε of 8" in " ".join(output.split())
        assert "crashed ±6.81" in output
        assert len(current(tmp_path)) == 12
        assert len(set(current(tmp_path).values())) == 1

    def test_adding_again_changes_nothing(self, run: Run, tmp_path: Path):
        run("add", "pack:power", *ADD, "--open")
        before = current(tmp_path)
        assert "unchanged" in run("add", "std:uptime", *ADD)
        assert current(tmp_path) == before

    def test_withdrawn_question_leaves_its_share(self, run: Run, tmp_path: Path):
        run("add", "pack:release", *ADD, "--open")
        run("withdraw", "update")
        run("withdraw", "days_behind")
        run("add", "std:crashed", *ADD)
        assert current(tmp_path) == {"crashed": 14_400}

    def test_own_experiment_keeps_its_budget(self, run: Run, tmp_path: Path):
        own(tmp_path, cap=4)
        run("add", "mine.toml", "--open")
        output = " ".join(run("add", "std:crashed", *ADD).split())
        assert "a device's ε of 4 after what is reserved for mine (ε = 4): at most 2 reports" in output
        assert current(tmp_path)["mine"] == 1

    def test_rhythm_sets_the_rate_and_the_last_day(self, run: Run, tmp_path: Path):
        run("add", "std:crashed", *ADD, "--open", "--call", "1d", "--horizon", "1y")
        assert 100 < current(tmp_path)["crashed"] < 200

    def test_json_has_the_plan(self, run: Run):
        run("add", "std:crashed", *ADD, "--open")
        result = json.loads(run("add", "std:chip", *ADD, "--json"))
        assert [each["name"] for each in result["added"]] == ["chip"]
        assert [each["name"] for each in result["adjusted"]] == ["crashed"]
        assert result["plan"]["every"] == result["added"][0]["every"] == result["adjusted"][0]["every"]

    def test_own_labels_and_names(self, run: Run, tmp_path: Path):
        run("add", "std:feature", *ADD, "--name", "dark_mode", "--open")
        run("add", "std:chip", *ADD, "--label", "a", "--label", "b")
        assert {*current(tmp_path)} == {"dark_mode", "chip"}
        assert current(tmp_path)["dark_mode"] > 14_400  # recognized in spite of its name


class TestRefusal:
    """Nothing is written if a policy does not pay for a question; the message says what would fit."""

    def refused(self, run: Run, folder: Path, *arguments: str) -> str:
        before = current(folder)
        message = run("add", *arguments, expect=1)
        assert current(folder) == before
        return message

    def test_nothing_left_for_a_question(self, run: Run, tmp_path: Path):
        run("add", "mine.toml", "--open")
        message = self.refused(run, tmp_path, "std:crashed", *ADD)
        assert (
            "a device may spend it on mine (ε = 8): withdraw one, lower its cap so that 2 is left" in message
        )
        assert "use a policy of Σε = 10" in message
        own(tmp_path, cap=6)
        run("add", "mine.toml")
        run("add", "std:crashed", *ADD)

    def test_unlimited_experiment_leaves_nothing(self, run: Run, tmp_path: Path):
        text = OWN.format(name="mine", epsilon=1, rule="unlimited", cap=0).replace("cap = 0", "")
        (tmp_path / "mine.toml").write_text(text)
        run("add", "mine.toml", "--open")
        assert "mine (no limit): withdraw one" in self.refused(run, tmp_path, "std:crashed", *ADD)

    def test_larger_policy_pays(self, run: Run, tmp_path: Path):
        run("add", "mine.toml", "--open")
        output = run("add", "std:crashed", *ADD, *policy(tmp_path, sum=12_000_000))
        assert "ε of 4 after what is reserved for mine (ε = 8)" in " ".join(output.split())

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"sum": 1_000_000, "epsilon": 4_000_000}, "pays for Σε = 1: lower the question's epsilon to 1"),
            ({"epsilon": 1_000_000}, "the policy allows 1: lower the question's epsilon to 1"),
            ({"rules": '("squares",)'}, 'budget rule "sum", but the policy accepts only squares'),
        ],
    )
    def test_policy_without_room(self, run: Run, tmp_path: Path, changes: dict, message: str):
        error = run(
            "add", "std:crashed", *ADD, "--fleet", "home", "--open", *policy(tmp_path, **changes), expect=1
        )
        assert message in error

    def test_policy_that_does_not_name_the_question(self, run: Run, tmp_path: Path):
        error = run("add", "std:chip", *ADD, "--open", *policy(tmp_path), expect=1)
        assert "the policy does not name chip" in error
        assert "--experiments crashed,update,mine,yours,chip" in error

    def test_own_experiment_above_the_policy(self, run: Run, tmp_path: Path):
        run("add", "mine.toml", "--open")
        own(tmp_path, "yours", cap=4)
        message = self.refused(run, tmp_path, "yours.toml", *policy(tmp_path))
        assert "a device may spend it on mine (ε = 8)" in message
        own(tmp_path, "mine", cap=6)
        run("add", "mine.toml")
        message = self.refused(run, tmp_path, "yours.toml", *policy(tmp_path))
        assert (
            "which allows 1 report of yours after mine (ε = 6), not 2: lower its cap to 1 report" in message
        )
        own(tmp_path, "yours", cap=2)
        run("add", "yours.toml", *policy(tmp_path))

    def test_squares_pay_for_many_small_reports(self, run: Run, tmp_path: Path):
        own(tmp_path, epsilon=0.1, rule="squares", cap=1.8)
        options = policy(tmp_path, squares=1_819_000_000_000, rules='("sum", "squares")')
        run("add", "mine.toml", "--open", *options)

    def test_own_experiment_must_leave_room_for_standard_ones(self, run: Run, tmp_path: Path):
        run("add", "std:crashed", *ADD, "--open")
        message = self.refused(run, tmp_path, "mine.toml", *policy(tmp_path))
        assert "would leave 0 for the standard questions (crashed)" in message
        assert "lower the cap of mine so that 2 is left" in message

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("std:crashed",), "needs --owner"),
            (("std:feature", *ADD), "needs --name"),
            (("pack:radio", *ADD, "--name", "x"), "one by one"),
            (("mine.toml", *ADD), "--owner needs std:NAME or pack:NAME"),
            (("std:nothing", *ADD), "the library has no question nothing"),
        ],
    )
    def test_options_that_do_not_fit(self, run: Run, arguments: tuple[str, ...], message: str):
        assert message in run("add", *arguments, "--open", expect=1)


class TestOwnExperiments:
    def test_says_what_it_leaves_for_standard_questions(self, run: Run, tmp_path: Path):
        run("add", "std:crashed", *ADD, "--open")
        own(tmp_path, cap=4)
        output = " ".join(run("add", "mine.toml").split())
        assert "It leaves ε = 4 of a device's 8 for the standard questions (crashed), instead of 8." in output

    def test_says_that_budgets_exceed_the_usual_policy(self, run: Run, tmp_path: Path):
        run("add", "mine.toml", "--open")
        own(tmp_path, "yours")
        output = " ".join(run("add", "yours.toml").split())
        assert "These budgets exceed a policy of Σε = 8, which pays only for" in output
        assert "come first: mine (ε = 8), yours (ε = 8)." in output

    def test_is_silent_if_both_fit(self, run: Run, tmp_path: Path):
        for name in ("mine", "yours"):
            own(tmp_path, name, cap=4)
            assert "policy" not in run("add", f"{name}.toml", "--open")


class TestElsewhere:
    def test_show_and_simulate_accept_a_question(self, tmp_path: Path):
        question = json.loads(hushmote("experiment", "show", "std:crashed", "--json", cwd=tmp_path))
        assert question["name"] == "crashed"
        output = hushmote("simulate", "std:crashed", "--devices", "500", "--seed", "1", cwd=tmp_path)
        assert "crashed" in output
        message = hushmote("experiment", "show", "pack:radio", cwd=tmp_path, expect=1)
        assert "use one of std:unreachable, std:signal, std:boot_time" in message

    def test_sign_asks_for_a_copy(self, tmp_path: Path):
        message = hushmote("experiment", "sign", "std:chip", cwd=tmp_path, expect=1)
        assert "hushmote questions chip > chip.toml" in message
