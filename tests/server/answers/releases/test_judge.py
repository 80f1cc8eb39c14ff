"""Verdicts on a release from prepared histograms, the plan that applies, and refusals."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json
from filled_store import write
from release_store import FIRST, NEW, OLD, add_release, at, crash_payload

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Selection
from hushmote.server.answers.releases.evidence import GroupDays
from hushmote.server.answers.releases.first_plan import PlanRequest
from hushmote.server.answers.releases.installed import read_installed
from hushmote.server.answers.releases.judge import judge, stored_plans
from hushmote.server.answers.releases.result import JudgedRelease
from hushmote.server.errors import UsageError
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.release.difference import ReleaseError
from hushmote.server.release.plan import PlanChanged, plan_from_json
from hushmote.server.release.verdict import Verdict
from hushmote.server.store.store import Description, Store
from hushmote.server.wire.experiments import reports_in_budget
from hushmote.simulator import vectorised

FAST, SLOW = [400] * 14, [20] * 14
EQUAL, WORSE = {NEW: 0.05, OLD: 0.05}, {NEW: 0.2, OLD: 0.05}


@pytest.fixture
def store(tmp_path: Path):
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as opened:
        yield opened


def verdict_on(
    store: Store,
    days: int = 14,
    new: str = NEW,
    against: tuple[str, ...] = (OLD,),
    installed=None,
    **settings,
) -> JudgedRelease:
    devices = None if installed is None else read_installed(installed)
    request = PlanRequest(new, against, **settings)
    return judge(Facts(store, at(days)), "home", request, store.add_release_plan, installed=devices)


def add_every_change(store: Store, new: int = 1000) -> None:
    """Add 19,000 old boards that change from every = 1 to 130 on days 4 and 5, and new ones from day 4."""
    add_release(store, {OLD: [19_000] * 3 + [9500]}, EQUAL)
    rollout = {NEW: [0] * 3 + [new] * 3, OLD: [0] * 3 + [73, 146, 146]}
    add_release(store, rollout, EQUAL, payload=crash_payload(every=[130, 1, 130]))


class TestVerdict:
    def test_stops_a_release_that_is_worse(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [1300] * 14}, WORSE)
        result = verdict_on(store)
        assert (result.verdict, result.exit_status) == (Verdict.STOP, 3)
        assert result.sentence().startswith("Stop: board_crash is worse on 2.4.0 than on 2.3.1, by 1")

    def test_lets_a_release_proceed(self, store: Store):
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL)
        result = verdict_on(store)
        assert (result.verdict, result.exit_status) == (Verdict.PROCEED, 0)
        sentence = "Proceed: board_crash is at most 2 points worse on 2.4.0 than on 2.3.1."
        assert result.sentence() == sentence

    def test_needs_more_reports(self, store: Store):
        add_release(store, {NEW: SLOW, OLD: [1300] * 14}, EQUAL)
        result = verdict_on(store)
        assert (result.verdict, result.exit_status) == (Verdict.NOT_YET, 4)
        assert "more reports of 2.4.0 are needed" in result.sentence()

    def test_without_margin_cannot_proceed(self, store: Store):
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL, worse="")
        result = verdict_on(store)
        assert result.verdict is Verdict.NOT_YET
        assert result.sentence() == "Not yet: 2.4.0 is not significantly worse than 2.3.1 so far."
        assert any("add worse_by" in note for note in result.notes())

    def test_direction_less_stops_a_fall(self, store: Store):
        add_release(
            store, {NEW: FAST, OLD: [1300] * 14}, {NEW: 0.6, OLD: 0.9}, '{"worse": "less", "worse_by": 0.02}'
        )
        assert verdict_on(store).verdict is Verdict.STOP

    def test_direction_more_accepts_a_fall(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [1300] * 14}, {NEW: 0.6, OLD: 0.9})
        assert verdict_on(store).verdict is Verdict.PROCEED

    def test_stop_names_all_worse_questions(self, store: Store):
        for name in ("board_crash", "wifi_lost"):
            add_release(store, {NEW: FAST, OLD: [1300] * 14}, WORSE, payload=crash_payload(name))
        sentence = verdict_on(store).sentence()
        assert "board_crash" in sentence
        assert "wifi_lost" in sentence

    def test_ignores_the_day_in_progress(self, store: Store):
        add_release(store, {NEW: [0] * 13 + [5000], OLD: [1300] * 14}, WORSE)
        assert verdict_on(store, 13).judged is None

    def test_compares_within_days(self, store: Store):
        # The shares of all versions rise while the rollout ramps up, so pooled totals would differ.
        add_release(store, {NEW: [50] * 7, OLD: [3000] * 7}, {NEW: 0.05, OLD: 0.05})
        later = FIRST + datetime.timedelta(7)
        add_release(store, {NEW: [1500] * 7, OLD: [1500] * 7}, {NEW: 0.4, OLD: 0.4}, first=later)
        result = verdict_on(store)
        assert result.judged is not None
        (question,) = result.judged.questions
        assert question.low < 0 < question.high
        assert abs(question.value or 0) < 0.03


class TestChanges:
    def test_another_question_does_not_inherit_the_plan(self, store: Store):
        """A version's file that asks about another label decides nothing about the planned one."""
        labels = {"type": "choice", "labels": ["ok", "crash", "hang"], "mechanism": "grr"}
        fields = {"name": "cause", "epsilon": 2_000_000, "group": "firmware", "groups": [OLD, NEW]}
        store.add_fleet("home", keyed=False)

        def add(asked: str, every: int) -> Experiment:
            payload = experiment_json(**fields, **labels, every=every)
            worse = '{"worse_by": 0.02}'
            return store.add_experiment("home", payload, description=Description(asked=asked, worse=worse))

        experiment, rng = add("crash", 1), np.random.default_rng(1)
        for index, (n, shares) in enumerate([(3000, [0.93, 0.02, 0.05, 0]), (1000, [0.85, 0.1, 0.05, 0])]):
            for day in range(10):
                codes = vectorised.histogram(experiment, rng.multinomial(n, shares), rng)
                window = (FIRST + datetime.timedelta(days=day)).isoformat()
                counts = {(window, code): int(k) for code, k in enumerate(codes)}
                write(store, "home", experiment, counts, group=index)
        assert verdict_on(store, 10).verdict is Verdict.STOP
        add("hang\ncrash", 2)
        assert verdict_on(store, 10).verdict is Verdict.STOP
        add("hang", 3)
        result = verdict_on(store, 10)
        assert result.verdict is Verdict.NOT_YET
        assert any("no longer asks" in note for note in result.notes())

    def test_does_not_proceed_without_the_planned_check_for_silence(self, store: Store):
        add_release(store, {NEW: [2000] * 14, OLD: [9000] * 14}, EQUAL)
        assert verdict_on(store, installed="10000/19000").is_silent
        assert verdict_on(store).verdict is Verdict.NOT_YET

    def test_does_not_proceed_without_a_slow_question(self, store: Store):
        """A question that could not be planned at the first look is much worse later."""
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL)
        slow = {NEW: [0] * 3 + [300] * 11, OLD: [20] * 2 + [300] * 12}
        add_release(store, slow, {NEW: 0.6, OLD: 0.05}, payload=crash_payload("wifi"))
        verdict_on(store, 2)
        result = verdict_on(store)
        assert result.verdict is Verdict.NOT_YET
        assert result.sentence() == "Not yet: wifi cannot be judged, so 2.4.0 cannot proceed."
        (note,) = [note for note in result.notes() if note.startswith("wifi ")]
        assert note.endswith("when the plan was stored; it has worse_by, so the release cannot proceed.")

    def test_stops_without_a_slow_question(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [1300] * 14}, WORSE)
        verdict_on(store, 2)
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL, payload=crash_payload("wifi"))
        assert verdict_on(store).verdict is Verdict.STOP

    def test_proceeds_without_a_question_that_has_no_margin(self, store: Store):
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL)
        verdict_on(store, 2)
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL, worse="", payload=crash_payload("wifi"))
        assert verdict_on(store).verdict is Verdict.PROCEED

    def test_proceeds_without_a_withdrawn_experiment(self, store: Store):
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL)
        verdict_on(store, 2)
        add_release(store, {}, EQUAL, payload=crash_payload("wifi"))
        assert verdict_on(store).verdict is Verdict.NOT_YET
        store.withdraw_experiment("home", "wifi")
        assert verdict_on(store).verdict is Verdict.PROCEED

    @pytest.mark.parametrize("margin", ['"worse_by": 0.02', '"worse": "more"'])
    def test_does_not_proceed_after_a_misspelling(self, store: Store, margin: str):
        """A file that names a question it does not ask drops a planned question."""
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL)
        wifi = crash_payload("wifi")
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL, worse=f"{{{margin}}}", payload=wifi)
        verdict_on(store, 2)
        add_release(store, {}, EQUAL, worse='{"worse": {"yess": "more"}}', payload=wifi)
        result = verdict_on(store)
        assert result.verdict is Verdict.NOT_YET
        assert result.blocking == ("wifi",)
        assert any(note.startswith("wifi is not judged: worse: yess") for note in result.notes())

    def test_does_not_proceed_with_a_margin_but_without_days(self, store: Store):
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL)
        add_release(store, {}, EQUAL, payload=crash_payload("ever", window="all"))
        assert verdict_on(store).verdict is Verdict.NOT_YET

    def test_an_experiment_without_reports_hides_no_silence(self, store: Store):
        add_release(store, {}, EQUAL, payload=crash_payload("a_withdrawn"))
        add_release(store, {NEW: [500] * 2 + [0] * 8, OLD: [9500] * 10}, EQUAL)
        assert verdict_on(store, 10, installed="10000/19500").is_silent


