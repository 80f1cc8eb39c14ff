"""Pairs on the board: a tuple's index, invalid definitions, and the codes of a view.

tests/contracts/test_epsilon.py proves privacy, and test_privacy.py proves it for report().
"""

from itertools import product
from typing import Any

import pytest
from experiments import experiment_json
from reference_board import domain_of, view_node_of
from refusals import Refusal, refusals

from hushmote.device.ldp_client import Experiment, ExperimentRefused
from hushmote.server.mechanisms.views.factors import parts_of

VERSION = {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]}
CRASHED = {"name": "crashed", "type": "bool"}
DELAY = {"name": "delay", "type": "number", "low": 0, "high": 8_000, "bins": 4}


def pair_json(*of: Any, **changes: Any) -> bytes:
    fields = {"type": "pair", "of": list(of or (VERSION, CRASHED)), "mechanism": "grr"}
    return experiment_json(**fields | changes)


def views_json(*views: list[int], cells: list[int], of: Any = (VERSION, CRASHED), **changes: Any) -> bytes:
    return pair_json(*of, **{"mechanism": "views", "views": list(views), "cells": cells} | changes)


class TestMissing:
    MISSING = CRASHED | {"missing": 1}

    def test_is_its_parts_last_value(self):
        e = Experiment.parse(pair_json(VERSION, self.MISSING))
        assert (e.domain, e.missing) == (9, None)
        assert [e.bucket(("1.3", value)) for value in (False, True, None, float("nan"))] == [3, 4, 5, 5]

    def test_part_without_setting_makes_the_pair_missing(self):
        e = Experiment.parse(pair_json(VERSION, self.MISSING))
        assert [e.bucket(value) for value in ((None, True), (None, None), None)] == [None] * 3

    def test_is_last_index_if_all_parts_are_missing(self):
        e = Experiment.parse(pair_json(VERSION | {"missing": 1}, self.MISSING))
        assert (e.domain, e.missing) == (12, 11)
        assert [e.bucket(value) for value in ((None, True), (None, None), None, ("1.2", None))] == [
            10,
            11,
            11,
            2,
        ]

    def test_is_rejected_as_a_pair_field(self):
        with pytest.raises(ExperimentRefused, match=r"^unknown field missing$"):
            Experiment.parse(pair_json(missing=1))


class TestIndex:
    def test_matches_the_joint_table(self):
        e = Experiment.parse(pair_json(VERSION, DELAY, CRASHED))
        assert e.domain == 3 * 4 * 2
        for (a, version), (b, delay), (c, crashed) in product(
            enumerate(["1.2", "1.3", "nobody's"]), enumerate([-1, 2.5, 5, 9e9]), enumerate([False, 7])
        ):
            assert (
                e.bucket((version, delay, crashed))
                == e.bucket([version, delay, crashed])
                == (a * 4 + b) * 2 + c
            )

    @pytest.mark.parametrize(
        "reading",
        [None, (None, True), ("1.2", None), (None, None), ("1.2", float("nan"))],
        ids=["pair", "first", "second", "both", "nan"],
    )
    def test_is_missing_if_any_part_is_missing(self, reading: Any):
        assert Experiment.parse(pair_json()).bucket(reading) is None

    @pytest.mark.parametrize(
        "reading",
        ["1.2", ("1.2",), ("1.2", True, True), {}, 3, (), b"12"],
        ids=["string", "one part", "three parts", "object", "number", "no parts", "bytes"],
    )
    def test_rejects_reading_of_wrong_length_or_type(self, reading: Any):
        with pytest.raises(TypeError, match=r"^e must be a pair or None$"):
            Experiment.parse(pair_json()).bucket(reading)

    @pytest.mark.parametrize(
        ("reading", "text"),
        [((1, True), "version must be a choice"), ((None, "y"), "crashed must be a bool")],
        ids=["choice", "bool"],
    )
    def test_names_wrong_part_next_to_missing_reading(self, reading: Any, text: str):
        with pytest.raises(TypeError, match=f"^{text} or None$"):
            Experiment.parse(pair_json()).bucket(reading)


DESIGNS = (
    views_json([0], [1], cells=[3, 2]),
    views_json([0], [1], [0, 1], cells=[2, 2, 5], weights=[1, 0, 3], epsilon=2_000_000),
    views_json([1], [0, 2], [0, 1, 2], of=(VERSION, DELAY | {"bins": 2}, CRASHED), cells=[2, 5, 3]),
)


