"""The label has the same facts, numbers and dates in every language, in that language's format."""

import datetime
import json
import re
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.dates import format_date
from babel.numbers import format_decimal, format_percent
from experiments import experiment_json, number_json
from refusals import fails
from statements import KEPT, ask, facts_of

from hushmote.device.ldp_client import Experiment
from hushmote.fleet.statement import document, page
from hushmote.server.store.store import Store
from hushmote.server.words import label as words
from hushmote.server.words.label import LANGUAGES, Language, Percent, Phrase, words_in

TRANSLATIONS = [language for language in LANGUAGES if language != "en"]
NUMBER = re.compile(r"-?\d+(?:[.,\u202f]\d+)*")

OPEN_GROUP = {"group": "firmware", "groups": ["stable", "beta"]}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'statement.sqlite'}") as opened:
        yield opened


def numbers_in(text: str, language: Language) -> Counter[float]:
    """Return the numbers in a text by its language's format."""
    decimal, thousands = (".", ",") if language == "en" else (",", "\u202f" if language == "fr" else ".")
    plain = (n.replace(thousands, "").replace(decimal, ".") for n in NUMBER.findall(text))
    return Counter(map(float, plain))


def fields(template: str) -> Counter[str]:
    return Counter(name for _, name, _, _ in string.Formatter().parse(template) if name)


@pytest.mark.parametrize("language", TRANSLATIONS)
class TestTemplates:
    def test_have_the_same_names_and_values(self, language: Language):
        english, texts = words_in("en").texts, words_in(language).texts
        assert list(texts) == list(english)
        assert {name: fields(text) for name, text in texts.items()} == {
            name: fields(text) for name, text in english.items()
        }

    def test_differ_from_english(self, language: Language):
        english, texts = words_in("en").texts, words_in(language).texts
        alike = {name for name, text in texts.items() if text == english[name]}
        assert alike <= {"part", "week"}


@pytest.mark.parametrize("language", LANGUAGES)
class TestLocaleNumbers:
    def test_templates_contain_no_number(self, language: Language):
        assert [text for text in words_in(language).texts.values() if re.search(r"\d", text)] == []

    def test_numbers_percents_and_days_match_babel(self, language: Language):
        write, locale = words_in(language).write, "en_GB" if language == "en" else language
        for number in (0, 7, 400, -14.25, 0.5, 12345, 1_000_000, 1_234_567.25):
            assert write(number) == format_decimal(number, locale=locale)
        assert write(Percent(46)) == format_percent(0.46, locale=locale)
        for month in range(1, 13):
            day = datetime.date(2027, month, 30 if month != 2 else 28)
            assert write(day) == format_date(day, "long", locale=locale)

    def test_four_digits_and_first_days(self, language: Language):
        write = words_in(language).write
        thousand = {"es": "1000", "en": "1,000", "fr": "1\u202f000"}.get(language, "1.000")
        assert write(1000) == thousand
        first = {"en": "1 March 2027", "de": "1. März 2027", "fr": "1er mars 2027"}
        others = {"es": "1 de marzo de 2027", "nl": "1 maart 2027", "it": "1 marzo 2027"}
        assert write(datetime.date(2027, 3, 1)) == (first | others)[language]

    def test_sentences_have_no_trailing_or_double_space(self, language: Language):
        for text in words_in(language).texts.values():
            assert text == text.strip()
            assert "  " not in text
            assert text.count("(") == text.count(")")


@pytest.mark.parametrize("language", TRANSLATIONS)
class TestSameFacts:
    """No number appears in only one language."""

    def test_labels_have_the_same_numbers(self, language: Language, store: Store, tmp_path: Path):
        ask(store, windows={"2026-11-20": 1234})
        facts = facts_of(store, tmp_path)
        labels = {name: document.document(facts, language=name)["label"] for name in ("en", language)}
        ours, theirs = ("\n".join(map("\n".join, labels[name].values())) for name in ("en", language))
        assert labels["en"].keys().isdisjoint(labels[language])
        assert numbers_in(theirs, language) == numbers_in(ours, "en")
        assert numbers_in(ours, "en")[1234] == 1
        assert [len(answers) for answers in labels["en"].values()] == [
            len(answers) for answers in labels[language].values()
        ]

    @pytest.mark.parametrize("delta", [0.0, 1e-6, 0.004])
    @pytest.mark.parametrize("most", [1, 12345])
    def test_sentences_have_the_same_numbers(self, language: Language, delta: float, most: int):
        loss = words.Disclosure(2.0, delta)
        phrases = [
            words.question("x", "why", Experiment.parse(number_json(7, low=-500, high=1250)), "V", most),
            words.question("e", "why", Experiment.parse(experiment_json()), "", most),
            words.question("e", "why", Experiment.parse(experiment_json(**OPEN_GROUP)), "", most),
            words.open_group(["x", "y"], "firmware"),
            words.planned_disclosure("x", most, loss),
            words.total_planned_disclosure(loss),
            words.report_disclosure(["x", "y"], 2.0),
            words.limit(words.Disclosure(40.0, delta)),
            words.counts_disclosure(["x"], most, loss),
            words.counts_disclosure(["x"], 0, None),
            *(words.storage_period(3600 * hours, "hour") for hours in (1, 36)),
            *(words.storage_period(3600 * hours, "day") for hours in (24, 9600, 168, 336, 8760, 17520)),
            words.retention(["x"], datetime.date(2027, 3, 2), True, words.UNDECIDED),
            words.retention(["x"], None, True, words.ENDLESS),
            words.retention(["x"], None, False, words.ENDLESS),
            *words.consent(True, "form", True, True, True, True),
            *(p for button in (True, False) for p in words.consent(False, "", False, False, button, True)),
            *(p for button in (True, False, None) for p in words.stop_sentences(button, True)),
            *words.erasure_sentences(("a", "b"), "below"),
            *words.erasure_sentences(("a",), ""),
        ]
        for phrase in phrases:
            theirs, ours = words_in(language).write(phrase), words_in("en").write(phrase)
            assert theirs != ours
            assert numbers_in(theirs, language) == numbers_in(ours, "en")


class TestPage:
    @pytest.mark.parametrize("language", LANGUAGES)
    def test_label_names_its_language(self, language: Language, store: Store, tmp_path: Path):
        ask(store, KEPT.replace('keep = "400d"', ""))
        signed = document.sign(document.document(facts_of(store, tmp_path), language=language), None)
        text = page.html(signed, download="/file")
        named = "" if language == "en" else f' lang="{language}"'
        assert f'<article class="label"{named}>' in text
        assert f"<h1>{words_in(language).texts['title']}</h1>" in text
        undecided = words_in(language).write(Phrase.of("undecided", what=Phrase.of("how_long")))
        assert f"<mark>{undecided}</mark>" in text

    def test_statement_of_an_earlier_version_is_english(self, store: Store, tmp_path: Path):
        ask(store)
        signed = document.sign(document.document(facts_of(store, tmp_path), public=True), None)
        del signed["statement"]["language"]
        (tmp_path / "old.json").write_text(json.dumps(signed))
        assert document.read_public(tmp_path / "old.json") == signed

    @pytest.mark.parametrize("language", ["../en", "xx", 3, None])
    def test_rejects_a_language_that_does_not_exist(self, language: object, store: Store, tmp_path: Path):
        ask(store)
        signed = document.sign(document.document(facts_of(store, tmp_path), public=True), None)
        signed["statement"]["language"] = language
        (tmp_path / "odd.json").write_text(json.dumps(signed))
        with fails("is not a statement, or is damaged", document.StatementError):
            document.read_public(tmp_path / "odd.json")