class TestFewReports:
    """Versions 1, 2 and 3 of which the last has few reports, so that 2 minus 1 would reveal those of 3."""

    @staticmethod
    def judged(store: Store, last: int, share: float = 0.05, **settings: Any) -> JudgedRelease:
        reports = {"1": [1000] * 5, "2": [12] * 5, "3": [0] * 4 + [last]}
        payload = crash_payload(groups=["1", "2", "3"])
        add_release(store, reports, {"1": 0.05, "2": share, "3": 0.05}, payload=payload)
        return verdict_on(store, 5, new="2", against=("1",), **settings)

    def test_show_no_difference(self, store: Store):
        result = self.judged(store, 20)
        facts = Facts(store, at(5))
        with pytest.raises(EstimateError):
            facts.selected(Selection("board_crash", "home", group="2")).estimate()
        _, (row,) = result.question_rows()
        assert row == ["board_crash", *["not shown"] * 2, "+2 points", "not shown", "not yet"]
        fields = result.to_dict()
        (question,) = fields["questions"]
        names = "value", "low", "high", "more_reports", "more_days", "fraction_of_plan"
        assert [question[name] for name in names] == [None] * 6
        (planned,) = fields["plan"]["questions"]
        assert (planned["variance"], planned["information"]) == (None, None)
        assert fields["rollout"]["reports"][-1]["reports"] == {"2": 12, "1": 1000}

    def test_note_says_why(self, store: Store):
        result = self.judged(store, 20)
        note = (
            "The differences of board_crash are not shown: 3 has fewer than 50 reports, so they could reveal "
            "its histogram."
        )
        assert note in result.notes()
        assert result.sentence() == "Not yet: 2 is not significantly worse than 1 so far."

    def test_keep_the_verdict(self, store: Store):
        result = self.judged(store, 20, 0.9, reports=60)
        assert result.verdict is Verdict.STOP
        assert result.sentence() == "Stop: board_crash is worse on 2 than on 1."
        assert "not shown" in str(result)

    @pytest.mark.parametrize("last", [0, 50])
    def test_do_not_matter_from_fifty_on(self, store: Store, last: int):
        result = self.judged(store, last)
        assert result.to_dict()["questions"][0]["value"] is not None
        assert not any("not shown" in note for note in result.notes())

    def test_show_the_difference_of_other_versions(self, store: Store):
        """The next smallest version is not compared, so the answers of the others reveal only a sum."""
        reports = {"1": [1000] * 5, "2": [300] * 5, "3": [12] * 5, "other": [4] * 5}
        payload = crash_payload(groups=["1", "2", "3"])
        add_release(store, reports, dict.fromkeys(reports, 0.05), payload=payload)
        result = verdict_on(store, 5, new="2", against=("1",))
        assert result.to_dict()["questions"][0]["value"] is not None


