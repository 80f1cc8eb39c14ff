"""Definitions of pairs, and the conditions and names of their cells."""

from typing import Any

import numpy as np
import pytest
from refusals import Refusal, fails, refusals

from hushmote.server.experiments import cells
from hushmote.server.experiments.definition import Definition, DefinitionError, parse
from hushmote.server.experiments.payload import at_epsilon
from hushmote.server.experiments.units import UnitsError, index_names, unit_of_part
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.views.factors import parts_of
from hushmote.server.words import experiment as words

HEAD = """
name = "crash_by_version"
purpose = "Do old versions crash more?"
owner = "firmware@example.org"
expires = 9999-12-31
type = "pair"
epsilon = 2
"""
VERSION = '[[of]]\nname = "version"\ntype = "choice"\nlabels = ["1.2", "1.3"]\n'
CRASHED = '[[of]]\nname = "crashed"\ntype = "bool"\n'
DELAY = '[[of]]\nname = "delay"\ntype = "number"\nunit = "min"\nlow = 0\nhigh = 40\nbins = 8\n'
BUDGET = '[budget]\nrule = "unlimited"\n'


def toml(*parts: str, **fields: Any) -> str:
    more = "".join(f'{name} = "{value}"\n' for name, value in fields.items())
    return HEAD + more + "".join(parts or (VERSION, CRASHED)) + BUDGET


def defined(*parts: str, **fields: Any) -> Definition:
    return parse(toml(*parts, **fields))


class TestDefinition:
    def test_becomes_the_payload_for_boards(self):
        definition = defined(VERSION, DELAY, CRASHED)
        e = definition.experiment()
        assert [part.name for part in parts_of(e)] == ["version", "delay", "crashed"]
        assert [part.domain for part in parts_of(e)] == [3, 8, 2]
        assert e.domain == definition.domain == 48
        assert definition.unit == "min"
        assert e.bucket(("1.3", 12.5, True)) == (1 * 8 + 2) * 2 + 1
        assert "unit" not in definition.payload().decode()

    def test_unit_comes_from_the_pair_or_its_parts(self):
        assert defined(VERSION, DELAY, unit="s").unit == "s"
        other = DELAY.replace("delay", "way").replace("min", "km")
        both = defined(DELAY, other)
        assert (both.unit, both.description().unit) == ("", "delay: min, way: km")
        parts = parts_of(both.experiment())
        units = [unit_of_part("delay: min, way: km", parts, name) for name in ("delay", "way")]
        assert units == ["min", "km"]
        assert unit_of_part("min", parts, "way") == "min"

    @pytest.mark.parametrize(
        ("statistics", "given", "views"),
        [
            ("joint", None, None),
            ("marginals", None, [[0], [1]]),
            ("tables", None, [[0], [1], [0, 1]]),
            ("conditional", None, None),
            ("conditional", "crashed", [[0], [0, 1]]),
            ("differences", None, None),
        ],
        ids=str,
    )
    def test_statistics_determine_the_views(self, statistics, given, views):
        fields = {"statistics": statistics} | ({"given": given} if given else {})
        version = VERSION.replace('"1.3"', ", ".join(f'"1.{i}"' for i in range(3, 9)))
        mechanism = mechanism_of(defined(version, CRASHED, **fields).experiment())
        assert mechanism.fields().get("views") == views

    def test_keeps_views_at_another_epsilon(self):
        head = HEAD + 'mechanism = "views"\nviews = [[0], [0, 1]]\ncells = [3, 6]\nweights = [1, 3]\n'
        definition = parse(head + VERSION + CRASHED + BUDGET)
        assert definition.parameters == {"views": [[0], [0, 1]], "cells": [3, 6], "weights": [1, 3]}
        e = at_epsilon(definition.experiment(), 1_000_000)
        assert mechanism_of(e).fields()["views"] == [[0], [0, 1]]
        assert mechanism_of(e).words() == "views, version 25%, version x crashed 75%"

    @refusals(
        (HEAD + BUDGET, "[[of]] tables, one for each part, are needed for a pair"),
        (toml(VERSION), "of: a pair has 2 or 3 parts"),
        (toml(VERSION, CRASHED, DELAY, DELAY.replace("delay", "d2")), "of: a pair has 2 or 3 parts"),
        (toml(VERSION, VERSION), "of: two parts are called version"),
        (toml(VERSION, CRASHED.replace("bool", "pair")), "of.1.type"),
        (toml(VERSION, CRASHED.replace("crashed", "Crashed!")), "of.1.name"),
        (toml(VERSION, CRASHED + "labels = ['a']\n"), "of.1: labels are needed for a choice and only"),
        (
            toml(VERSION, CRASHED + "lable = ['a']\n"),
            "of.1.lable is not a field of an experiment: did you mean",
        ),
        (toml(VERSION, CRASHED + "window = 'day'\n"), "window belongs above the first line"),
        (toml(VERSION.replace('"1.3"', '"other"'), CRASHED), "the label other is always added"),
        (toml(DELAY.replace("high = 40\n", ""), CRASHED), "low, high and bins are needed"),
        (
            toml(statistics="ranges"),
            "statistics of a pair must be one of joint, marginals, tables, conditional",
        ),
        (toml(statistics="joint", given="version"), "given is only for a pair, with statistics"),
        (toml(given="vresion"), "given must be one of version, crashed"),
        (toml().replace('"pair"', '"bool"'), r"only for a pair"),
        (
            toml(
                DELAY.replace("bins = 8", "bins = 5000"), DELAY.replace("delay", "d").replace("8\n", "5000\n")
            ),
            "16777216",
        ),
        (
            HEAD.replace("pair", "bool") + 'statistics = "conditional"\n' + BUDGET,
            "statistics of a bool must be one of",
        ),
        call=lambda text: parse(text).payload(),
        error=DefinitionError,
    )
    def test_rejects_invalid_pairs_in_one_line(self, refusal: Refusal):
        refusal.check()

    def test_describes_readings(self):
        e = defined(VERSION, DELAY).experiment()
        assert (
            words.readings(e, "min") == "version (1.2, 1.3, other) with delay (0 to 40 min, 8 bins of 5 min)"
        )
        names = index_names(e)
        assert len(names) == 24
        assert names[9] == "1.3, 5 to 10"