class TestDefinition:
    @refusals(
        (None, "of is missing"),
        ([], "of must be 2 or 3 objects"),
        ([VERSION], "of must be 2 or 3 objects"),
        ([VERSION] * 4, "of must be 2 or 3 objects"),
        ({"a": VERSION, "b": CRASHED}, "of must be 2 or 3 objects"),
        ([VERSION, 3], "of must be 2 or 3 objects"),
        ([VERSION, VERSION], "wrong name"),
        ([VERSION, CRASHED | {"name": "No"}], "wrong name"),
        ([VERSION, CRASHED | {"name": 3}], "wrong name"),
        ([VERSION, {"type": "bool"}], "name is missing"),
        (
            [VERSION, {"name": "a", "type": "pair", "of": [VERSION, CRASHED]}],
            "this board does not support type pair",
        ),
        (
            [VERSION, {"name": "a", "type": "text", "salt": "s", "slots": 2}],
            "this board does not support type text",
        ),
        ([VERSION, CRASHED | {"unit": "s"}], "unknown field unit in of"),
        ([VERSION, DELAY | {"bins": 1}], "bins must be an integer"),
        ([DELAY | {"bins": 5_000}, DELAY | {"name": "b", "bins": 5_000}], "too many values"),
        call=lambda of: Experiment.parse(experiment_json(type="pair", mechanism="grr", of=of)),
        error=ExperimentRefused,
    )
    def test_rejects_invalid_parts(self, refusal: Refusal):
        refusal.check()

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"views": None}, "views is missing"),
            ({"views": 3}, "lists of a pair's parts"),
            ({"views": []}, "weights must not all be 0|cells must"),
            ({"views": [[0], 3]}, "differ and ascend"),
            ({"views": [[0], []]}, "differ and ascend"),
            ({"views": [[0], [1, 0]]}, "differ and ascend"),
            ({"views": [[0], [0]]}, "differ and ascend"),
            ({"views": [[0], [2]]}, "differ and ascend"),
            ({"views": [[0], [1, 2]]}, "differ and ascend"),
            ({"views": [[0], [True]]}, "differ and ascend"),
            ({"views": [[0], "1"]}, "differ and ascend"),
            ({"views": [[0], [1, 1]]}, "differ and ascend"),
            ({"views": [[0], [0, 1]], "cells": [3, 2, 2]}, "list of 2 integers"),
            ({"views": [[0], [0, 1]], "cells": [3, 4]}, "must be 6 or a prime below it"),
            ({"views": [[0], [0, 1]], "cells": [3, 5], "weights": [0, 0]}, "must not all be 0"),
            ({"views": [[0], [0, 1]], "cells": [3, 5], "weights": [1]}, "list of 2 integers"),
            ({"type": "bool"}, "a pair's parts"),
        ],
        ids=range(17),
    )
    def test_rejects_invalid_views(self, changes: dict[str, Any], text: str):
        with pytest.raises(ExperimentRefused, match=text):
            Experiment.parse(views_json([0], [1], **{"cells": [3, 2]} | changes))

    @pytest.mark.parametrize("payload", DESIGNS, ids=range(len(DESIGNS)))
    def test_view_has_its_cells_codes(self, payload: bytes):
        """Check every index's true code, with the first seed, on every view that can be drawn."""
        e = Experiment.parse(payload)
        fields = {"of": [{"type": p.type, "labels": list(p.labels), "bins": p.domain} for p in parts_of(e)]}
        assert e.domain == domain_of({"type": "pair"} | fields)
        start = 0
        for level, view in zip(e.levels, vars(e)["views"], strict=True):
            draws = {e.weight_sum: start, level.seeds: 0}
            start += level.weight
            for index in range(e.domain) if level.weight else ():
                rng = Scripted(draws)
                node = view_node_of(fields, view, index)
                assert e.randomize(index, rng) == level.offset + (node % level.g if level.t else node)


class Scripted:
    """A random source with given outcomes of below() by range, or else 0, that always draws the truth."""

    def __init__(self, outcomes: dict[int, int]) -> None:
        self._outcomes = [*outcomes.items()]

    def below(self, n: int) -> int:
        if self._outcomes and self._outcomes[0][0] == n:
            return self._outcomes.pop(0)[1]
        return 0

    def bernoulli(self, threshold: int) -> bool:
        return threshold > 0
