"""The Plan view's answers compared with the command's, and the view in a real Chromium."""

import datetime
import json
import math
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accessibility import barriers
from babel import Locale
from browser import paged
from hypothesis import given, settings
from hypothesis import strategies as st
from selenium.webdriver.common.keys import Keys
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.planning.devices import PlanError
from hushmote.planning.experiment_file import ExperimentInfo, FileRefused
from hushmote.server.errors import HushmoteError
from hushmote.server.store.store import Store
from hushmote.server.words.epsilon import belief
from hushmote.web.in_locale import in_locale
from hushmote.web.plan import quantity
from hushmote.web.plan.answer import SolvedPlan, solve
from hushmote.web.plan.entries import START, plan_request
from hushmote.web.reader import Reader

INFO = ExperimentInfo("room", "Is it warm; isn't it?", "me@example.org", datetime.date(2026, 1, 1))
SMALL = {"domain": 8.0}
SETTINGS = {
    "error of ranges": SMALL,
    "devices of a quantile": {
        "answer": "devices",
        "domain": 8,
        "kind": "quantile",
        "quantile": 90.0,
        "error": 1.5,
    },
    "devices of a mean": {"answer": "devices", "domain": 32, "kind": "mean", "error": 1.5},
    "epsilon of one value": {"answer": "epsilon", "kind": "frequency", "low": -30.5, "high": 34.25},
    "values": {"answer": "domain", "kind": "frequency", "error": 1.3, "unit": ""},
    "logarithmic bins": SMALL | {"scale": "log", "low": 1.0, "high": 1000.0, "kind": "quantile"},
    "labels": {"form": "labels", "labels": "hot, it's ok, cold", "answer": "devices"},
    "yes or no": {"form": "yes_no", "answer": "epsilon", "devices": 3_000.0},
    "a lifetime": {
        "form": "yes_no",
        "lasting": True,
        "answer": "devices",
        "call": "90min",
        "horizon": "26 weeks",
    },
    "a lifetime of values": {
        "answer": "domain",
        "kind": "frequency",
        "error": 3.0,
        "lasting": True,
        "lifetime": 1.5,
        "epsilon": 0.7,
    },
}


def answer_to(changes: dict[str, Any], before_each: Callable[[], object] = object) -> SolvedPlan:
    entries = START | changes
    return solve(plan_request(entries), entries["answer"], before_each)


def without_words(file: str) -> list[str]:
    return [line for line in file.splitlines() if not line.startswith(("purpose = ", "owner = "))]


def run(line: str):
    command, *arguments = shlex.split(line)
    assert command == "hushmote"
    return CliRunner().invoke(app, arguments)


LIFETIME = {"answer": "devices", "lasting": True}