# --- Conditions -----------------------------------------------------------------------------------


def met(text: str) -> set[tuple[int, ...]]:
    e = defined(VERSION, DELAY, CRASHED).experiment()
    indices = np.flatnonzero(cells.parse(e, text).cells)
    return {tuple(int(i) for i in np.unravel_index(index, (3, 8, 2))) for index in indices}


class TestConditions:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("version=1.3", {(1, d, c) for d in range(8) for c in range(2)}),
            ("version=other", {(2, d, c) for d in range(8) for c in range(2)}),
            ("version!=1.3", {(v, d, c) for v in (0, 2) for d in range(8) for c in range(2)}),
            ("version=1.2|other & crashed=yes", {(v, d, 1) for v in (0, 2) for d in range(8)}),
            ("delay=10:20&crashed=no", {(v, d, 0) for v in range(3) for d in (2, 3)}),
            ("delay=below 5|35 and above", {(v, d, c) for v in range(3) for d in (0, 7) for c in range(2)}),
            ("delay=10 to 15|15 to 20&crashed=no", {(v, d, 0) for v in range(3) for d in (2, 3)}),
            ("delay=:5|35:", {(v, d, c) for v in range(3) for d in (0, 7) for c in range(2)}),
        ],
        ids=lambda value: value if isinstance(value, str) else f"{len(value)} cells",
    )
    def test_select_their_cells(self, text, expected):
        assert met(text) == expected

    @refusals(
        ("crashed", "a condition must be part=value"),
        ("", "a condition must be part=value"),
        ("vresion=1.2", "crash_by_version has no part vresion; it has version, delay, crashed"),
        ("version=9", "version has no label 9; it has 1.2, 1.3, other"),
        ("crashed=maybe", "crashed has no label maybe; it has no, yes"),
        ("delay=5", "a range must be low:high"),
        ("delay=11:12", "contains no whole bin"),
        ("crashed=yes&crashed=no", "selects no cell"),
        ("version=1.2|1.3|other&version!=1.2|1.3|other", "selects no cell"),
        call=met,
        error=UnitsError,
    )
    def test_error_is_one_line(self, refusal: Refusal):
        refusal.check()


class TestGroups:
    def test_merge_numbers_but_not_labels(self):
        e = defined(VERSION, DELAY).experiment()
        shown = cells.groups(e, 1, 3)
        assert [c.text for c in shown] == ["delay=below 15", "delay=15 to 30", "delay=30 and above"]
        assert np.sum([c.cells for c in shown], axis=0).tolist() == [1.0] * 24
        assert [c.text for c in cells.groups(e, 0, 1)] == ["version=1.2", "version=1.3", "version=other"]

    def test_end_with_a_missing_reading(self):
        e = defined(VERSION, DELAY + "missing = true\n").experiment()
        *numbers, missing = cells.groups(e, 1, 3)
        assert [c.text for c in numbers] == ["delay=below 15", "delay=15 to 30", "delay=30 and above"]
        assert missing.text == "delay=no reading"
        assert missing.cells.tolist() == [*[0.0] * 8, 1.0] * 3
        assert cells.having(e, (1,)).tolist() == [*[1.0] * 8, 0.0] * 3


class TestParts:
    def test_exist_only_in_pairs(self):
        e = parse(HEAD.replace("pair", "bool") + BUDGET).experiment()
        with fails("only a pair has parts", UnitsError):
            cells.parse(e, "version=1")
