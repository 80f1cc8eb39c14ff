"""Suppress the values of an open group that have few reports.

A group's value is sent in the clear, so a histogram of few reports with one value would reveal a lot about a
few boards. Values with fewer than MIN_REPORTS in the period are not shown, and neither is the next smallest
one, because the pooled histogram minus those of all other values would otherwise be that of the suppressed
value. If a single value has all the reports, its histogram is the pooled one, as without a group.

Each period is considered on its own: the difference of two overlapping periods can still reveal a value in
the rest, as it can without a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..words import groups as words
from ..words.numbers import ENGLISH, Numbers
from ..words.text_table import TextTable

MIN_REPORTS = 50
"""The number of reports in a period below which a value is suppressed."""


def suppressed_values(reports: Mapping[str, int]) -> frozenset[str]:
    """Return the values that are not shown: those with few reports, and the next smallest with them.

    Values without reports need no suppression.

    Args:
        reports: The number of reports of each value in the period.
    """
    ascending = sorted((n, value) for value, n in reports.items() if n > 0)
    few = sum(n < MIN_REPORTS for n, _ in ascending)
    return frozenset(value for _, value in ascending[: few + 1] if few)


@dataclass(frozen=True)
class ValueReports:
    """The reports of one value of a group.

    Attributes:
        value: The value.
        reports: Their number, or None if the value is suppressed.
        not_shown: Why the number is not shown, or "".
    """

    value: str
    reports: int | None
    not_shown: str = ""


@dataclass(frozen=True)
class GroupReports:
    """The reports of a period by value of the open group, without the numbers of suppressed values.

    Attributes:
        name: The group's name.
        value: The selected value, or "" for all.
        rows: Each value's reports.
    """

    name: str
    value: str
    rows: tuple[ValueReports, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"name": self.name, "value": self.value or None, "reports": [vars(row) for row in self.rows]}

    def table(self, write: Numbers = ENGLISH) -> TextTable:
        """Return a table of the reports by value; `write` is the number format."""
        rows = [
            (row.value, row.not_shown if row.reports is None else write.number(row.reports, 0))
            for row in self.rows
        ]
        notes = (
            (words.suppression_note(MIN_REPORTS),) if any(row.reports is None for row in self.rows) else ()
        )
        return TextTable("", (self.name, "reports"), rows, notes=notes)


def group_reports(name: str, value: str, reports: Mapping[str, int]) -> GroupReports:
    """Return the reports by value, as they may be shown.

    Args:
        name: The group's name.
        value: The selected value, or "".
        reports: The number of reports of each value in the period, in the order of the rows.
    """
    suppressed = suppressed_values(reports)

    def row(value: str, n: int) -> ValueReports:
        if value not in suppressed:
            return ValueReports(value, n)
        few = n < MIN_REPORTS
        return ValueReports(value, None, words.fewer_than(MIN_REPORTS) if few else words.NEXT_SMALLEST)

    return GroupReports(name, value, tuple(row(each, n) for each, n in reports.items()))