class TestLifetime:
    @pytest.mark.slow
    def test_device_count_reaches_target_error(self):
        answer = answer_to(LIFETIME)
        assert answer.plan_answer.error <= 0.02
        assert "±2 points is met with at least" in answer.plan_answer.sentences[1]
        assert answer.plan_answer.sentences[0].startswith(
            f"Use {answer.solved:,} devices. Let a device make "
        )
        assert (answer.plan_answer.plan.devices, answer.plan_answer.not_met) == (answer.solved, "")
        fewer = answer_to(LIFETIME | {"answer": "error", "devices": answer.solved * 0.99 // 1})
        assert fewer.plan_answer.error > 0.02
        assert fewer.solved == pytest.approx(100 * fewer.plan_answer.error, rel=0.01)

    @pytest.mark.slow
    def test_missed_target_is_reported(self):
        answer = answer_to(LIFETIME | {"answer": "epsilon"})
        assert answer.plan_answer.not_met.startswith(
            "±2 points is not met by 30 days alone; that would take "
        )
        assert answer.plan_answer.sentences[1].endswith(answer.plan_answer.not_met)


class TestAnswer:
    @pytest.mark.slow
    @pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
    def test_shown_command_gives_same_answer_and_file(self, setting, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        answer = answer_to(setting)
        days = {datetime.datetime.now(datetime.UTC).date()}
        result = run(f"{answer.plan_answer.command(INFO.name)} --json")
        days.add(datetime.datetime.now(datetime.UTC).date())  # midnight may have passed in the meantime
        assert result.exit_code == 0, result.output
        written = (tmp_path / "room.toml").read_text()
        files = [answer.plan_answer.file(replace(INFO, today=day)) for day in days]
        assert without_words(written) in map(without_words, files)
        assert run("hushmote experiment show room.toml").exit_code == 0
        output = json.loads(result.output)
        assert output["answer"] == list(answer.plan_answer.lines)
        histograms = output["histograms"] if setting.get("lasting") else [output["histogram"]]
        expected = [w.histogram.epsilon for w in answer.plan_answer.windows] or [
            answer.plan_answer.histograms["all of it"].epsilon
        ]
        assert [h["epsilon"] for h in histograms][: len(expected)] == expected

    def test_field_and_sentence_show_same_error(self):
        answer = answer_to(SMALL)
        assert f"±{answer.solved:g} points, 95 times in 100" in answer.plan_answer.lines[0]
        assert answer.solved == pytest.approx(100 * answer.plan_answer.error, rel=0.01)

    @pytest.mark.slow
    @pytest.mark.parametrize("answer", ["devices", "error"])
    @pytest.mark.parametrize("lasting", [False, True])
    def test_fixed_limit_needs_fewer_devices(self, answer, lasting):
        ranges = answer_to({"answer": answer, "lasting": lasting})
        error = 2.0 if answer == "devices" else 100 * ranges.plan_answer.error
        yes_no = answer_to({"form": "yes_no", "answer": "devices", "error": error, "lasting": lasting})
        assert yes_no.solved < ranges.plan_answer.plan.devices
        assert (
            f"Asked as a yes-or-no question, it needs only {yes_no.solved:,} devices."
            in ranges.plan_answer.fixed_limit
        )
        assert yes_no.plan_answer.fixed_limit == ""

    @pytest.mark.parametrize("setting", [SMALL, LIFETIME | {"domain": 8}], ids=["once", "lifetime"])
    def test_curve_falls_and_passes_through_plan(self, setting):
        """For a lifetime, the curve is the longest window's."""
        answer = answer_to(setting)
        devices, errors = zip(*answer.curve, strict=True)
        assert errors[len(errors) // 2] == pytest.approx(100 * answer.plan_answer.error)
        assert devices[len(devices) // 2] == pytest.approx(answer.plan_answer.plan.devices)
        assert sorted(errors, reverse=True) == list(errors)

    def test_names_both_epsilons_and_their_adversaries(self):
        facts = dict(answer_to(SMALL).facts)
        assert facts["ε of a report"] == "ε = 2, against everyone, including the broker."
        assert "not against the broker" in facts["ε of the histogram"]
        assert "seen once" in facts["ε of the histogram"]


TYPED = [
    "20k", "100,000", "1e6", "1.5M", "2", "2.5", "−3", "-3", "+3", ".5", "5%", "±3", "+/-3", "± 3 points",
    "3 points", "20.000", "1,5", "0,123", "1,00", "1_000", "inf", "NaN", "0x10", "1e400", "1e30", "x", "±",
    "%", "", "٣", "1 000", "1\u202f000\u202f000.5", "1'000", "1,000 000", "10^6", "2·10^5", "2.5 * 10^-3",
    "1e−3",
]  # fmt: skip


def is_nan(number: float | None) -> bool:
    return number is not None and math.isnan(number)


class TestTypedNumbers:
    @pytest.mark.parametrize(
        ("is_whole", "is_percent"),
        [(False, False), (True, False), (False, True)],
        ids=["number", "whole number", "percent"],
    )
    def test_browser_agrees_with_server(self, browser, is_whole, is_percent):
        script = Path(quantity.__file__).with_suffix(".js").read_text()
        in_browser = browser.script(
            "const [script, texts, whole, percent] = arguments;"
            "return import('data:text/javascript;charset=utf-8,' + encodeURIComponent(script))"
            ".then(module => texts.map(text => module.typedNumber(text, whole, percent)))",
            script,
            TYPED,
            is_whole,
            is_percent,
        )
        results = [quantity.number(text, is_whole=is_whole, is_percent=is_percent) for text in TYPED]
        expected = [None if x is None or not math.isfinite(x) else x for x in results]
        assert dict(zip(TYPED, in_browser, strict=True)) == dict(zip(TYPED, expected, strict=True))

    @pytest.mark.parametrize("text", ["20k", "20,000", "2e4", " 20000 "])
    def test_whole_number(self, text):
        assert quantity.number(text, is_whole=True) == 20_000

    @pytest.mark.parametrize("text", ["20.000", "2.5", "5%", "x"])
    def test_other_text_is_refused_as_whole_number(self, text):
        assert is_nan(quantity.number(text, is_whole=True))

    def test_percent_is_accepted_only_in_percent_fields(self):
        assert quantity.number("±3", is_percent=True) == quantity.number("3%", is_percent=True) == 3
        assert is_nan(quantity.number("3%"))


numbers = st.none() | st.floats() | st.sampled_from([0.0, -1.0, 1e30, 1e300, 2.0, 100.0])


class TestFields:
    @pytest.mark.parametrize(
        ("fields", "field", "text"),
        [
            ({"devices": None}, "devices", "whole number of devices"),
            ({"devices": 1e30}, "devices", "whole number of devices"),
            ({"devices": 1e13}, "devices", "devices must be from 2 to 1099511627776, not 10000000000000"),
            ({"devices": 2.5}, "devices", "whole number"),
            ({"devices": float("nan")}, "devices", "whole number"),
            ({"epsilon": 1e30}, "epsilon", "ε must be from 0.001 to 16, not 1e+30"),
            ({"epsilon": float("inf")}, "epsilon", "write a number"),
            ({"answer": "devices", "error": 0.0}, "error", "above 0 and up to 30"),
            ({"domain": 1e9}, "domain", "a domain must have from 2 to 16777216 values"),
            ({"low": math.nan}, "low", "write a number, such as -10"),
            ({"scale": "log"}, "low", "above 0, not 0"),
            ({"low": 40.0}, "high", "write a number above the lowest reading, 40"),
            ({"form": "labels", "labels": "a,,b"}, "values", "distinct and not empty"),
            ({"form": "labels", "labels": "a,other"}, "values", "the label other is always added"),
            ({"form": "yes_no", "answer": "domain"}, "domain", "can be computed only for a number"),
            ({"kind": "quantile", "quantile": 100.0}, "quantile", "between 0 and 100"),
            ({"lasting": True, "lifetime": None}, "lifetime", "from 0.001 to 1000"),
            ({"lasting": True, "horizon": "soon"}, "horizon", "a duration must be like 10min"),
            ({"lasting": True, "call": "0s"}, "call", "above 0"),
        ],
        ids=[
            "no devices",
            "1e30 devices",
            "too many devices",
            "half a device",
            "NaN devices",
            "large epsilon",
            "infinite epsilon",
            "no error",
            "large domain",
            "low not a number",
            "low of a logarithmic scale",
            "low above high",
            "empty label",
            "reserved label",
            "domain of yes or no",
            "quantile",
            "no lifetime",
            "horizon",
            "call",
        ],
    )
    def test_invalid_value_gives_one_line(self, fields, field, text):
        with pytest.raises(PlanError) as caught:
            answer_to(SMALL | fields)
        assert caught.value.field == field
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.slow
    @settings(max_examples=80)
    @given(
        st.fixed_dictionaries(
            {
                "answer": st.sampled_from(["devices", "epsilon", "domain", "error"]),
                "devices": numbers,
                "epsilon": numbers,
                "error": numbers,
                "form": st.sampled_from(["labels", "yes_no"]),
                "labels": st.text(max_size=20),
                "lifetime": numbers,
                "horizon": st.text(max_size=10),
                "call": st.text(max_size=10),
                "lasting": st.booleans(),
            }
        )
    )
    def test_any_input_gives_answer_or_one_line(self, setting):
        error = None
        try:
            answer_to(setting).plan_answer.command(INFO.name)
        except HushmoteError as e:
            error = str(e)
        assert error is None or "\n" not in error


QUANTILE = SETTINGS["devices of a quantile"]
LASTING = {"form": "yes_no", "lasting": True}
# The view's fields, one of them with another value, that value as an option, and whether it is accepted.
LIMITS: list[tuple[dict[str, Any], str, Any, str, bool]] = [
    (SMALL, "devices", 1.0, "--devices=1", False),
    (SMALL, "devices", 2.0**40 + 1, f"--devices={2**40 + 1}", False),
    (SMALL, "epsilon", 0.0009, "--epsilon=0.0009", False),
    (SMALL, "epsilon", 0.001, "--epsilon=0.001", True),
    (SMALL, "epsilon", 16.0, "--epsilon=16", True),
    (SMALL, "epsilon", 16.001, "--epsilon=16.001", False),
    (SMALL, "domain", 1.0, "--values=1", False),
    (SMALL, "domain", 2.0, "--values=2", True),
    (SMALL, "domain", 2.0**24 + 1, f"--values={2**24 + 1}", False),
    (SMALL, "high", 0.0, "--high=0", False),
    (QUANTILE, "quantile", 0.0, "--quantile=0", False),
    (QUANTILE, "quantile", 100.0, "--quantile=1", False),
    (QUANTILE, "error", 0.0, "--error=0", False),
    (QUANTILE, "error", 30.0, "--error=0.3", True),
    (QUANTILE, "error", 30.1, "--error=0.301", False),
    (LASTING, "lifetime", 0.0009, "--lifetime=0.0009", False),
    (LASTING, "lifetime", 1000.0, "--lifetime=1000", True),
    (LASTING, "lifetime", 1000.1, "--lifetime=1000.1", False),
    (LASTING, "epsilon", 0.0009, "--limit=0.0009", False),
    (LASTING, "epsilon", 16.001, "--limit=16.001", False),
    (LASTING, "horizon", "soon", "--horizon=soon", False),
    (LASTING, "horizon", "0 days", "--horizon=0 days", False),
    (LASTING, "call", "0min", "--call=0min", False),
    ({"form": "labels"}, "labels", "a", "--values=a", True),
    ({"form": "labels"}, "labels", "a,,b", "--values=a,,b", False),
    ({"form": "labels"}, "labels", "a,a", "--values=a,a", False),
]


class TestLimits:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("setting", "field", "value", "option", "is_accepted"),
        LIMITS,
        ids=[f"{field} {value}" for _, field, value, _, _ in LIMITS],
    )
    def test_are_the_commands(self, setting, field, value, option, is_accepted, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        line = shlex.split(answer_to(setting).plan_answer.command(INFO.name))
        line[line.index(option.partition("=")[0]) + 1] = option.partition("=")[2]
        assert (run(shlex.join(line)).exit_code == 0) is is_accepted
        if is_accepted:
            answer_to(setting | {field: value})
        else:
            with pytest.raises(PlanError):
                answer_to(setting | {field: value})


class TestFile:
    @pytest.mark.parametrize(
        ("setting", "changes", "field"),
        [
            (SMALL, {"name": "A room"}, "name"),
            (SMALL, {"owner": ""}, "owner"),
            (SMALL, {"purpose": "a\0b"}, "purpose"),
            (SMALL | {"unit": "x" * 21}, {}, "unit"),
            (SMALL | {"low": -1e16}, {}, "low"),
            ({"form": "labels", "labels": "x" * 1200 + ",b"}, {}, ""),
        ],
        ids=["name", "owner", "purpose", "unit", "low", "labels"],
    )
    def test_refusal_names_field(self, setting, changes, field):
        with pytest.raises(FileRefused) as caught:
            answer_to(setting).plan_answer.file(replace(INFO, **changes))
        assert caught.value.field == field
        assert "\n" not in caught.value.reason

    def test_number_needs_its_range(self):
        with pytest.raises(PlanError, match="requires its range"):
            answer_to(SMALL | {"low": None}).plan_answer.file(INFO)


class TestSearch:
    def test_ends_when_superseded(self):
        class Superseded(Exception):
            pass

        calls = []

        def before_each() -> None:
            calls.append(1)
            if len(calls) == 3:
                raise Superseded

        with pytest.raises(Superseded):
            answer_to({"answer": "epsilon", "domain": 8}, before_each)
        assert len(calls) == 3


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('plan') / 'store.sqlite'}"
    Store(url).close()
    with paged(url) as page:
        yield page


def complete_answer(browser) -> str:
    """Wait until the answer is complete, and return it."""
    box = browser.find(".plan-answer")
    return browser.until(
        lambda: box.text if "95 times" in box.text and "Calculating" not in box.text else "", "no answer"
    )


def type_number(browser, name: str, text: str) -> None:
    field = browser.find(f"#quantity-{name}")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text)


class TestView:
    def test_sliders_work_by_keyboard(self, page, browser):
        browser.open(f"{page}/plan")
        assert "20,000 devices" in complete_answer(browser)
        browser.find("input[type=range][aria-label='Devices']").send_keys(Keys.ARROW_RIGHT)
        browser.says("from each of 21,000 devices")
        browser.find("[aria-label='ε of one report'] input[type=range]").send_keys(Keys.ARROW_LEFT)
        browser.says(in_locale(belief(1.95), Reader(Locale("en", "US"))))
        browser.find("[aria-label='Calculate: Devices']").send_keys(Keys.SPACE)
        browser.until(lambda: "Use one report" not in browser.text, "the answer is still the error")
        error = browser.find("#quantity-error").get_attribute("value")
        assert f"±{float(error):g} points, 95 times in 100" in complete_answer(browser)
        devices = browser.find("#quantity-devices")
        assert devices.get_attribute("readonly")
        assert devices.accessible_name == "Devices calculated"
        note = browser.find(f"#{devices.get_attribute('aria-describedby')}")
        assert note.get_property("textContent").startswith("Calculated from the other three.")
        assert "calculated" not in browser.find("#quantity-error").accessible_name
        solved = in_locale(f"{int(devices.get_property('value')):,} devices", Reader(Locale("en", "US")))
        assert browser.find(".plan-solved").text.split("\n") == ["Answer", solved]
        assert barriers(browser) == []
        browser.resize(360, dark=True)
        browser.until(lambda: browser.overflow() <= 0, "it is too wide")
        assert barriers(browser) == []
        for y in (0, 600, 100_000):  # the answer is visible at any scroll position
            browser.script("window.scrollTo(0, arguments[0])", y)
            top, bottom = browser.script(
                "const r = document.querySelector('.plan-answer').getBoundingClientRect();"
                "return [r.top, r.bottom - window.innerHeight]"
            )
            assert top >= 0 >= bottom, y
            assert browser.find(".plan-answer h2").is_displayed()
        assert not browser.errors()

    def test_fields_take_numbers_as_typed(self, page, browser):
        browser.open(f"{page}/plan")
        complete_answer(browser)
        for text, words in (("30k", "30,000"), ("100,000", "100,000"), ("1e6", "1,000,000")):
            type_number(browser, "devices", text)
            browser.says(f"from each of {words} devices")
        slider = browser.find("input[type=range][aria-label='Devices']")
        assert slider.get_attribute("aria-valuetext") == "1,000,000 devices"
        type_number(browser, "devices", "20.000")
        browser.says("write a whole number of devices, such as 20,000 or 20k")
        browser.find("[aria-label='Calculate: Devices']").click()
        browser.until(lambda: not browser.find("#quantity-error").get_attribute("readonly"))
        for text in ("±3", "4%", "5 points"):
            type_number(browser, "error", text)
            browser.says(f"then known to ±{text.strip('± %points')} points")
        assert not browser.errors()

    def test_logarithmic_bins_reach_the_file(self, page, browser):
        browser.open(f"{page}/plan")
        complete_answer(browser)
        browser.find_by_name("wider for higher readings (logarithmic)", "[role=radio]").click()
        browser.says("above 0, not 0")
        low = browser.find("[aria-label='Lowest reading']")
        low.send_keys(Keys.CONTROL, "a")
        low.send_keys("0.1")
        complete_answer(browser)
        browser.find("[aria-label='Owner, who is responsible for it']").send_keys("me@example.org")
        browser.find("[aria-label='Purpose, which participants read']").send_keys("Bright?")
        browser.says('scale = "log"')
        browser.says("--scale log")
        assert not browser.errors()

    def test_mechanism_and_glossary_are_behind_details(self, page, browser):
        browser.open(f"{page}/plan")
        complete_answer(browser)
        assert "How devices answer" not in browser.text
        assert "A small number that a promise allows" not in browser.text
        browser.find(".plan-facts a").click()  # a term's explanation
        browser.says("A small number that a promise allows")
        browser.says("How devices answer")
        assert barriers(browser) == []

    def test_impossible_plans_give_one_line(self, page, browser):
        browser.open(f"{page}/plan")
        complete_answer(browser)
        for text, line in (
            ("1e30", "whole number of devices"),
            ("-1", "from 2 to"),
            ("e", "whole number of devices"),
        ):
            type_number(browser, "devices", text)
            browser.until(lambda line=line: line in browser.find("#quantity-devices-note").text, line)
        browser.find("[aria-label='Calculate: ε of one report']").click()
        browser.until(
            lambda: not browser.find("#quantity-error").get_attribute("readonly"),
            "the field is still read-only",
        )
        type_number(browser, "devices", "30")
        type_number(browser, "error", "0.1")
        browser.says("No epsilon up to 16 gives ±0.001")
        assert "whole number" not in browser.find("#quantity-devices-note").text
        assert "Traceback" not in browser.text
        assert not browser.errors()

    def test_downloads_valid_file(self, page, browser):
        browser.open(f"{page}/plan")
        complete_answer(browser)
        browser.find_by_name("one of several labels", "[role=radio]").click()
        labels = browser.find("[aria-label='Labels, separated by commas']")
        browser.until(labels.is_displayed, "the labels field is hidden")
        labels.send_keys(Keys.CONTROL, "a")
        labels.send_keys("hot, <b>cold</b>")
        browser.find("[aria-label='Owner, who is responsible for it']").send_keys("me@example.org")
        browser.says("To get the file, write who owns the experiment")
        browser.find("[aria-label='Purpose, which participants read']").send_keys("Warm?")
        name = browser.find("[aria-label='Name of the experiment']")
        name.send_keys(Keys.CONTROL, "a")
        name.send_keys("A B")
        browser.says("write 1 to 32 characters from a-z, 0-9, _ and -")
        name.send_keys(Keys.CONTROL, "a")
        name.send_keys("from_page")
        browser.says('name = "from_page"')
        browser.says('labels = ["hot", "<b>cold</b>"]')
        browser.find_by_name("Download the file").click()
        path: Path = browser.folder / "from_page.toml"
        browser.until(path.exists, "no file")
        assert tomllib.loads(path.read_text())["labels"] == ["hot", "<b>cold</b>"]
        assert run(f"hushmote experiment show {path}").exit_code == 0
        browser.resize(360)
        browser.until(lambda: browser.overflow() <= 0, "it is too wide")
