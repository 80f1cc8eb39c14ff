"""The verdict on a release as sentences, rows of tables and JSON."""

import datetime
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from rich.console import Group, RenderableType

from ...arrays import Floats
from ...plain_text import visible
from ...release.difference import MIN_REPORTS
from ...release.plan import QuestionPlan, ReleasePlan, experiment_of
from ...release.progress import Progress
from ...release.verdict import QuestionVerdict, ReleaseVerdict, Verdict
from ...words import release as sentences
from ...words.numbers import ENGLISH, Numbers, counted, round_up_boards
from ..suppression import MIN_REPORTS as SUPPRESSED_BELOW
from ..tables import Printable, plain, table
from .evidence import GroupDays

EXIT_STATUS = {Verdict.PROCEED: 0, Verdict.STOP: 3, Verdict.NOT_YET: 4}
"""The exit status of `hushmote release`."""
SHOWN_DAYS = 7
"""The days in the rollout's table."""
NOT_SHOWN = "not shown"
"""Shown instead of numbers that could reveal the histogram of a version with few reports."""
NO_MARGIN = "No question has a margin, so a release cannot proceed: add worse_by = 0.02 to the experiment."


@dataclass(frozen=True)
class Subject:
    """What a question is about.

    Attributes:
        name: The words for it, such as "board_crash".
        unit: The unit of a mean, or None for a share.
    """

    name: str
    unit: str | None


@dataclass(frozen=True)
class Rollout:
    """The reports by version.

    Attributes:
        experiment: The experiment that was counted.
        days: The completed days.
        reports: The reports of each compared version by day, the new version first.
        rest: The reports of all remaining versions, by day.
        progress: How far the new version has rolled out, or None without reports or with `unseen`.
        unseen: Why the reports do not show how far, or "".
    """

    experiment: str
    days: tuple[datetime.date, ...]
    reports: Mapping[str, Floats]
    rest: Floats
    progress: Progress | None
    unseen: str = ""

    def columns(self) -> list[tuple[str, Floats]]:
        """Return each column's heading and reports by day; a version may have any name, even "all others"."""
        rest = [("all others", self.rest)] if self.rest.any() else []
        return [*self.reports.items(), *rest]


