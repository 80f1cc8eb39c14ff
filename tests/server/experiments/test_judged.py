"""`worse` and `worse_by` in an experiment's file: which questions a release is judged by."""

from pathlib import Path

import pytest
from refusals import Refusal, refusals

from hushmote.server.experiments.definition import Definition, DefinitionError, parse
from hushmote.server.experiments.judged import JudgedError, Worse, judged_questions, worse_from_text

CRASH = Path("examples/board_crash.toml").read_text()
UPDATE = CRASH.replace('type = "bool"', 'type = "choice"\nlabels = ["ok", "failed"]\nasks = ["ok", "failed"]')
BOOT = CRASH.replace(
    'type = "bool"',
    'type = "number"\nunit = "s"\nlow = 0\nhigh = 64\nbins = 64\nasks = ["median", "mean", "32:"]',
)


def judged(definition: Definition) -> list[tuple[str, str, float | None]]:
    questions = definition.judged(definition.experiment())
    return [(each.ask.text, each.worse, each.margin) for each in questions]


def with_worse(text: str, lines: str) -> Definition:
    start = text.index("worse_by = 0.02")
    return parse(text[:start] + lines + text[text.index("\n", start) :])


class TestJudged:
    def test_yes_of_a_bool(self):
        assert judged(parse(CRASH)) == [("yes", "more", 0.02)]

    def test_all_labels_that_the_file_asks_for(self):
        assert judged(parse(UPDATE)) == [("ok", "more", 0.02), ("failed", "more", 0.02)]

    def test_tables_name_questions(self):
        lines = 'worse = {ok = "less"}\nworse_by = {ok = 0.05}'
        assert judged(with_worse(UPDATE, lines)) == [("ok", "less", 0.05)]

    def test_question_without_margin_can_stop(self):
        assert judged(with_worse(UPDATE, "worse_by = {failed = 0.05}")) == [
            ("ok", "more", None),
            ("failed", "more", 0.05),
        ]

    def test_mean_has_its_own_margin(self):
        definition = with_worse(BOOT, 'worse_by = {mean = 0.5, "32:" = 0.02}')
        assert judged(definition) == [("mean", "more", 0.5), ("32:", "more", 0.02)]

    def test_default_has_no_margin(self):
        assert judged(with_worse(CRASH, "")) == [("yes", "more", None)]

    def test_nothing_without_a_group(self):
        text = "\n".join(
            line for line in CRASH.splitlines() if not line.startswith(("group", "every", "worse"))
        )
        assert judged(parse(text)) == []

    @refusals(
        ("worse_by = 0", "worse_by must be above 0, not 0"),
        ("worse_by = 2", "worse_by of a share must be below 1, as 0.02 is 2 points, not 2"),
        ('worse_by = "a"', "worse_by must be a number, not 'a'"),
        ("worse_by = {no = 0.02}", "worse_by: no is not one of the questions, yes"),
        ('worse = "bad"', 'worse: must be "more", "less" or a table of questions'),
        ("worse = {}", 'worse: must be "more", "less" or a table of questions'),
        ('worse = {no = "less"}', "worse: no is not one of the questions, yes"),
        call=lambda lines: with_worse(CRASH, lines).payload(),
        error=DefinitionError,
    )
    def test_mistake_is_one_line(self, refusal: Refusal):
        refusal.check()

    @refusals(
        ("worse_by = 0.02", "worse_by: shares and a mean differ in unit: write a table, as in {mean = 0.5}"),
        ("worse_by = {median = 1}", "worse_by: median is not a share or a mean; a release is judged by"),
        ('worse = {mean = "more"}\nworse_by = {"32:" = 0.1}', "worse_by: worse does not name 32:"),
        call=lambda lines: with_worse(BOOT, lines).payload(),
        error=DefinitionError,
    )
    def test_mistake_about_a_number_is_one_line(self, refusal: Refusal):
        refusal.check()

    def test_needs_a_group(self):
        text = "\n".join(line for line in CRASH.splitlines() if not line.startswith(("group", "every")))
        with pytest.raises(DefinitionError, match="worse_by compares the values of a group: add the group"):
            parse(text)

    def test_needs_a_share_or_a_mean(self):
        experiment = parse(BOOT.replace('"mean", "32:"', '"90%"').replace("worse_by = 0.02", "")).experiment()
        assert judged_questions(experiment, ["median"], Worse()) == ()
        with pytest.raises(JudgedError, match="a release is judged by shares and means"):
            judged_questions(experiment, ["median"], Worse(margin=0.02))


class TestStoredText:
    @pytest.mark.parametrize(
        "worse", [Worse(), Worse(margin=0.02), Worse("less"), Worse({"ok": "less"}, {"ok": 0.05})]
    )
    def test_is_read_again(self, worse: Worse):
        assert worse_from_text(worse.to_text()) == worse

    def test_default_is_empty(self):
        assert Worse().to_text() == ""
        assert parse(CRASH).description().worse == '{"worse": "more", "worse_by": 0.02}'

    @pytest.mark.parametrize("text", ["[]", "{", '{"worse": 1}', '{"worse_by": -1}', '{"worse_by": "a"}'])
    def test_rejects_damage(self, text: str):
        with pytest.raises(JudgedError, match="damaged: add the experiment again"):
            worse_from_text(text)
