"""Sets of report numbers: bounded, whoever sends what, and no honest board's report is ever too late."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.server.store.number_set import MOST_INTERVALS, NEWEST, NumberSet

OUTBOX = 16  # reports that wait on a board at most

NUMBERS = st.integers(1, 200) | st.integers(1, 4000) | st.integers(1, (1 << 32) - 1)


def taken(numbers, start=None):
    """The set after numbers came one after another, and those that were counted."""
    found, counted = start or NumberSet(), []
    for number in numbers:
        if number not in found:
            counted.append(number)
            found = found.add(number).narrow()
    return found, counted


@given(st.lists(NUMBERS, max_size=300))
def test_a_set_says_how_many_were_counted_and_counts_none_twice(numbers):
    found, counted = taken(numbers)
    assert len(set(counted)) == len(counted) == len(found)
    assert all(number in found for number in numbers)
    assert NumberSet.decode(found.encode()) == found
    assert taken(numbers, found) == (found, [])


@given(st.integers(0, 1 << 31), st.integers(2, 9), st.booleans())
@settings(max_examples=30)
def test_the_row_of_a_forger_stops_growing(first, step, backwards):
    numbers = range(first + 1, first + 1 + 3 * NEWEST * step, step)
    found, counted = taken(reversed(numbers) if backwards else numbers)
    assert len(found) == len(counted)
    assert len(found.encode()) < 21 * MOST_INTERVALS + NEWEST // 4 + 40
    assert found.intervals <= MOST_INTERVALS + NEWEST // 2


def test_the_lowest_gaps_are_closed_first():
    wide = range(1, 3 * NEWEST, 2)
    found, counted = taken(wide)
    assert counted == list(wide)
    newest = 3 * NEWEST - 1
    assert 2 in found  # it was never counted: too late
    assert newest - 1 not in found
    assert found.late >= NEWEST - 1
    again, more = taken([newest - 1, 2, newest - 3], found)
    assert more == [newest - 1, newest - 3]
    assert len(again) == len(wide) + 2


def test_a_wide_set_of_an_earlier_version_is_narrowed_at_the_next_report():
    old = NumberSet.decode(",".join(f"{n}-{n}" for n in range(1, 2049, 2)))
    assert old.intervals == 1024
    found = old.add(2050).narrow()
    assert found.intervals <= MOST_INTERVALS + NEWEST // 2
    assert len(found) == 1025


MOVES = st.lists(
    st.sampled_from(["make", "make", "send", "send all", "lose", "again", "opt out"]), max_size=400
)


@given(MOVES, st.data())
@settings(max_examples=60, deadline=None)
def test_no_report_of_an_honest_board_is_too_late(moves, data):
    """A board makes reports, sends the oldest first, opts out now and then; what a broker loses is lost."""
    made, outbox, sent, found = 0, [], [], NumberSet()
    for move in moves:
        if move == "make" and len(outbox) < OUTBOX:
            made += 1
            outbox.append(made)
        elif move == "opt out":
            outbox = []
        elif move == "again" and sent:  # a copy of what was told received, however old
            found = found.add(data.draw(st.sampled_from(sent))).narrow()
        elif outbox and move in ("send", "send all", "lose"):
            for number in outbox[: len(outbox) if move == "send all" else 1]:
                outbox.remove(number)
                if move != "lose":
                    assert number not in found
                    found = found.add(number).narrow()
                    sent.append(number)
    assert len(found) == len(sent)


@given(st.integers(1, NEWEST), st.integers(0, 1000), st.integers(2, 5))
@settings(max_examples=40)
def test_what_waits_for_an_aggregator_that_is_away_is_counted_when_it_is_back(reports, before, members):
    """A broker divides a fast board's reports among a group of which one member is away for a while."""
    found, _ = taken(range(1, before + 1))
    numbers = range(before + 1, before + 1 + reports)
    waiting = numbers[::members]
    found, counted = taken([n for n in numbers if n not in waiting], found)
    assert len(counted) == reports - len(waiting)
    found, counted = taken(waiting, found)
    assert counted == list(waiting)
    assert found == NumberSet((1, before + 1 + reports))


def test_scattered_losses_over_a_long_life_never_silence_a_board():
    lost = set(range(50, 100_000, 97))
    found, counted = taken(n for n in range(1, 100_000) if n not in lost)
    assert len(counted) == 99_999 - len(lost)
    assert len(found) == len(counted)
    assert len(found.encode()) < 500


@given(st.lists(NUMBERS, max_size=100))
def test_a_sealed_set_has_one_interval_says_as_many_and_takes_nothing_below_its_highest(numbers):
    found, counted = taken(numbers)
    sealed = found.seal()
    assert len(sealed) == len(counted)
    assert sealed.intervals == min(1, len(counted))
    assert all(number in sealed for number in range(1, min(max(numbers, default=0), 5000) + 1))
    assert all(number in sealed for number in numbers)
    assert max(numbers, default=0) + 1 not in sealed
    assert sealed.seal() == sealed
    assert NumberSet.decode(sealed.encode()) == sealed
