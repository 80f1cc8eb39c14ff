"""Sets of report numbers match plain sets, are bounded, and never reject an honest report as too late."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, FrozenBitMap

from hushmote.server.store.number_set import MAX_BYTES, MAX_CONTAINERS, NumberSet

OUTBOX = 16  # the maximum number of reports queued on a board
BLOCK = 1 << 16  # report numbers per container
LAST = (1 << 32) - 1
ROW_BYTES = 20_000


def number_set(numbers):
    """Build a set of these numbers at once, because a bitmap reads a stepped range slowly."""
    return NumberSet().union(NumberSet(0, FrozenBitMap(list(numbers))))


def added_set(*numbers):
    """Build a set of these numbers by adding one after another."""
    actual = NumberSet()
    for number in itertools.chain(*numbers):
        actual = actual.add(number)
    return actual


def round_trip(actual):
    """Write and read a set; return it and its size in bytes."""
    text, beyond = actual.encode()
    return NumberSet.decode(text, beyond), len(text) + len(beyond or b"")


class Model:
    """A plain set of counted numbers, and the number up to which all numbers are settled."""

    def __init__(self):
        self.counted = set()
        self.closed = 0

    def __contains__(self, number):
        return number <= self.closed or number in self.counted

    @property
    def highest(self):
        return max(self.counted, default=0)

    def agrees(self, actual):
        assert len(actual) == len(self.counted)
        assert actual.highest == max(self.highest, self.closed)
        near = {n + by for n in self.counted | {self.closed, 1} for by in (-1, 0, 1)}
        assert {n for n in near if 0 < n <= LAST and n in actual} == {n for n in near if n > 0 and n in self}
        # A set has one representation: the first gap is above `whole`, and `beyond` is above the gap.
        assert actual.whole == LAST or actual.whole + 1 not in actual
        assert not actual.beyond or actual.beyond.min() > actual.whole + 1
        assert actual.late == actual.whole + len(actual.beyond) - len(self.counted)


FIRST = (
    st.integers(1, 60) | st.integers(1, 3000) | st.integers(BLOCK - 700, BLOCK + 10) | st.integers(1, LAST)
)
RUNS = st.builds(lambda first, count: range(first, min(first + count, LAST + 1)), FIRST, st.integers(1, 700))
ALTERNATING = st.builds(
    lambda first, count, step: range(first, min(first + count * step, LAST + 1), step),
    FIRST,
    st.integers(1, 90),
    st.integers(2, 5),
)
NUMBERS = RUNS | ALTERNATING | RUNS.map(reversed).map(list) | st.lists(FIRST, max_size=20)
STEPS = st.lists(
    st.tuples(st.just("add"), NUMBERS)
    | st.tuples(st.just("late"), st.integers(0, 900))
    | st.tuples(st.just("merge"), NUMBERS)
    | st.tuples(st.sampled_from(["seal", "store"]), st.none()),
    max_size=12,
)


# Arbitrary device input


def spread(count, below):
    return np.random.default_rng(1).integers(1, below, count, np.uint32).tolist()


FORGED = {
    "alternating": range(1, 80_000, 2),
    "alternating, of 160,000": range(2, 160_000, 2),
    "one for each container": range(5, 1 << 32, BLOCK),
    "two for each container": [n for start in range(5, 1 << 32, BLOCK) for n in (start, start + 2)],
    "arrays that are just no bitmap": [
        n for start in range(2, 20 * BLOCK, BLOCK) for n in range(start, start + 8190, 2)
    ],
    "full containers with one gap": [n for n in range(1, 80_000) if n % 1000],
    "random in 2^17": spread(80_000, 1 << 17),
    "random in 2^18": spread(80_000, 1 << 18),
    "random in 2^24": spread(80_000, 1 << 24),
    "random in 2^32": spread(80_000, 1 << 32),
}


def calls(work):
    """Return the number of Python and C functions that `work` calls."""
    total = 0

    def count(_frame, event, _what):
        nonlocal total
        total += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return total


class TestLimit:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", FORGED)
    def test_any_80_000_numbers_stay_small_and_fast(self, name):
        actual = number_set(FORGED[name])
        restored, size = round_trip(actual)
        assert size <= ROW_BYTES
        assert len(restored) == len(actual)
        assert restored.beyond.get_statistics()["n_containers"] <= MAX_CONTAINERS
        assert all(number in restored for number in FORGED[name])
        row = restored.encode()
        for number in (
            restored.whole + 1,
            restored.highest + 1,
            restored.highest + 2,
            restored.highest + 2 * BLOCK,
        ):
            if number <= LAST:
                # Each call handles one container, or all of at most MAX_BYTES and MAX_CONTAINERS.
                assert calls(lambda number=number: NumberSet.decode(*row).add(number).encode()) < 250

    @pytest.mark.slow
    def test_full_row_stays_full_under_forgery(self):
        actual = NumberSet()
        for start in range(0, 4000 * BLOCK, 40 * BLOCK):
            for number in range(start + 9, start + 40 * BLOCK, BLOCK):
                actual = actual.add(number)
            actual, size = round_trip(actual)
            assert size <= ROW_BYTES
        assert len(actual) == 4000
        assert MAX_CONTAINERS * 3 // 4 < actual.beyond.get_statistics()["n_containers"] <= MAX_CONTAINERS

    def test_closes_gaps_only_beyond_the_most_containers(self):
        full = number_set(range(9, MAX_CONTAINERS * BLOCK, BLOCK))
        assert full.narrow() is full
        narrowed = full.add(MAX_CONTAINERS * BLOCK + 9).narrow()
        closed = MAX_CONTAINERS // 8 + 1
        assert narrowed.whole == closed * BLOCK - 1
        assert narrowed.late == closed * BLOCK - 1 - closed
        assert len(narrowed) == MAX_CONTAINERS + 1
        assert (
            narrowed.beyond
            == number_set(range(closed * BLOCK + 9, (MAX_CONTAINERS + 1) * BLOCK, BLOCK)).beyond
        )

    def test_closes_gaps_only_beyond_the_most_bytes(self):
        two_bitmaps = BitMap([*range(BLOCK, 3 * BLOCK, 2)])
        intervals = (MAX_BYTES - len((two_bitmaps | BitMap([9])).serialize())) // 2
        full = number_set(two_bitmaps | BitMap([*range(9, 9 + 5 * (intervals + 1), 5)]))
        assert MAX_BYTES - 2 < len(full.beyond.serialize()) <= MAX_BYTES
        assert full.narrow() is full
        narrowed = full.add(7).narrow()
        assert narrowed.whole == BLOCK  # the last of these was counted
        assert BLOCK + 1 not in narrowed
        assert len(narrowed) == len(full) + 1
        assert narrowed.late == BLOCK - 1 - (intervals + 2)


# Honest boards

MOVES = st.lists(
    st.sampled_from(["make", "make", "send", "send all", "lose", "again", "opt out"]), max_size=400
)


class TestHonestBoard:
    @given(MOVES, st.data())
    @settings(max_examples=60)
    def test_report_is_never_too_late(self, moves, data):
        last_number, outbox, sent, actual = 0, [], [], NumberSet()
        for move in moves:
            if move == "make" and len(outbox) < OUTBOX:
                last_number += 1
                outbox.append(last_number)
            elif move == "opt out":
                outbox = []
            elif move == "again" and sent:  # a copy of an acknowledged report, however old
                actual, _ = round_trip(actual.add(data.draw(st.sampled_from(sent))))
            elif outbox and move in ("send", "send all", "lose"):
                for number in outbox[: len(outbox) if move == "send all" else 1]:
                    outbox.remove(number)
                    if move != "lose":
                        assert number not in actual
                        actual, _ = round_trip(actual.add(number))
                        sent.append(number)
        assert len(actual) == len(sent)

    @given(st.integers(0, 40_000), st.integers(0, BLOCK - 2), st.integers(2, 5), st.booleans())
    @settings(max_examples=10)
    def test_reports_for_an_absent_aggregator_are_counted(self, before, more, members, old):
        """A broker divides a board's reports among a group in which one member is temporarily offline.

        old: whether the row's set had lost many of its oldest numbers already.
        """
        settled = number_set(range(1, before + 1, 3)) if old else NumberSet(before)
        numbers = range(before + 1, before + 2 + more)
        waiting = numbers[::members]
        waits = set(waiting)
        actual, _ = round_trip(settled.union(number_set(n for n in numbers if n not in waits)))
        assert actual.late == 0
        assert not any(number in actual for number in waiting)
        assert len(actual.union(number_set(waiting))) == len(settled) + len(numbers)

    def test_newest_65_536_numbers_keep_their_gaps_open(self):
        for highest in (4 * BLOCK, 4 * BLOCK + 5, 5 * BLOCK - 1):
            actual, _ = round_trip(number_set(range(highest, 0, -2)))
            assert actual.late > 0
            assert all(number not in actual for number in range(highest - 1, highest - BLOCK, -2))

    def test_scattered_losses_close_no_gap(self):
        missing = set(range(50, 100_000, 97))
        actual, size = round_trip(number_set(n for n in range(1, 100_000) if n not in missing))
        assert not any(number in actual for number in missing)
        assert len(actual) == 99_999 - len(missing)
        assert size < 5 * len(missing)


class TestOperations:
    @pytest.mark.slow
    @given(STEPS)
    @settings(max_examples=100)
    def test_agree_with_a_plain_set(self, steps):
        actual, model = NumberSet(), Model()
        for step, argument in steps:
            if step == "late":  # numbers that arrived later than their neighbours, oldest first
                gaps = (n for n in range(model.closed + 1, model.highest) if n not in model)
                step, argument = "add", list(itertools.islice(gaps, argument))
            if step == "add":
                for number in argument:
                    wider = actual.add(number)
                    assert (wider is actual) == (number in actual) == (number in model)
                    assert number in wider
                    actual = wider
                    if number not in model:
                        model.counted.add(number)
            elif step == "merge":
                other = added_set(n for n in argument if n not in model)
                assert actual.union(other) == other.union(actual)
                actual = actual.union(other)
                model.counted |= {n for n in argument if n not in model}
            elif step == "seal":
                actual = actual.seal()
                model.closed = max(model.closed, model.highest)
            else:
                restored, size = round_trip(actual)
                assert (restored, hash(restored)) == (actual, hash(actual))
                assert size <= ROW_BYTES
                actual = restored
            model.agrees(actual)
        assert added_set(sorted(model.counted)) == added_set(sorted(model.counted, reverse=True))

    @pytest.mark.slow
    @given(NUMBERS, NUMBERS)
    def test_sealed_set_is_whole_and_accepts_no_old_number(self, some, more):
        actual = added_set(some, more)
        sealed = actual.seal()
        assert sealed == NumberSet(actual.highest, late=actual.highest - len(actual))
        assert len(sealed) == len(actual)
        assert sealed.seal() == sealed
        assert round_trip(sealed)[0] == sealed
        if actual.highest < LAST:
            assert sealed.add(actual.highest + 1).whole == actual.highest + 1


# Damage

MALFORMED = ["x", "1", "1-", "3-1", "1-2,2-4", "5-6,1-2", "1-2,", "-1-2", "1-2;3-4", "0-5", "1-4294967296"]
MALFORMED += ["~1-2", "3~", "3~1-3", "1-2+", "1-2+5", "1-2+5:7", "1-2+2:3", "+5:g", "2~3~1-9", "1-9999999999"]


def serialized(numbers):
    bitmap = BitMap(numbers)
    bitmap.run_optimize()
    return bitmap.serialize()


BITMAPS = [
    serialized(numbers)
    for numbers in (
        [3],
        range(3, 90),
        range(3, 9000, 2),
        range(3, 40 * BLOCK, BLOCK),
        [*range(5, 70), *range(99, 140_000)],
    )
]


class TestEncoding:
    def test_many_intervals_survive_the_round_trip(self):
        numbers = [*range(1, 67, 2), *range(100, 613)]
        actual = added_set(numbers)
        restored, _ = round_trip(actual)
        assert restored == actual
        assert [n for n in range(1, 700) if n in restored] == numbers

    def test_without_gaps_is_a_short_text(self):
        assert added_set(range(1, 58)).encode() == ("1-57", None)
        assert added_set([2, 1, 3]).encode() == ("1-3", None)
        assert added_set(range(1, 58)).seal().encode() == ("1-57", None)
        assert added_set([57]).seal().encode() == ("56~1-57", None)
        assert NumberSet().encode() == ("", None)

    @pytest.mark.parametrize(
        ("text", "numbers", "late"),
        [
            ("", [], 0),
            ("1-57", range(1, 58), 0),
            ("3~1-57", range(1, 58), 3),
            ("2-3,7-9", [2, 3, 7, 8, 9], 0),
            ("5~4-9,11-11", [*range(4, 10), 11], 5),
            ("1-2,5-6+60:f", [1, 2, 5, 6, 60, 62], 0),
            ("+1:9", [1, 2, 3], 0),
            ("1-1,4294967295-4294967295", [1, LAST], 0),
        ],
        ids=["empty", "interval", "late", "gap", "late and gap", "bitmap", "bitmap alone", "last number"],
    )
    def test_of_an_older_version_is_read(self, text, numbers, late):
        # Intervals, or for many intervals a bit per start and end among the newest, and the number of late
        # ones.
        actual = NumberSet.decode(text)
        plain = added_set(numbers)
        assert (actual.whole, actual.beyond) == (plain.whole, plain.beyond)
        assert len(actual) == len(numbers) - late
        assert round_trip(actual)[0] == actual

    @pytest.mark.parametrize("text", MALFORMED)
    def test_rejects_a_malformed_text(self, text):
        with pytest.raises(ValueError, match="set of report numbers"):
            NumberSet.decode(text)

    @pytest.mark.parametrize(
        ("text", "beyond"),
        [
            ("1-57", [58, 60]),  # 58 belongs to 1-57
            ("1-57", [57]),
            ("", [1, 7]),
            ("", [0, 7]),
            ("2-9", [9, 70]),
            ("9~1-7", [70, 71]),  # nine late of nine
        ],
        ids=str,
    )
    def test_rejects_a_bitmap_that_contradicts_its_text(self, text, beyond):
        with pytest.raises(ValueError, match="set of report numbers"):
            NumberSet.decode(text, BitMap(beyond).serialize())

    def test_rejects_a_malformed_bitmap(self):
        for data in (b"\x3b", b"no bitmap", bytes(40)):
            with pytest.raises(ValueError, match="deserialize bitmap"):
                NumberSet.decode("1-1", data)

    @pytest.mark.slow
    @given(st.data())
    @settings(max_examples=300)
    def test_damaged_bitmap_never_crashes_the_process(self, data):
        bitmap = bytearray(data.draw(st.sampled_from(BITMAPS)))
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, min(len(bitmap), 60)))
            bitmap[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        del bitmap[data.draw(st.integers(0, len(bitmap))) if data.draw(st.booleans()) else len(bitmap) :]
        try:
            actual = NumberSet.decode("1-1", bytes(bitmap))
        except ValueError:
            return
        actual = actual.add(70_000).add(2)
        assert round_trip(actual)[0] == actual.narrow()
