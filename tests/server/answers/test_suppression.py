"""Values of an open group with few reports, which are not shown."""

from itertools import product

import pytest

from hushmote.server.answers.suppression import MIN_REPORTS, group_reports, suppressed_values
from hushmote.server.words.groups import NEXT_SMALLEST

COUNTS = (0, 1, 2, 48, 49, 50, 51, 100)
VALUES: tuple[str, ...] = ("2.3.1", "2.4.0", "2.5.0", "other")


def _enumerated() -> list[dict[str, int]]:
    return [dict(zip(VALUES, counts, strict=True)) for counts in product(COUNTS, repeat=len(VALUES))]


class TestSuppressedValues:
    def test_pooled_minus_shown_hides_each_value(self):
        """Enumerate all counts: what is not shown has no reports, or those of two values."""
        for reports in _enumerated():
            suppressed = suppressed_values(reports)
            hidden = {value: n for value, n in reports.items() if value in suppressed}
            with_reports = {value: n for value, n in reports.items() if n}
            assert all(n > 0 for n in hidden.values()), reports
            if len(with_reports) > 1:
                assert len(hidden) != 1, reports
            else:  # the pooled histogram is this value's
                assert hidden in ({}, with_reports), reports
            few = {value for value, n in with_reports.items() if n < MIN_REPORTS}
            assert few <= suppressed, reports
            if few and len(few) < len(with_reports):
                assert sum(hidden.values()) >= MIN_REPORTS, reports

    def test_shows_whatever_need_not_be_hidden(self):
        """Enumerate all counts: one value with enough reports is hidden, and it is the smallest."""
        for reports in _enumerated():
            suppressed = suppressed_values(reports)
            enough = sorted(n for n in reports.values() if n >= MIN_REPORTS)
            hidden = [reports[value] for value in suppressed if reports[value] >= MIN_REPORTS]
            few = any(0 < n < MIN_REPORTS for n in reports.values())
            assert hidden == (enough[:1] if few else []), reports

    @pytest.mark.parametrize(
        ("reports", "suppressed"),
        [
            ((0, 0, 0, 0), set()),
            ((50, 50, 60, 0), set()),
            ((49, 900, 80, 0), {"2.3.1", "2.5.0"}),
            ((3, 4, 900, 800), {"2.3.1", "2.4.0", "other"}),
            ((3, 4, 0, 800), {"2.3.1", "2.4.0", "other"}),
            ((0, 7, 0, 0), {"2.4.0"}),
        ],
    )
    def test_includes_the_next_smallest(self, reports: tuple[int, ...], suppressed: set[str]):
        assert suppressed_values(dict(zip(VALUES, reports, strict=True))) == suppressed

    def test_does_not_depend_on_the_order(self):
        reports = {"2.3.1": 60, "2.4.0": 60, "other": 1}
        backwards = dict(reversed(reports.items()))
        assert suppressed_values(reports) == suppressed_values(backwards) == {"2.3.1", "other"}


class TestGroupReports:
    def test_names_suppressed_values_without_their_numbers(self):
        reports = dict(zip(VALUES, (1_200, 49, 60, 0), strict=True))
        rows = group_reports("firmware", "2.3.1", reports).to_dict()
        assert rows == {
            "name": "firmware",
            "value": "2.3.1",
            "reports": [
                {"value": "2.3.1", "reports": 1_200, "not_shown": ""},
                {"value": "2.4.0", "reports": None, "not_shown": "fewer than 50 reports"},
                {"value": "2.5.0", "reports": None, "not_shown": NEXT_SMALLEST},
                {"value": "other", "reports": 0, "not_shown": ""},
            ],
        }
