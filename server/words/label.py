"""A fleet's label in plain words, in several languages: a resident's five questions, and their answers.

The functions return phrases: the name of a template and its values. `Words` renders them in a language, so
the numbers are the same in every language.
"""

import datetime
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, get_args

from ...device.ldp_client import Experiment
from ...device.ldp_pairs import Part
from ..epsilon import MICRO
from ..mechanisms.views.factors import parts_of
from ..wire.experiments import value_count
from .epsilon import confidence
from .numbers import length_in_units, odds

Language: TypeAlias = Literal["en", "de", "fr", "es", "nl", "it"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

QUESTIONS = ASKED, WHO, LEARN, LONG, STOP = "ASKED", "WHO", "LEARN", "LONG", "STOP"
"""The template names of the label's five headings."""

BUTTON_SECONDS = 3  # as in device/consent.py
ASK_FLASHES = 2
NO_FLASHES = 3


@dataclass(frozen=True)
class Percent:
    """A whole-number percentage."""

    value: int


@dataclass(frozen=True)
class Phrase:
    """A template in label_*.toml and its values: numbers, days, and texts as their author wrote them.

    A tuple is rendered as a comma-separated list. Nested phrases are rendered first.
    """

    template: str
    values: Mapping[str, "Value"]

    @classmethod
    def of(cls, template: str, /, **values: "Value") -> Self:
        """Return a phrase for a template."""
        return cls(template, values)


@dataclass(frozen=True)
class Series:
    """A list in a sentence, with a conjunction before the last value: a, b or c."""

    word: Literal["and", "or"]
    values: tuple["Value", ...]


Value: TypeAlias = "Phrase | Percent | Series | datetime.date | str | float | tuple[Value, ...]"
_of = Phrase.of


class Words:
    """A language for the label: its templates and its number and date formats."""

    def __init__(self, language: Language) -> None:
        path = Path(__file__).with_name(f"label_{language}.toml")
        words = tomllib.loads(path.read_text(encoding="utf-8"))
        self.language = language
        self.texts: Mapping[str, str] = words["texts"]
        self._numbers: Mapping[str, Any] = words["numbers"]

    def write(self, value: Value) -> str:
        """Render a phrase or a value in this language."""
        if isinstance(value, Phrase):
            filled = {name: self.write(inner) for name, inner in value.values.items()}
            return self.texts[value.template].format_map(filled)
        if isinstance(value, tuple):
            return ", ".join(map(self.write, value))
        if isinstance(value, Series):
            *first, last = map(self.write, value.values)
            return self.texts[value.word].format(first=", ".join(first), last=last) if first else last
        if isinstance(value, Percent):
            return str(self._numbers["percent"]).format(value.value)
        if isinstance(value, datetime.date):
            first, month = self._numbers["first_day"], self._numbers["months"][value.month - 1]
            day = first if value.day == 1 else value.day
            return str(self._numbers["date"]).format(day=day, month=month, year=value.year)
        return value if isinstance(value, str) else self._number(value)

    def _number(self, number: float) -> str:
        grouped = abs(number) >= self._numbers["grouped_from"]
        whole, point, decimals = f"{number:{',' if grouped else ''}.10g}".partition(".")
        whole = whole.replace(",", self._numbers["thousands"])
        return whole + (self._numbers["decimal"] + decimals if point else "")

    def marks(self) -> tuple[str, ...]:
        """Return the starts of placeholder texts that someone has to fill in."""
        return tuple(self.texts[name].partition("{")[0] for name in ("maker", "undecided"))


@cache
def words_in(language: Language) -> Words:
    """Return the templates and formats for a language."""
    return Words(language)


def maker(what: str) -> Phrase:
    """Return a placeholder that only the device's maker can fill in; `what` is its template."""
    return _of("maker", what=_of(what))


def answer(experiment: Experiment | Part, unit: str) -> Phrase:
    """Return the possible answers without mentioning bins: "a number from -14 to 50 °C"."""
    plain = _answer(experiment, unit)
    missing = experiment.type != "pair" and value_count(experiment) < experiment.domain
    return _of("or_none", answer=plain) if missing else plain


def _answer(experiment: Experiment | Part, unit: str) -> Phrase:
    kind = experiment.type
    if kind == "number":
        low, high = experiment.low / 1000, experiment.high / 1000
        return _of("number", low=low, high=high, unit=f" {unit}" if unit else "")
    if kind == "choice":
        return _of("choice", labels=Series("or", (*experiment.labels, _of("other"))))
    if kind == "pair":
        first, second = (_of("part", name=p.name, answer=answer(p, unit)) for p in parts_of(experiment))
        return _of("pair", first=first, second=second)
    if kind in ("bool", "text"):
        return _of(kind)
    return _of("values", count=experiment.domain, type=kind)


HIDES_UP_TO, PARTLY_UP_TO = 20, 50
"""The confidence, raised from 10%, up to which a code hides the answer, and partly hides it."""


def _hides(epsilon: float) -> Phrase:
    """Say how well one code hides the answer, by the confidence to which it can raise that of 10%.

    Up to 20%, twice as sure, it hides the answer; up to 50%, as likely as not, partly; above, hardly. That
    is ε up to ln(9 / 4) = 0.81, and up to ln(9) = 2.19.
    """
    after = confidence(epsilon)
    return _of(
        "hides" if after <= HIDES_UP_TO else "hides_partly" if after <= PARTLY_UP_TO else "hides_hardly"
    )


def question(name: str, purpose: str | Phrase, experiment: Experiment, unit: str, most: int) -> Phrase:
    """Say what is asked, what is sent and how many times; `most` is a device's lifetime limit of reports."""
    values: dict[str, Value] = {"codes": experiment.code_count, "hides": _hides(experiment.epsilon / MICRO)}
    sends = _of("sends_once", **values) if most == 1 else _of("sends", most=most, **values)
    purpose = purpose.rstrip() if isinstance(purpose, str) else purpose
    phrase = _of("question", purpose=purpose, name=name, answer=answer(experiment, unit), sends=sends)
    if not experiment.group:
        return phrase
    groups = Series("or", (*experiment.groups, _of("other")))
    return _of("question_open", question=phrase, group=experiment.group, values=groups)


def alike(origin: str, witnesses: Sequence[str], need: int) -> Phrase:
    """Say that every device is asked the same, because witnesses check the log of the questions."""
    return _of("alike", origin=origin, witnesses=tuple(witnesses), need=need)


def who(owners: tuple[str | Phrase, ...], hosts: Sequence[str]) -> list[Phrase]:
    """Say who asks and, if known, how the reports travel."""
    travel = [_of("travel", hosts=tuple(hosts))] if hosts else []
    return [_of("ask", owners=Series("and", owners)), *travel]


@dataclass(frozen=True)
class Disclosure:
    """The most that several reports disclose: ε in nats, except with probability delta."""

    epsilon: float
    delta: float = 0.0


_BEFORE = Percent(10)

GUESS = _of("guess", before=_BEFORE)
"""An explanation of how reports can raise someone's confidence."""

IDS = _of("ids")
"""A statement of how long a device's id is kept."""


def open_group(names: Sequence[str], group: str) -> Phrase:
    """Say that these experiments' reports contain an open group, and what it can give away."""
    return _of("open_group", names=tuple(names), group=group)


def _disclosure_sentence(template: str, loss: Disclosure, **values: Value) -> Phrase:
    """Say how far reports can raise someone's confidence in a guess."""
    after = confidence(loss.epsilon)
    range_ = (
        _of("up_to", before=_BEFORE, after=Percent(after)) if after < 100 else _of("certain", before=_BEFORE)
    )
    sentence = _of(template, range=range_, **values)
    return _of("unless", sentence=sentence, one=1, times=odds(loss.delta)) if loss.delta else sentence


def planned_disclosure(name: str, most: int, loss: Disclosure) -> Phrase:
    """Say what all `most` reports that a question's budget allows can reveal together."""
    if most == 1:
        return _disclosure_sentence("planned_once", loss, name=name)
    return _disclosure_sentence("planned", loss, name=name, most=most)


def total_planned_disclosure(loss: Disclosure) -> Phrase:
    """Say what all reports to all of today's questions can reveal."""
    return _disclosure_sentence("planned_all", loss)


def report_disclosure(names: Sequence[str], epsilon: float) -> Phrase:
    """Say what one report to any of these experiments reveals to anyone who sees it; epsilon is in nats."""
    return _disclosure_sentence("report", Disclosure(epsilon), names=tuple(names))


def limit(loss: Disclosure) -> Phrase:
    """Say what all reports in a device's lifetime can reveal under its firmware's own limit."""
    return _disclosure_sentence("limit" if confidence(loss.epsilon) < 100 else "limit_high", loss)


def counts_disclosure(names: Sequence[str], reports: int, loss: Disclosure | None) -> Phrase:
    """Say what the counts reveal to someone who sees nothing else; `loss` is None if no ε applies."""
    if loss is None:
        return _of("counts_none", names=tuple(names))
    if reports == 1:
        return _disclosure_sentence("counts_once", loss, names=tuple(names))
    return _disclosure_sentence("counts", loss, names=tuple(names), count=reports)


def storage_period(seconds: int, window: str) -> Phrase:
    """Say how long counts are kept after the window, a day or an hour, in which they were counted."""
    n, unit = length_in_units(seconds)
    return _of(f"keep_for_{window}", length=_of(unit if n == 1 else f"{unit}s", n=n))


ENDLESS = _of("keep_endless", maker=maker("erased_when"))
"""A statement that counts in a window that never ends are not erased automatically."""

UNDECIDED = _of("keep_undecided", undecided=_of("undecided", what=_of("how_long")))
"""A statement that the experiment does not specify how long counts are kept."""


def retention(names: Sequence[str], until: datetime.date | None, now: bool, keep: Phrase) -> Phrase:
    """Say how long questions are asked and counts are kept; `now` is whether they are asked today."""
    if now and until:
        return _of("asked_until", names=tuple(names), day=until, keep=keep)
    return _of("asked_endless" if now else "asked_no_more", names=tuple(names), keep=keep)


def stop(button: bool | None) -> Phrase:
    """Say how to stop a device; `button` is whether it has a button, or None if unknown."""
    if button is None:
        return _of("stop_unknown", maker=maker("how_no"))
    return _of("stop_button", seconds=BUTTON_SECONDS) if button else _of("stop_prompt")


def consent(
    is_given: bool, because: str, network: bool, each: bool, button: bool | None, light: bool | None
) -> list[Phrase]:
    """Say how a device comes to take part; `button` and `light` are as in stop()."""
    sentences = (
        [_of("given", because=because.rstrip("."))] if is_given else [_of("silent"), *_yes(button, light)]
    )
    sentences += [_of("network")] if network else []
    sentences += [_of("each" if each else "once")]
    return sentences + ([_of("offer", flashes=ASK_FLASHES)] if each and button and light else [])


def _yes(button: bool | None, light: bool | None) -> list[Phrase]:
    if button is None:
        return []
    if not button:
        return [_of("yes_prompt")]
    flashes = {"flashes": ASK_FLASHES} if light else {}
    return [_of("yes_light" if light else "yes_button", seconds=BUTTON_SECONDS, **flashes)]


def stop_sentences(button: bool | None, light: bool | None) -> list[Phrase]:
    """Say how to stop a device, and what happens to its reports; `light` works like `button` in stop()."""
    confirmed = [_of("light", flashes=NO_FLASHES)] if button and light else []
    return [stop(button), *confirmed, _of("stopped")]


def erasure_sentences(owners: tuple[str | Phrase, ...], id_at: str) -> list[Phrase]:
    """Say how to have a device's id erased; `id_at` is where the device shows it, or "" if unknown."""
    where = _of("id_at", where=id_at.rstrip(".")) if id_at else _of("id_blank")
    return [_of("erase", owners=Series("or", owners)), where]
