"""An analyst's file that asks about texts: what boards get of it, and what is refused."""

import json

import pytest

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


def test_slots_and_a_salt_are_chosen_where_the_file_has_none():
    first, again, other = (parse(written(name=name)).payload() for name in ("firmware", "firmware", "errors"))
    assert first == again
    fields, others = json.loads(first), json.loads(other)
    assert fields["slots"] == 65_536
    assert len(fields["salt"]) == 16
    assert fields["salt"] != others["salt"]
    assert parse(written()).experiment().domain == 65_536


def test_the_file_may_say_both():
    fields = json.loads(parse(written('salt = "winter 26"\nslots = 1024\nmechanism = "grr"')).payload())
    assert (fields["salt"], fields["slots"], fields["mechanism"]) == ("winter 26", 1024, "grr")


@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "4", "8", "16"])
def test_some_mechanism_fits_at_every_epsilon(epsilon):
    e = parse(written().replace("epsilon = 2", f"epsilon = {epsilon}")).experiment()
    assert e.code_count <= 1 << 24


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("slots = 1000", "slots must be a power of 2 from 2 to 1048576, not 1000"),
        ("slots = 1", "slots must be a power of 2 from 2 to 1048576, not 1"),
        ("slots = 2097152", "slots must be a power of 2 from 2 to 1048576, not 2097152"),
        ('salt = ""', "salt must be 1 to 32 printable ASCII characters"),
        ('salt = "ä"', "salt must be 1 to 32 printable ASCII characters"),
        ("salt = 'a\"b'", "salt must be 1 to 32 printable ASCII characters"),
        (f'salt = "{"x" * 33}"', "salt must be 1 to 32 printable ASCII characters"),
        ('labels = ["a"]', "labels are needed for a choice and only for a choice"),
        ("bins = 4", "low, high and bins are only for a number"),
        ('statistics = "quantiles"', "of a text shares alone are estimated: leave statistics out"),
    ],
)
def test_what_does_not_fit_a_text_is_one_line(more, said):
    with pytest.raises(DefinitionError) as error:
        parse(written(more))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_slots_are_only_for_a_text():
    with pytest.raises(DefinitionError, match="salt, slots and prefixes are only for a text"):
        parse(written("slots = 64").replace('"text"', '"bool"'))


def test_the_same_question_at_another_epsilon_has_the_same_slots():
    e = parse(written('salt = "a"\nslots = 256')).experiment()
    other = at_epsilon(e, 500_000)
    assert (other.epsilon, other.domain) == (500_000, 256)
    assert [other.bucket(text) for text in "abcdef"] == [e.bucket(text) for text in "abcdef"]


def test_a_slot_has_a_number_and_no_name():
    e = parse(written("slots = 16")).experiment()
    assert index_names(e)[3] == "slot 3"
    assert range_name(e, 3, 5) == "slot 3, slot 4"
    text = parse_range(e, "1.2.3")
    assert (text.low, text.high - 1, text.text) == (e.bucket("1.2.3"), e.bucket("1.2.3"), "1.2.3")
    assert words.readings(e, "") == "any text, hashed into 16 slots"


def test_what_it_reads_is_slots_and_levels():
    shown = words.readings(parse(written("prefixes = [2, 3, 4, 4]")).experiment(), "")
    assert shown == "any text, hashed into 65,536 slots for each of 4 prefixes"


def test_a_mechanism_of_pairs_is_not_for_a_number():
    number = written().replace('type = "text"', 'type = "number"\nlow = 0\nhigh = 50\nbins = 50')
    for name, kind in (("views", "a pair"), ("prefix", "texts with prefixes")):
        with pytest.raises(DefinitionError, match=f"^mechanism {name} is for {kind}: take auto$"):
            parse(f'mechanism = "{name}"\n{number}')
