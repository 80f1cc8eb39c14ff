"""Experiment.parse refuses whatever is not exactly right, with the reason; bucket never loses a reading.

What vectors.json has of refused experiments, each with its reason, and of readings and their indices,
test_vectors.py gives to the same client.
"""

import hashlib
import json
import math
import os
from fractions import Fraction

import pytest
from enumeration import distribution
from experiments import experiment_json
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.device import ldp_client
from hushmote.device.ldp_client import ONE, Experiment, ExperimentRefused, LDPError

# An experiment as it goes out to boards, byte for byte.
ROOM_TEMP = (
    b'{"v":1, "name":"room_temp", "type":"number", "low":-20000, "high":50000, "bins":256,\n'
    b' "mechanism":"hh", "fanout":4, "cells":[4,3,3,3], "epsilon":1000000, "every":90,\n'
    b' "budget":{"rule":"sum","cap":4000000}, "window":"day"}'
).replace(b"\n", b"")

MANY = 8 if os.environ.get("LONG") else 1

NUMBER = {"type": "number", "low": -20_000, "high": 50_000, "bins": 256, "mechanism": "grr"}
OLH = {**NUMBER, "mechanism": "olh", "g": 3}
HH = {**NUMBER, "mechanism": "hh", "fanout": 4, "cells": [4, 3, 3, 3]}
CHOICE = {"type": "choice", "labels": ["a", "b"], "mechanism": "grr"}


def parse(**changes):
    return Experiment.parse(experiment_json(**changes))


def refusal(payload):
    with pytest.raises(ExperimentRefused) as caught:
        Experiment.parse(payload.encode() if isinstance(payload, str) else payload)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert isinstance(caught.value, LDPError)
    return text


def test_the_example_of_the_design_has_the_right_derived_numbers():
    exp = Experiment.parse(ROOM_TEMP)
    assert (exp.name, exp.type, exp.low, exp.high, exp.labels) == ("room_temp", "number", -20_000, 50_000, ())
    assert (exp.domain, exp.mechanism, exp.fanout) == (256, "hh", 4)
    assert (exp.epsilon, exp.every, exp.rule, exp.cap, exp.window) == (1_000_000, 90, "sum", 4_000_000, "day")
    assert exp.sha256 == hashlib.sha256(ROOM_TEMP).digest()
    assert exp.digest == exp.sha256[:4]
    columns = ("domain", "g", "t", "width", "seeds", "code_count", "offset", "weight")
    assert [tuple(getattr(level, c) for c in columns) for level in exp.levels] == [
        (4, 4, 0, 64, 1, 4, 0, 1),  # answered directly
        (16, 3, 3, 16, 26, 78, 4, 1),  # 3**3 >= 16
        (64, 3, 4, 4, 80, 240, 82, 1),  # 3**4 >= 64
        (256, 3, 6, 1, 728, 2184, 322, 1),  # 3**6 >= 256 > 3**5
    ]
    assert (exp.weight_sum, exp.code_count, exp.code_bytes) == (4, 2506, 2)
    for level in exp.levels:
        assert level.threshold == int(ONE * math.e / (math.e + level.g - 1))


@pytest.mark.parametrize(("bins", "code_bytes"), [(2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 3)])
def test_a_code_takes_the_fewest_whole_bytes(bins, code_bytes):
    assert parse(**{**NUMBER, "bins": bins, "epsilon": 16_000_000}).code_bytes == code_bytes


def test_a_level_is_drawn_as_often_as_its_weight_says():
    exp = parse(**{**HH, "bins": 27, "fanout": 3, "cells": [3, 2, 2]}, weights=[2, 3, 1])
    chances = distribution(lambda rng: ldp_client.pick(exp, rng).weight)
    assert chances == {2: Fraction(1, 3), 3: Fraction(1, 2), 1: Fraction(1, 6)}


def test_any_kind_of_bytes_is_the_same_experiment():
    assert Experiment.parse(memoryview(ROOM_TEMP)).digest == Experiment.parse(ROOM_TEMP).digest
    assert Experiment.parse(bytearray(ROOM_TEMP)).digest == Experiment.parse(ROOM_TEMP).digest


def test_another_space_is_another_digest():
    assert Experiment.parse(ROOM_TEMP + b" ").digest != Experiment.parse(ROOM_TEMP).digest


