"""Definitions of experiments about texts: slots, candidates and errors."""

import json

import pytest
from refusals import Refusal, fails, refusals

from hushmote.server.experiments.asks import MAX_ASKS, asks_of
from hushmote.server.experiments.definition import DefinitionError, parse
from hushmote.server.experiments.payload import at_epsilon
from hushmote.server.experiments.units import index_names, parse_range, range_name
from hushmote.server.words import experiment as words

FIRMWARE = """
name = "{name}"
purpose = "Which versions are still in use?"
owner = "ops@example.org"
expires = 9999-12-31
type = "text"
epsilon = 2
{more}
[budget]
rule = "count"
cap = 1
"""


def written(more: str = "", name: str = "firmware") -> str:
    return FIRMWARE.format(more=more, name=name)


class TestSlots:
    def test_and_salt_have_defaults(self):
        first, again, other = (
            parse(written(name=name)).payload() for name in ("firmware", "firmware", "errors")
        )
        assert first == again
        fields, others = json.loads(first), json.loads(other)
        assert fields["slots"] == 65_536
        assert len(fields["salt"]) == 16
        assert fields["salt"] != others["salt"]
        assert parse(written()).experiment().domain == 65_536

    def test_and_salt_may_be_given(self):
        fields = json.loads(parse(written('salt = "winter 26"\nslots = 1024\nmechanism = "grr"')).payload())
        assert (fields["salt"], fields["slots"], fields["mechanism"]) == ("winter 26", 1024, "grr")

    @pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "4", "8", "16"])
    def test_some_mechanism_fits_at_every_epsilon(self, epsilon):
        e = parse(written().replace("epsilon = 2", f"epsilon = {epsilon}")).experiment()
        assert e.code_count <= 1 << 24

    def test_are_only_for_texts(self):
        with fails("salt, slots and prefixes are only for a text", DefinitionError):
            parse(written("slots = 64").replace('"text"', '"bool"'))

    def test_stay_the_same_at_another_epsilon(self):
        e = parse(written('salt = "a"\nslots = 256')).experiment()
        other = at_epsilon(e, 500_000)
        assert (other.epsilon, other.domain) == (500_000, 256)
        assert [other.bucket(text) for text in "abcdef"] == [e.bucket(text) for text in "abcdef"]

    def test_are_numbered(self):
        e = parse(written("slots = 16")).experiment()
        assert index_names(e)[3] == "slot 3"
        assert range_name(e, 3, 5) == "slot 3, slot 4"
        text = parse_range(e, "1.2.3")
        assert (text.low, text.high - 1, text.text) == (e.bucket("1.2.3"), e.bucket("1.2.3"), "1.2.3")
        assert words.readings(e, "") == "any text, hashed into 16 slots"

    def test_are_described_with_their_prefixes(self):
        shown = words.readings(parse(written("prefixes = [2, 3, 4, 4]")).experiment(), "")
        assert shown == "any text, hashed into 65,536 slots for each of 4 prefixes"


class TestErrors:
    @refusals(
        ("slots = 1000", "slots must be a power of 2 from 2 to 1048576, not 1000"),
        ("slots = 1", "slots must be a power of 2 from 2 to 1048576, not 1"),
        ("slots = 2097152", "slots must be a power of 2 from 2 to 1048576, not 2097152"),
        ('salt = ""', "salt '' must have 1 to 32 bytes in UTF-8, not 0"),
        ('salt = "a\\u0308"', "is not in the Unicode form NFC"),
        ("salt = 'a\"b'", "contains U+0022 (quotation mark), which boards refuse: remove it"),
        (f'salt = "{"x" * 33}"', "must have 1 to 32 bytes in UTF-8, not 33"),
        ('labels = ["a"]', "labels are needed for a choice and only for a choice"),
        ("bins = 4", "low, high and bins are only for a number"),
        ('statistics = "quantiles"', "a text supports only shares: omit statistics"),
        call=lambda more: parse(written(more)),
        error=DefinitionError,
    )
    def test_invalid_definition_is_one_line(self, refusal: Refusal):
        refusal.check()

    def test_pair_mechanism_does_not_support_numbers(self):
        number = written().replace('type = "text"', 'type = "number"\nlow = 0\nhigh = 50\nbins = 50')
        for name, kind in (("views", "a pair"), ("prefix", "texts with prefixes")):
            with fails(f"^mechanism {name} supports only {kind}: use auto$", DefinitionError):
                parse(f'mechanism = "{name}"\n{number}')


class TestCandidates:
    def test_are_stored_with_the_questions_but_not_sent(self):
        listed = parse(written('candidates = ["1.4.2", "2.0 beta"]'))
        assert listed.description().asked == "1.4.2\n2.0 beta"
        assert listed.payload() == parse(written()).payload()

    def test_become_separate_questions_if_few(self):
        asks = asks_of(parse(written()).experiment(), ["1.4.2", "1.4.1"])
        assert [(ask.kind, ask.text) for ask in asks] == [("share", "1.4.2"), ("share", "1.4.1")]

    def test_become_one_question_if_many(self):
        texts = [f"1.{n}" for n in range(MAX_ASKS + 1)]
        assert parse(written(f"candidates = {json.dumps(texts)}")).description().asked.splitlines() == texts
        (ask,) = asks_of(parse(written()).experiment(), texts)
        assert (ask.kind, ask.text, ask.texts) == ("named", "most common", tuple(texts))

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ('candidates = "1.4.2"', 'candidates must be a list of texts such as ["1.4.1", "1.4.2"]'),
            ("candidates = [142]", 'candidates must be a list of texts such as ["1.4.1", "1.4.2"]'),
            ('candidates = [""]', "a text must have 1 to 255 bytes, all that boards use"),
            (f'candidates = ["{"ü" * 128}"]', "a text must have 1 to 255 bytes, all that boards use"),
            ('candidates = ["a\\nb"]', "a text must be one line; 'a\\nb' has more"),
            ('candidates = ["a\\u2028b"]', "a text must be one line"),
            ('candidates = ["a\\u0000b"]', "which databases cannot store: remove it"),
            ('candidates = ["a", "b", "a"]', "candidates: a is listed twice"),
            (
                'candidates = ["a"]\nasks = ["b"]',
                "asks and candidates both list texts: give only one of them",
            ),
            (
                'candidates = ["a"]\nprefixes = [2, 3, 4, 4]',
                "candidates do not apply to a text with prefixes",
            ),
            (f"candidates = {json.dumps(list(map(str, range(1001))))}", "candidates"),
        ],
    )
    def test_reject_invalid_texts(self, more, message):
        with pytest.raises(DefinitionError) as error:
            parse(written(more))
        assert message in str(error.value)
        assert str(error.value).startswith(("candidates", "asks"))
        assert "\n" not in str(error.value)

    def test_are_only_for_a_text(self):
        with fails(r"^candidates are only for a text$", DefinitionError):
            parse(written('candidates = ["a"]').replace('"text"', '"bool"'))