class TestMissingReadings:
    def test_compares_blocks_with_fifty_reports_on_each_side(self, store: Store):
        """A ratio of four reports a day is biased."""
        payload = crash_payload(mechanism="grr", missing=1)
        add_release(store, {NEW: [4] * 60, OLD: [80] * 60}, EQUAL, payload=payload)
        days = GroupDays.read(Facts(store, at(60)), "home", "firmware")
        questions = days.experiments["board_crash"].judged()
        (comparison,) = days.looks("board_crash", questions, NEW, [OLD])
        assert [look.day for look in comparison.looks()] == [12, 25, 38, 51]
        assert comparison.looks()[-1].reports == 4 * 52
        assert list(comparison.new.reports) == [4] * 60

    def test_compares_days_with_enough_reports(self, store: Store):
        payload = crash_payload(mechanism="grr", missing=1)
        add_release(store, {NEW: [50] * 5, OLD: [80] * 5}, EQUAL, payload=payload)
        result = verdict_on(store, 5)
        assert result.judged is not None
        assert result.judged.questions[0].value is not None


class TestMissingEvidence:
    def test_needs_fifty_reports_on_each_side(self, store: Store):
        add_release(store, {NEW: [3] * 4, OLD: [1300] * 4}, EQUAL)
        result = verdict_on(store, 4)
        assert result.verdict is Verdict.NOT_YET
        assert result.sentence() == (
            "Not yet: the first look needs 50 reports on each side; 2.4.0 has 12, and 2.3.1 has 5,200."
        )
        assert store.release_plan("home", "firmware", NEW) is None

    def test_two_reports_a_day_add_up_to_fifty(self, store: Store):
        add_release(store, {NEW: [2] * 26, OLD: [50] * 26}, EQUAL)
        for days, has_look in ((24, False), (25, True)):
            assert (verdict_on(store, days).judged is not None) == has_look

    def test_reports_of_one_version_only(self, store: Store):
        add_release(store, {NEW: FAST}, EQUAL)
        assert verdict_on(store).sentence().endswith("2.4.0 has 5,600, and 2.3.1 has 0.")

    def test_no_reports(self, store: Store):
        add_release(store, {}, EQUAL)
        result = verdict_on(store)
        assert result.verdict is Verdict.NOT_YET
        assert result.rollout_sentence() == ""

    def test_rejects_an_unknown_version(self, store: Store):
        add_release(store, {NEW: FAST}, EQUAL)
        with pytest.raises(
            UsageError, match=r"no open group of fleet home lists 2.5.0: add it to groups in the file"
        ):
            verdict_on(store, new="2.5.0")
        with pytest.raises(
            UsageError, match=r"group firmware does not list 2.2.0; it has 2.3.1, 2.4.0, other"
        ):
            verdict_on(store, against=("2.2.0",))
        with pytest.raises(UsageError, match="not with itself"):
            verdict_on(store, against=(NEW,))

    def test_asks_for_the_other_version(self, store: Store):
        add_release(store, {NEW: FAST}, EQUAL)
        with pytest.raises(
            UsageError, match=r"name the version to compare 2.4.0 with \(against\); firmware has 2.3.1"
        ):
            verdict_on(store, against=())

    def test_rejects_a_fleet_without_group(self, store: Store):
        add_release(store, {}, EQUAL, worse="", payload=crash_payload(group=None))
        with pytest.raises(UsageError, match="no experiment of fleet home has an open group"):
            verdict_on(store)

    def test_names_an_experiment_that_is_not_judged(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        add_release(store, {}, EQUAL, payload=crash_payload("ever", window="all"))
        notes = verdict_on(store).notes()
        assert 'ever is not judged, because its window is "all", not "day".' in notes


class TestPlan:
    def test_first_look_stores_the_plan(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [1300] * 14}, EQUAL)
        result = verdict_on(store, 3)
        text = store.release_plan("home", "firmware", NEW)
        assert text is not None
        assert plan_from_json(text) == result.plan
        assert stored_plans(Facts(store, at(3)), "home") == [result.plan]

    def test_later_look_uses_the_stored_plan(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [1300] * 14}, EQUAL)
        first = verdict_on(store, 3, reports=70)
        later = verdict_on(store, 14, against=())
        assert later.plan == first.plan
        assert later.judged is not None
        assert later.judged.questions[0].fraction > 5  # of the plan for 70 reports, not of a new one

    def test_changed_margin_leaves_the_plan(self, store: Store):
        add_release(store, {NEW: [2000] * 14, OLD: [2000] * 14}, EQUAL)
        assert verdict_on(store, 1).verdict is Verdict.NOT_YET
        add_release(store, {}, EQUAL, worse='{"worse_by": 0.0001}')
        assert verdict_on(store).verdict is Verdict.PROCEED

    def test_refuses_another_plan(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        verdict_on(store, days=14)
        changes: tuple[tuple[dict[str, Any], str], ...] = (
            (
                {"against": ("other",)},
                r"cannot change after its first look: against is 2.3.1, not other; omit it",
            ),
            ({"reports": 10}, "reports is not set, not 10"),
            ({"alpha": 0.1}, "alpha is 0.05, not 0.1"),
            ({"selection": "by region"}, "selection is at random, not by region"),
        )
        for settings, message in changes:
            with pytest.raises(PlanChanged, match=message):
                verdict_on(store, **settings)

    def test_repeats_the_same_request(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        settings: dict[str, Any] = {"reports": 1000, "alpha": 0.1, "selection": "by region"}
        assert verdict_on(store, **settings).plan == verdict_on(store, **settings).plan

    def test_order_of_the_versions_does_not_matter(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST, "other": FAST}, EQUAL | {"other": 0.05})
        first = verdict_on(store, against=("other", OLD, "other")).plan
        assert first is not None
        assert first.others == (OLD, "other")
        assert verdict_on(store, against=(OLD, "other")).plan == first

    def test_names_a_rollout_that_is_not_random(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        verdict_on(store, selection="by region")
        (note,) = [note for note in verdict_on(store).notes() if "at random" in note]
        assert note.endswith("(by region)")

    def test_later_experiment_is_not_in_the_plan(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        verdict_on(store)
        add_release(store, {NEW: FAST, OLD: FAST}, WORSE, payload=crash_payload("wifi_lost"))
        result = verdict_on(store)
        assert result.verdict is not Verdict.STOP
        assert any(note.startswith("wifi_lost is not judged") for note in result.notes())

    def test_plans_for_proceed_if_there_is_a_margin(self, store: Store):
        add_release(store, {NEW: [71] * 14, OLD: [1357] * 14}, EQUAL)
        result = verdict_on(store)
        assert result.judged is not None
        # 4,600 reports beside 19,000 others; here the ratio stays 1 to 19.
        assert 0.15 < result.judged.questions[0].fraction < 0.3

    def test_plans_for_the_given_reports(self, store: Store):
        add_release(store, {NEW: [71] * 14, OLD: [1357] * 14}, EQUAL)
        result = verdict_on(store, reports=994)
        assert result.judged is not None
        assert result.judged.questions[0].fraction == pytest.approx(1.0, abs=0.01)

    def test_plans_for_a_usual_stage_before_any_report(self, store: Store):
        add_release(store, {OLD: [1357] * 14}, EQUAL, worse="")
        early = verdict_on(store, 14, installed="1000/20000").plan
        assert early is not None
        add_release(store, {NEW: [71] * 14}, EQUAL, worse="")
        later = verdict_on(store, 14).plan
        assert later == early
        full = early.questions[0].fraction(994 * 18_998 / (994 + 18_998))
        assert full == pytest.approx(1.0, abs=0.02)

    def test_plans_with_the_every_of_the_reports(self, store: Store):
        """A version of the experiment from which no report has come yet does not change the plan."""
        add_release(store, {OLD: [1357] * 14}, EQUAL, worse="")
        add_release(store, {}, EQUAL, worse="", payload=crash_payload(every=[130, 1, 130]))
        plan = verdict_on(store, 14, installed="1000/20000").plan
        assert plan is not None
        full = plan.questions[0].fraction(994 * 18_998 / (994 + 18_998))
        assert full == pytest.approx(1.0, abs=0.02)

    def test_rejects_a_damaged_plan(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        store.add_release_plan("home", "firmware", NEW, "{}")
        with pytest.raises(ReleaseError, match="damaged"):
            verdict_on(store)


class TestSilence:
    def test_stops_if_reports_are_missing(self, store: Store):
        rollout = {NEW: [2] * 5, OLD: [145] * 5}
        add_release(store, rollout, EQUAL, payload=crash_payload(every=[130, 1, 130]))
        result = verdict_on(store, 5, installed={NEW: 1000, OLD: 19_000})
        assert result.is_silent
        assert result.exit_status == 3
        assert result.sentence().startswith(
            "Stop: boards with 2.4.0 are silent; 2 of about 992 reports arrived, so at least "
        )

    def test_stops_without_any_report(self, store: Store):
        add_release(store, {OLD: [145] * 5}, EQUAL, payload=crash_payload(every=[130, 1, 130]))
        assert verdict_on(store, 5, installed="1000/20000").is_silent

    def test_too_few_reports_are_no_evidence(self, store: Store):
        add_release(store, {OLD: [1300] * 5}, {OLD: 0.05})
        result = verdict_on(store, 5, installed="100/20000")
        assert not result.is_silent
        assert result.sentence().startswith(
            "Not yet: the first look needs 50 reports on each side; 2.4.0 has 0"
        )

    def test_accepts_the_expected_reports(self, store: Store):
        rollout = {NEW: [950] * 5, OLD: [145] * 5}
        add_release(store, rollout, EQUAL, payload=crash_payload(every=[130, 1, 130]))
        result = verdict_on(store, 5, installed={NEW: 1000, OLD: 19_000})
        assert not result.is_silent
        assert "Silent boards: none detected; 950 of about 992 reports arrived." in result.notes()

    def test_outage_is_no_silence(self, store: Store):
        rollout = {NEW: [950] * 4 + [95], OLD: [145] * 4 + [15]}
        add_release(store, rollout, EQUAL, payload=crash_payload(every=[130, 1, 130]))
        assert not verdict_on(store, 5, installed={NEW: 1000, OLD: 19_000}).is_silent

    def test_uses_the_days_of_a_history(self, store: Store):
        rollout = {NEW: [0, 90, 290, 490, 690], OLD: [145] * 5}
        add_release(store, rollout, EQUAL, payload=crash_payload(every=[130, 1, 130]))
        growing = {
            (FIRST + datetime.timedelta(day)).isoformat(): {NEW: 200 * day, OLD: 20_000 - 200 * day}
            for day in range(5)
        }
        assert not verdict_on(store, 5, installed=growing).is_silent

    def test_a_changed_every_is_no_silence(self, store: Store):
        add_every_change(store)
        for days in (4, 5, 6):
            assert not verdict_on(store, days, installed={NEW: 1000, OLD: 19_000}).is_silent
        by_day = {at(day).date().isoformat(): {NEW: 1000, OLD: 19_000} for day in range(2, 6)}
        assert not verdict_on(store, 6, installed=by_day).is_silent

    def test_finds_silence_after_a_changed_every(self, store: Store):
        add_every_change(store, new=20)
        assert verdict_on(store, 5, installed={NEW: 1000, OLD: 19_000}).is_silent

    def test_new_boards_may_change_every(self, store: Store):
        add_release(store, {NEW: [5000] * 2 + [2500], OLD: [15_000] * 5}, EQUAL)
        add_release(store, {NEW: [0, 0, 250, 500, 500]}, EQUAL, payload=crash_payload(every=[1, 10, 1]))
        by_day = {at(day).date().isoformat(): {NEW: 5000, OLD: 15_000} for day in range(-1, 5)}
        result = verdict_on(store, 5, installed=by_day)
        assert result.judged is not None
        assert result.judged.silence is not None
        assert result.judged.silence.missing_share == pytest.approx(0.0, abs=1e-9)

    def test_numbers_need_more_evidence_after_the_planned_days(self, store: Store):
        """After the planned days, a tenth of the level is left for all later days together."""
        add_release(store, {NEW: [1000] * 9 + [720] + [1000] * 49 + [720], OLD: [19_000] * 60}, EQUAL)
        assert not verdict_on(store, 60, installed="1000/20000").is_silent
        assert verdict_on(store, 10, installed="1000/20000").is_silent

    def test_says_that_silent_boards_go_unnoticed(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        assert any("go unnoticed" in note for note in verdict_on(store).notes())

    def test_plan_without_devices_stays(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        verdict_on(store)
        with pytest.raises(PlanChanged, match="without the number of installed devices"):
            verdict_on(store, installed="1000/20000")

    def test_missing_numbers_are_named(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        verdict_on(store, installed="1000/20000")
        result = verdict_on(store)
        reason = "the number of installed devices is needed for a verdict: add --installed."
        assert result.sentence() == f"Not yet: {reason}"
        assert f"The plan checks for silent boards, so {reason}" in result.notes()

    def test_needs_the_other_devices(self, store: Store):
        add_release(store, {NEW: FAST, OLD: FAST}, EQUAL)
        with pytest.raises(UsageError, match="give numbers such as 1200/20000"):
            verdict_on(store, installed=1000)
        with pytest.raises(UsageError, match=r"name 2.3.1, but not 2.4.0"):
            verdict_on(store, installed={OLD: 5})

    def test_allow_list_gives_all_devices(self, store: Store):
        add_release(store, {NEW: [0] * 5, OLD: [145] * 5}, EQUAL)
        store.allow_devices("home", [f"d{k}" for k in range(200)])
        store.set_listed("home", True)
        assert verdict_on(store, 5, installed=50).is_silent


class TestRollout:
    def test_part_and_day_of_half(self, store: Store):
        growing = [20 * (day + 1) for day in range(10)]
        add_release(store, {NEW: growing, OLD: [1000 - n for n in growing]}, EQUAL)
        sentence = verdict_on(store, 10).rollout_sentence()
        assert sentence == "2.4.0 runs on about 20% of devices; at this rate, on half by 2026-11-26."

    def test_divides_by_every(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [300] * 14}, EQUAL, payload=crash_payload(every=[10, 1, 10]))
        assert verdict_on(store).rollout_sentence().startswith("2.4.0 runs on about 12% of devices")

    def test_part_is_right_while_every_changes(self, store: Store):
        add_every_change(store)
        for days in (4, 5, 6):
            assert (
                verdict_on(store, days).rollout_sentence().startswith("2.4.0 runs on about 5.0% of devices")
            )

    def test_spent_budgets_hide_the_part(self, store: Store):
        """All boards with the new version have spent their budgets, so only the others still report."""
        payload = crash_payload(every=[130, 1, 130])
        exp = add_release(store, {NEW: [1000] * 4 + [0] * 6, OLD: [60] * 10}, EQUAL, payload=payload)
        assert verdict_on(store, 4).rollout_sentence().startswith("2.4.0 runs on about 11% of devices")
        most = reports_in_budget(exp)
        assert most is not None
        write(store, "home", exp, {}, [f"d{i}" for i in range(1000)], each=most)
        result = verdict_on(store, 10)
        assert result.rollout_sentence() == (
            "How many devices run 2.4.0 is unknown: 1,000 of 1,001 devices that reported to board_crash have "
            "no reports left, so their firmware is unknown. Only your update server knows."
        )
        assert result.to_dict()["rollout"]["part"] is None

    def test_table_shows_a_week(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [300] * 14, "other": [7] * 14}, EQUAL | {"other": 0.1})
        headings, rows = verdict_on(store).rollout_rows()
        assert headings == ["day", NEW, OLD, "all others"]
        assert len(rows) == 7
        assert rows[-1] == ["2026-11-14", "400", "300", "7"]


class TestOutput:
    def test_fits_80_columns(self, store: Store):
        for name in ("board_crash", "a_rather_long_name_of_32_letters"):
            add_release(store, {NEW: FAST, OLD: [1300] * 14}, EQUAL, payload=crash_payload(name))
        lines = str(verdict_on(store)).splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith("Not yet: ")

    def test_fields_of_the_json(self, store: Store):
        add_release(store, {NEW: FAST, OLD: [1300] * 14}, WORSE)
        fields = verdict_on(store, installed={NEW: 1000, OLD: 19_000}).to_dict()
        assert {*fields} == {
            *("verdict", "silent", "sentence", "fleet", "group", "new", "others", "from", "to", "rollout"),
            *("questions", "silence", "plan", "notes"),
        }
        (question,) = fields["questions"]
        assert question["verdict"] == "stop"
        assert question["worse"] == "more"
        assert question["margin"] == 0.02
        assert question["low"] < question["value"] < question["high"]
        assert len(fields["rollout"]["reports"]) == 14
        first = {"day": "2026-11-01", "reports": {NEW: 400, OLD: 1300}, "rest": 0}
        assert fields["rollout"]["reports"][0] == first

    def test_versions_may_be_named_like_fields(self, store: Store):
        values = ["day", "all others", NEW]
        reports = {"day": [300] * 3, "all others": FAST[:3], NEW: FAST[:3], "other": [70] * 3}
        payload = crash_payload(groups=values)
        add_release(store, reports, dict.fromkeys(reports, 0.05), payload=payload)
        result = verdict_on(store, 3, against=("day", "all others"))
        row = {"day": "2026-11-03", "reports": {NEW: 400, "day": 300, "all others": 400}, "rest": 70}
        assert result.to_dict()["rollout"]["reports"][-1] == row
        headings, rows = result.rollout_rows()
        assert headings == ["day", NEW, "all others", "day", "all others"]
        assert rows[-1] == ["2026-11-03", "400", "400", "300", "70"]


def test_versions_do_not_reveal_a_value_with_few_reports(store: Store):
    """All versions minus the shown one would be the histogram of 30 reports."""
    add_release(store, {OLD: [500], NEW: [30]}, EQUAL)
    second = add_release(store, {OLD: [500], NEW: [100]}, EQUAL, payload=crash_payload(every=2))
    facts = Facts(store, at(1))
    assert facts.selected(Selection("board_crash", "home", group=NEW)).estimate().reports == 130
    one = Selection("board_crash", "home", group=NEW, version=second.digest.hex())
    with pytest.raises(EstimateError, match="of a single version cannot be shown"):
        facts.selected(one).estimate()