@pytest.mark.parametrize(
    ("domain", "fanout", "height"),
    [(125, 5, 3), (126, 5, 4), (2097152, 8, 7), (2, 2, 1), (9, 9, 1), (3, 2, 2)],
)
def test_level_count_is_smallest_that_covers_domain(domain, fanout, height):
    widths = [fanout ** (height - 1 - i) for i in range(height)]
    nodes = [-(-domain // w) for w in widths]
    cells = [n if n < 4 else 3 for n in nodes]
    if domain == 2097152:
        cells[-1] = 131  # 131**3 >= 8**7, and 3 codes of 131 cells stay within 2**24 at no smaller level
        with pytest.raises(ExperimentRefused):
            parse(**{**HH, "bins": domain, "fanout": fanout, "cells": cells})
        cells[-1] = 2  # 2**21 seeds of two cells
    exp = parse(**{**HH, "bins": domain, "fanout": fanout, "cells": cells, "epsilon": 8_000_000})
    assert [(level.domain, level.width) for level in exp.levels] == list(zip(nodes, widths, strict=True))
    for wrong in (cells[:-1], [2, *cells]):
        text = refusal(experiment_json(**{**HH, "bins": domain, "fanout": fanout, "cells": wrong}))
        assert text == f"cells must be a list of {height} integers from 2 to 16777216"


INTEGER_FIELDS = [
    # field, the experiment around it, least, most
    ("v", {}, 1, 1),
    ("epsilon", {}, 1_000, 16_000_000),
    ("every", {}, 1, 2**24),
    ("low", NUMBER, -(2**40), 49_999),
    ("high", NUMBER, -19_999, 2**40),
    ("bins", NUMBER, 2, 2**24),
    ("g", OLH, 2, 251),  # the largest prime below 256
]
NOT_INTEGERS = [1.0, 2.5, True, False, "1", [], {}, [1], 1e300, -0.0]


@pytest.mark.parametrize(("field", "around", "least", "most"), INTEGER_FIELDS)
def test_integer_fields_take_their_range_and_nothing_else(field, around, least, most):
    safe = {"epsilon": 8_000_000} if field != "epsilon" else {}
    for value in (least, most):
        parse(**{**safe, **around, field: value})
    for value in (least - 1, most + 1, -(10**30), 10**30, *NOT_INTEGERS):
        text = refusal(experiment_json(**{**safe, **around, field: value}))
        assert field in text or "low must be less" in text or f"cells: {value} must be" in text


@pytest.mark.parametrize(("field", "around", "least", "most"), INTEGER_FIELDS)
def test_numbers_that_are_no_sizes_are_refused(field, around, least, most):
    for token in (b"NaN", b"Infinity", b"-Infinity", b"1e400", b"1E0", b"10.0", b"-2e12", b"9" * 300):
        payload = experiment_json(**{**around, field: 987_654}).replace(b"987654", token)
        assert token in payload
        refusal(payload)


def test_a_field_that_is_null_is_missing():
    assert refusal(experiment_json().replace(b'"e"', b"null")) == "name is missing"


@pytest.mark.parametrize("name", ["a", "a" * 32, "0_-z", "-", "_"])
def test_names_of_1_to_32_characters_are_taken(name):
    assert parse(name=name).name == name


@pytest.mark.parametrize(
    "labels",
    [[], ["a", "a"], "ab", [1], [""], ["a" * 65], ["a", None], [["a"]], {"a": 1}, ["a", {}], 3, [True]],
)
def test_labels_that_are_not_different_strings_are_refused(labels):
    text = refusal(experiment_json(**{**CHOICE, "labels": labels}))
    assert text == "labels must be different, of 1 to 64 characters"


def test_every_prime_up_to_256_and_no_other_number_is_taken_as_g():
    # Above 256 every hash has at least two digits and so more than 2**24 codes.
    composite = {i * j for i in range(2, 17) for j in range(i, 256 // i + 1)}
    for g in range(2, 257):
        payload = experiment_json(**{**OLH, "bins": 2000, "g": g, "epsilon": 8_000_000})
        if g in composite:
            assert refusal(payload) == f"cells: {g} must be 2000 or a prime below it"
        else:
            assert Experiment.parse(payload).levels[0].g == g


def test_exactly_2_to_the_24_codes_are_taken():
    assert parse(**{**NUMBER, "bins": 2**24, "epsilon": 8_000_000}).code_count == 2**24


def test_the_cost_of_a_report_follows_its_rule():
    caps = {"sum": 2_000_000, "squares": 4 * 10**12, "count": 1}
    for rule, cost in caps.items():
        assert parse(epsilon=2_000_000, budget={"rule": rule, "cap": 2**54 - 1}).cost() == cost
    assert parse(budget={"rule": "unlimited"}).cap == 0


RR = experiment_json()


@pytest.mark.parametrize(
    "payload",
    [
        b" ",
        b"{",
        b"{,}",
        b"[" * 1000,
        b"[" * 500 + b"]" * 500,
        b"truefalse",
        b"[{}]",
        RR[1:],
        RR[:-1],
        RR + b"}",
        RR + b"{}",
        RR + b",",
        RR.replace(b",", b"", 1),
        RR.replace(b",", b" ", 1),
        RR.replace(b",", b",,", 1),
        RR.replace(b":", b"", 1),
        RR.replace(b":", b"::", 1),
        RR.replace(b":", b",", 1),
        RR[:-1] + b",}",
        RR[:-1] + b"]",
        b"[" + RR[1:],
        RR[:-1] + b', "x"}',
        RR[:-1] + b", 5: 6}",
        RR[:-1] + b", null: 6}",
        RR[:-1] + b", []: 6}",
        RR[:-1] + b', "every": -}',
        RR[:-1] + b', "every": }',
        RR.replace(b'"cap"', b"7"),
        RR.replace(b'"e"', b'"e'),
    ],
)
def test_rejects_payload_that_is_not_one_json_object(payload):
    assert refusal(payload) == "not a JSON object"


@pytest.mark.parametrize("token", ["02", "00", "-01", "+1", "0x1", "1.", ".5", "None", "nan", "1-2"])
def test_rejects_invalid_json_numbers(token):
    refusal(experiment_json(every=987_654).replace(b"987654", token.encode()))


def test_deep_nesting_is_refused():
    for deep in (b"[" * 300 + b"]" * 300, b'{"a":' * 120 + b"1" + b"}" * 120, b"[" * 900):
        refusal(experiment_json(v=987_654).replace(b"987654", deep))
        refusal(experiment_json(x=987_654).replace(b"987654", deep))
        refusal(deep)


def strict_loads(text):
    """Return the standard library's reading of JSON, less the constants that RFC 8259 does not know."""

    def no_constant(name):
        raise ValueError(name)

    return json.loads(text, parse_constant=no_constant)


@pytest.mark.slow
@settings(max_examples=250 * MANY)
@given(
    st.sampled_from([RR, ROOM_TEMP, experiment_json(**CHOICE), experiment_json(**OLH, every=7)]),
    st.lists(
        st.tuples(
            st.integers(0, 400),
            st.integers(0, 3),
            st.sampled_from(
                ["", " ", ",", ":", '"', "{", "}", "[", "]", "0", "1", "-", ".", "e", "null", "a"]
            ),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_never_accepts_invalid_json(payload, edits):
    text = payload.decode()
    for at, length, new in edits:
        text = text[: at % len(text)] + new + text[at % len(text) + length :]
    try:
        exp = Experiment.parse(text.encode())
    except ExperimentRefused:
        return
    fields = strict_loads(text)
    assert exp.name == fields["name"]
    assert exp.type == fields["type"]
    assert exp.epsilon == fields["epsilon"]
    assert exp.every == fields.get("every", 1)
    assert list(exp.labels) == fields.get("labels", [])
    assert (exp.low, exp.high) == (fields.get("low", 0), fields.get("high", 0))
    assert {"rule": exp.rule, "cap": exp.cap} == fields["budget"]


@settings(max_examples=50)
@given(
    st.permutations(list(json.loads(ROOM_TEMP).items())),
    st.sampled_from([(",", ":"), (" ,  ", " : "), (", ", ":")]),
)
def test_order_and_spaces_do_not_matter(items, separators):
    exp = Experiment.parse(b" " + json.dumps(dict(items), separators=separators).encode() + b"  ")
    assert exp.code_count == 2506


def test_an_experiment_cut_at_any_byte_is_refused():
    for cut in range(len(ROOM_TEMP)):
        refusal(ROOM_TEMP[:cut])


def test_only_printable_ascii_without_a_backslash_is_taken():
    for byte in (*range(32), 92, *range(127, 256)):
        payload = ROOM_TEMP.replace(b" ", bytes([byte]), 1)
        assert refusal(payload) == "must be printable ASCII without a backslash"


def test_1024_bytes_are_taken_and_1025_are_not():
    assert Experiment.parse(ROOM_TEMP + b" " * (1024 - len(ROOM_TEMP))).name == "room_temp"
    assert refusal(ROOM_TEMP + b" " * (1025 - len(ROOM_TEMP))) == "larger than 1024 bytes"


@settings(max_examples=40 * MANY)
@given(st.binary(max_size=1100))
def test_random_bytes_are_refused_and_nothing_else_happens(payload):
    refusal(payload)


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=100 * MANY)
@given(
    st.sampled_from([{}, CHOICE, NUMBER, OLH, HH]),
    st.sampled_from(
        ["v", "name", "type", "labels", "low", "high", "bins", "mechanism", "g", "fanout", "cells"]
    )
    | st.sampled_from(["weights", "epsilon", "every", "budget", "window", "x"]),
    JSON_VALUES,
)
def test_any_field_value_is_accepted_or_refused_with_reason(around, field, value):
    payload = json.loads(experiment_json(**around))
    payload[field] = value
    try:
        exp = Experiment.parse(json.dumps(payload).encode())
    except ExperimentRefused:
        refusal(json.dumps(payload))
    else:
        assert 2 <= exp.code_count <= 2**24
        assert all(level.threshold * level.g > ONE for level in exp.levels)


# --- Readings --------------------------------------------------------------------------------------


def test_bin_edges_belong_to_the_upper_bin():
    exp = parse(**{**NUMBER, "low": 0, "high": 8_000, "bins": 8})
    for edge in range(1, 8):
        assert exp.bucket(edge) == exp.bucket(float(edge)) == edge
        assert exp.bucket(edge - 0.001) == edge - 1
        assert exp.bucket(edge - 0.0001) == edge, "rounded to the nearest milli-unit first"


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.integers(-(2**40), 2**40 - 1),
    st.integers(1, 2**40),
    st.integers(2, 2**24),
    st.floats(allow_nan=False) | st.integers(),
)
def test_bucket_stays_in_domain_and_is_monotonic(low, span, bins, value):
    high = min(low + span, 2**40)
    exp = parse(**{**NUMBER, "low": low, "high": high, "bins": bins, "epsilon": 16_000_000})
    index = exp.bucket(value)
    assert type(index) is int
    assert 0 <= index < bins
    if isinstance(value, int) or abs(value) < 1e9:
        milli = Fraction(value) * 1000
        slack = Fraction(3, 4) if isinstance(value, float) else 0  # half a milli-unit and double precision
        ideal = [min(max((milli - low + s) * bins / (high - low), 0), bins - 1) for s in (-slack, slack)]
        assert math.floor(ideal[0]) <= index <= math.floor(ideal[1])


@pytest.mark.parametrize(
    ("around", "values", "want"),
    [
        ({}, ["True", b"1", 1.0, 0.0, math.inf, [1], (), {}, object()], "e takes a bool or None"),
        (CHOICE, [b"a", 0, True, 1.5, math.inf, ["a"], object()], "e takes a choice or None"),
        (NUMBER, ["21.4", b"21", True, False, [21], 1j, object()], "e takes a number or None"),
    ],
)
def test_a_reading_of_the_wrong_type_is_a_programming_error(around, values, want):
    exp = parse(**around)
    for value in values:
        with pytest.raises(TypeError) as caught:
            exp.bucket(value)
        assert str(caught.value) == want


def test_every_error_of_the_file_has_one_base():
    errors = [e for e in vars(ldp_client).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert len(errors) >= 6
    assert all(issubclass(e, LDPError) for e in errors)


class TestMissing:
    @pytest.mark.parametrize("value", [None, math.nan, -math.nan])
    @pytest.mark.parametrize(
        ("around", "domain"),
        [
            ({"mechanism": "grr"}, 3),
            (CHOICE, 4),
            (NUMBER, 257),
            (NUMBER | {"mechanism": "pgr", "q": 17}, 257),
        ],
    )
    def test_is_the_last_index(self, around, domain, value):
        exp = parse(**around, missing=1)
        assert (exp.domain, exp.missing) == (domain, domain - 1)
        assert exp.bucket(value) == domain - 1

    def test_leaves_the_other_indices_alone(self):
        with_it, without = parse(**NUMBER, missing=1), parse(**NUMBER)
        for value in (-math.inf, -20, -19.9, 0, 21.4, 49.9, 50, math.inf, 10**30):
            assert with_it.bucket(value) == without.bucket(value)
        choice = parse(**CHOICE, missing=1)
        assert [choice.bucket(label) for label in ("a", "b", "not listed")] == [0, 1, 2]

    def test_is_off_by_default(self):
        exp = parse()
        assert (exp.domain, exp.missing, exp.bucket(None)) == (2, None, None)

    @pytest.mark.parametrize("value", [0, 2, -1, True, False, "1", 1.0, [1]])
    def test_refuses_any_value_but_1(self, value):
        text = refusal(experiment_json(mechanism="grr", missing=value))
        assert text == "missing must be an integer from 1 to 1"

    @pytest.mark.parametrize(
        ("around", "text"),
        [
            ({}, "rr is for two values"),
            (NUMBER | {"mechanism": "sw", "reach": 3}, "sw cannot have missing"),
            ({"type": "text", "salt": "s", "slots": 8, "mechanism": "grr"}, "a text cannot have missing"),
        ],
    )
    def test_is_refused_where_it_makes_no_sense(self, around, text):
        assert refusal(experiment_json(**around, missing=1)) == text

    def test_draws_as_often_as_any_reading(self):
        class Counter:
            draws = 0

            def bernoulli(self, threshold):
                self.draws += 1
                return True

            def below(self, n):
                self.draws += 1
                return 0

        exp = parse(**HH | {"bins": 255}, missing=1)
        counts = set()
        for value in (None, math.nan, -20, 50.0):
            rng = Counter()
            exp.randomize(exp.bucket(value), rng)
            counts.add(rng.draws)
        assert counts == {3}  # the level, the truth, another cell: the top level is answered directly