@dataclass(frozen=True, repr=False)
class JudgedRelease(Printable):
    """The verdict on a release, with everything that a reader needs to see.

    Attributes:
        days: The days of the group.
        new: The new version.
        others: The versions that it is compared with.
        plan: The stored plan, or None before the first look.
        judged: The verdict by this plan, or None.
        subjects: What each question is about, by its name.
        rollout: The reports by version.
        unjudged: Sentences that say which questions are not judged, and why.
        lacks_installed: Whether the number of installed devices was not used.
        blocking: The questions or experiments that cannot be judged and prevent "proceed".
        hidden: The experiments whose differences are not shown, each with its versions that have too few
            reports. `judged` has no numbers about their questions.
    """

    days: GroupDays
    new: str
    others: tuple[str, ...]
    plan: ReleasePlan | None
    judged: ReleaseVerdict | None
    subjects: Mapping[str, Subject]
    rollout: Rollout
    unjudged: tuple[str, ...] = ()
    lacks_installed: bool = True
    blocking: tuple[str, ...] = ()
    hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def verdict(self) -> Verdict:
        """The verdict on all questions."""
        return Verdict.NOT_YET if self.judged is None else self.judged.verdict

    @property
    def exit_status(self) -> int:
        """The exit status of the command: 0 proceed, 3 stop, 4 not yet."""
        return EXIT_STATUS[self.verdict]

    @property
    def is_silent(self) -> bool:
        """Whether the verdict is "stop" because reports are missing."""
        return self.judged is not None and self.judged.is_silent

    @property
    def _versions(self) -> sentences.Versions:
        return sentences.Versions(visible(self.new), tuple(map(visible, self.others)))

    def sentence(self, write: Numbers = ENGLISH) -> str:
        """Return the verdict as one sentence."""
        judged, versions = self.judged, self._versions
        if judged is None or self.plan is None:
            return self._no_look_sentence(write)
        if judged.is_silent and judged.silence is not None:
            silence = judged.silence
            numbers = silence.received_reports, silence.expected_reports, silence.low
            return sentences.silence_sentence(versions, *numbers, write)
        if judged.verdict is Verdict.STOP:
            return self._stop_sentence(judged, write)
        planned = [question for question in self.plan.questions if question.margin is not None]
        if judged.verdict is Verdict.PROCEED:
            margins = [
                sentences.Margin(self._subject(q.name).name, q.margin or 0.0, self._subject(q.name).unit)
                for q in planned
            ]
            return sentences.proceed_sentence(versions, margins, write)
        if all(question.value is None and not self._is_hidden(question) for question in judged.questions):
            return self._no_look_sentence(write)
        if self.blocking:
            return sentences.not_judged_sentence(versions, tuple(map(visible, self.blocking)))
        if self.plan.silence is not None and self.lacks_installed:
            return f"Not yet: {sentences.NEEDS_INSTALLED}"
        return sentences.not_yet_sentence(versions, *self._remaining(judged), write)

    def _no_look_sentence(self, write: Numbers) -> str:
        new, others = self._reports([self.new]), self._reports(self.others)
        return sentences.no_look_sentence(self._versions, MIN_REPORTS, new, others, write)

    def _stop_sentence(self, judged: ReleaseVerdict, write: Numbers) -> str:
        stops = [q for q in judged.questions if q.verdict is Verdict.STOP]
        first = min(stops, key=lambda question: question.decision_day or 0)
        subject = self._subject(first.name)
        if first.value is None:
            text = sentences.stop_sentence_without_size(self._versions, subject.name)
        else:
            rise = sentences.Rise(subject.name, first.value, first.low, first.high, subject.unit)
            text = sentences.stop_sentence(self._versions, rise, write)
        also = ", ".join(self._subject(q.name).name for q in stops if q is not first)
        return f"{text} Also worse: {also}." if also else text

    def _remaining(self, judged: ReleaseVerdict) -> tuple[int | None, int | None]:
        """Return the reports and days until all questions with a margin are likely to proceed."""
        missing = [
            question.remaining
            for question, planned in zip(judged.questions, self._planned, strict=True)
            if planned.margin is not None and question.verdict is Verdict.NOT_YET
        ]
        known = [each for each in missing if each is not None]
        if not known or len(known) < len(missing):
            return None, None
        return max(each.reports for each in known), max(each.days for each in known)

    def _reports(self, values: Iterable[str]) -> int:
        names, values = self.days.experiments, tuple(values)
        totals = [self.days.reports(name, values).sum() for name in names]
        return int(max(totals, default=0))

    def _is_hidden(self, question: QuestionVerdict) -> bool:
        """Return whether there is a difference that is not shown."""
        return experiment_of(question.name) in self.hidden

    def _subject(self, name: str) -> Subject:
        return self.subjects.get(name, Subject(name, None))

    @property
    def _planned(self) -> tuple[QuestionPlan, ...]:
        return () if self.plan is None else self.plan.questions

    def rollout_sentence(self, write: Numbers = ENGLISH) -> str:
        """Return how far the new version has rolled out or why that is unknown, "" without reports."""
        progress = self.rollout.progress
        if self.rollout.unseen:
            return sentences.unknown_rollout_sentence(self._versions, visible(self.rollout.unseen))
        if progress is None:
            return ""
        last = self.rollout.days[-1]
        return sentences.rollout_sentence(self._versions, progress.part, progress.days_to_half, last, write)

    def rollout_rows(self, write: Numbers = ENGLISH) -> tuple[list[str], list[list[str]]]:
        """Return the headings and rows of the reports per day, the last SHOWN_DAYS only."""
        columns = self.rollout.columns()
        rows = [
            [write.day(day), *(write.number(float(reports[k]), 0) for _, reports in columns)]
            for k, day in enumerate(self.rollout.days)
        ]
        return ["day", *(visible(name) for name, _ in columns)], rows[-SHOWN_DAYS:]

    @property
    def _comparison(self) -> str:
        return f"{self._versions.new} minus {self._versions.text_of_others}, with bounds valid at every look:"

    def question_rows(self, write: Numbers = ENGLISH) -> tuple[list[str], list[list[str]]]:
        """Return the headings and rows of the questions, with the bounds that are valid at every look."""
        headings = ["question", "difference", "bounds", "accepted", "plan used", "verdict"]
        if self.judged is None:
            return headings, []
        pairs = zip(self._planned, self.judged.questions, strict=True)
        return headings, [self._question_row(*pair, write) for pair in pairs]

    def _question_row(self, planned: QuestionPlan, question: QuestionVerdict, write: Numbers) -> list[str]:
        subject = self._subject(question.name)
        unit = subject.unit
        accepted = "-"
        if planned.margin is not None:
            word = "+" if planned.worse == "more" else "-"
            accepted = f"{word}{sentences.size(planned.margin, unit, write)}"
        if self._is_hidden(question):
            value, bounds, fraction = (NOT_SHOWN,) * 3
        elif question.value is None:
            value, bounds, fraction = "-", "-", write.percent(0, 0)
        else:
            limits = question.value, question.low, question.high
            value, bounds = sentences.signed_difference(*limits, unit, write)
            fraction = write.percent(question.fraction, 0)
        verdict = self._verdict_text(question, write)
        return [visible(question.name), value, bounds, accepted, fraction, verdict]

    def _verdict_text(self, question: QuestionVerdict, write: Numbers) -> str:
        if question.decision_day is None:
            more = question.remaining
            needs = "" if more is None else f", {write.number(round_up_boards(more.reports), 0)} more"
            return f"{question.verdict}{needs}"
        return f"{question.verdict} since {write.day(self.days.day(question.decision_day))}"

    def notes(self, write: Numbers = ENGLISH) -> list[str]:
        """Return the limits of the verdict, one sentence each."""
        notes = list(map(visible, self.unjudged))
        for name, few in self.hidden.items():
            notes.append(sentences.hidden_note(visible(name), tuple(map(visible, few)), SUPPRESSED_BELOW))
        if self.plan is not None and self.plan.silence is not None and not self.lacks_installed:
            notes += self._silence_notes(write)
        elif self.plan is not None and self.plan.silence is not None:
            notes.append(f"The plan checks for silent boards, so {sentences.NEEDS_INSTALLED}")
        else:
            notes.append(sentences.NO_INSTALLED)
        if self.plan is None:
            return notes
        if all(question.margin is None for question in self.plan.questions):
            notes.append(NO_MARGIN)
        if self.plan.selection:
            notes.append(
                f"{sentences.NOT_RANDOM.format(new=visible(self.new))} ({visible(self.plan.selection)})"
            )
        return notes

    def _silence_notes(self, write: Numbers) -> list[str]:
        silence = None if self.judged is None else self.judged.silence
        if silence is None or silence.missing_share is None:
            return ["Silent boards: no complete day with installed devices yet."]
        notes = list[str]()
        if not silence.is_silent:
            expected = counted(round(silence.expected_reports), write=write)
            received = write.number(silence.received_reports, 0)
            notes.append(f"Silent boards: none detected; {received} of about {expected} arrived.")
        return notes

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [plain(self.sentence())]
        if text := self.rollout_sentence():
            headings, rows = self.rollout_rows()
            title = plain(f"Reports per day to {self.rollout.experiment}:")
            parts += [plain(""), plain(text), plain(""), title, _table(headings, rows, (0,))]
        headings, rows = self.question_rows()
        if rows:
            parts += [plain(""), plain(self._comparison), _table(headings, rows, (0, len(headings) - 1))]
        parts += [plain(""), *map(plain, self.notes())]
        return Group(*parts)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that can be serialized as JSON, with days as 2026-11-21."""
        judged, progress = self.judged, self.rollout.progress
        return {
            "verdict": str(self.verdict),
            "silent": self.is_silent,
            "sentence": self.sentence(),
            "fleet": self.days.fleet,
            "group": self.days.group,
            "new": self.new,
            "others": list(self.others),
            "from": self.rollout.days[0].isoformat() if self.rollout.days else None,
            "to": self.rollout.days[-1].isoformat() if self.rollout.days else None,
            "rollout": {
                "sentence": self.rollout_sentence(),
                "part": progress and progress.part,
                "growth_per_day": progress and progress.growth,
                "days_to_half": progress and progress.days_to_half,
                "experiment": self.rollout.experiment,
                "reports": [
                    {
                        "day": day.isoformat(),
                        "reports": {version: int(n[k]) for version, n in self.rollout.reports.items()},
                        "rest": int(self.rollout.rest[k]),
                    }
                    for k, day in enumerate(self.rollout.days)
                ],
            },
            "questions": []
            if judged is None
            else list(map(self._question_dict, self._planned, judged.questions)),
            "silence": None if judged is None else self._silence_dict(judged),
            "plan": None if self.plan is None else self._plan_dict(self.plan),
            "notes": self.notes(),
        }

    def _plan_dict(self, plan: ReleasePlan) -> dict[str, Any]:
        """Return the plan without what it says about the histograms of hidden experiments."""
        result = json.loads(plan.to_json())
        for question in result["questions"]:
            if experiment_of(question["name"]) in self.hidden:
                question |= {"variance": None, "information": None}
        return result

    def _question_dict(self, planned: QuestionPlan, question: QuestionVerdict) -> dict[str, Any]:
        remaining = question.remaining
        return {
            "question": question.name,
            "verdict": str(question.verdict),
            "value": question.value,
            "low": _finite(question.low),
            "high": _finite(question.high),
            "unit": self._subject(question.name).unit,
            "worse": planned.worse,
            "margin": planned.margin,
            "fraction_of_plan": None if self._is_hidden(question) else question.fraction,
            "since": self._date(question.decision_day),
            "more_reports": remaining and remaining.reports,
            "more_days": remaining and remaining.days,
        }

    def _silence_dict(self, judged: ReleaseVerdict) -> dict[str, Any] | None:
        silence = judged.silence
        return silence and {
            "silent": silence.is_silent,
            "missing_share": silence.missing_share,
            "low": _finite(silence.low),
            "expected_reports": silence.expected_reports,
            "received_reports": silence.received_reports,
            "since": self._date(silence.decision_day),
        }

    def _date(self, day: int | None) -> str | None:
        return None if day is None else self.days.day(day).isoformat()


def _table(headings: list[str], rows: list[list[str]], text_columns: tuple[int, ...]) -> RenderableType:
    result = table("", headings, text_columns)
    for row in rows:
        result.add_row(*row)
    return result


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
