"""Findings: one sentence a question, honest about change, few reports, and what they cannot tell."""

import datetime
import json
import re

import numpy as np
import pytest
from boards import ask_fleet
from command_line import hushmote as run_hushmote
from experiments import experiment_json, number_json
from filled import fill
from kinds import fill_kinds

import hushmote
from hushmote.server.answers import periods
from hushmote.server.answers.finding import changed, find, looks, thirds
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.errors import UsageError
from hushmote.server.estimate import estimate
from hushmote.server.experiments.asks import asks_of
from hushmote.server.experiments.units import UnitsError
from hushmote.server.results.result import result_of
from hushmote.server.store.store import Store
from hushmote.server.wire.experiments import parse_experiment
from hushmote.simulator import vectorised

DAYS = [f"2026-11-{day:02}" for day in range(1, 31)]
CHANCE = r"; chance alone: less than 1 in 10,000\."
NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
ROOM = number_json(
    16, name="room", low=0, high=16_000, epsilon=2_000_000, mechanism="hh", fanout=4, cells=[4, 16]
)
YES = experiment_json(name="door", epsilon=2_000_000)
MODES = experiment_json(
    name="mode", type="choice", labels=["eco", "boost"], mechanism="grr", epsilon=4_000_000
)


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as opened:
        yield opened


def finding(store, name, *windows):
    return find(Facts(store, NOON), Selection(name, "home", windows), series=True)


def room(mean):
    shares = np.exp(-0.5 * ((np.arange(16) + 0.5 - mean) / 2) ** 2)
    return shares / shares.sum()


def test_a_change_is_told_of_the_newest_third_with_its_size_and_its_time(store):
    shares = {day: room(6 if int(day[-2:]) <= 15 else 10) for day in DAYS}
    fill(store, "home", ROOM, dict.fromkeys(DAYS, 4000), shares, "°C", asked="8:\nmedian\nmean")
    told = finding(store, "room")
    share, median, mean = told.findings
    assert re.fullmatch(
        r"8 °C and above: 8\d\.\d % of devices \(8\d\.\d to 8\d\.\d %\) in the newest 10 days, "
        r"up (6\d|70) points in 20 days" + CHANCE,
        share.sentence,
    )
    assert (share.moved, share.quantity, len(share.series)) == ("up", "share", 30)
    assert (share.low or 1) < 0.843 < (share.high or 0)  # of the newest days, not of all
    says = "Median: 10.5 °C (9.0 to 11.0) in the newest 10 days, up 5 °C in 20 days; "
    assert median.sentence.startswith(says)
    assert re.search(rf" in the newest 10 days, up [34](\.\d)? °C in 20 days{CHANCE}$", mean.sentence)
    assert told.sentence == f"{share.sentence} {median.sentence} {mean.sentence}"
    assert finding(store, "room", DAYS[29], DAYS[0]) == finding(store, "room", DAYS[0], DAYS[29])


def test_what_does_not_change_is_steady_and_told_of_all_windows(store):
    fill(store, "home", YES, dict.fromkeys(DAYS, 2000), [0.9, 0.1])
    (told,) = finding(store, "door").findings
    assert re.fullmatch(r"Yes: (9|10)\.\d % of devices \(\d+\.\d to 1\d\.\d %\), steady\.", told.sentence)
    assert told.moved == "steady"
    (one,) = finding(store, "door", DAYS[0]).findings
    assert (one.moved, "steady" in one.sentence) == ("", False)
    fill(store, "home", experiment_json(name="door", window="all"), {"all": 60_000}, [0.6, 0.4])
    for windows in ((DAYS[0], "all"), ()):  # the last of which is neither before nor after days
        said = finding(store, "door", *windows).sentence
        assert re.fullmatch(r"Yes: [23]\d\.\d % of devices \([23]\d\.\d to [234]\d\.\d %\)\.", said)


@pytest.mark.parametrize(("shares", "start"), [([1, 0], "Yes: up to "), ([0, 1], "Yes: at least ")])
def test_an_end_where_no_share_is_becomes_up_to_or_at_least(store, shares, start):
    fill(store, "home", YES, {DAYS[0]: 3000}, shares)
    assert re.fullmatch(f"{start}.* % of devices\\.", finding(store, "door").sentence)


def test_too_few_reports_say_how_many_it_takes_and_when(store):
    fill(store, "home", YES, {"2026-11-29": 8, "2026-11-30": 8})
    told = finding(store, "door")
    assert (told.enough, told.findings[0].value) == (False, None)
    says = r"^16 reports so far\. ±10 points needs about (\d+); at this rate on (\d{4}-\d\d-\d\d)\.$"
    ((needed, day),) = re.findall(says, told.sentence)
    # 1.96² (e²/(e² - 1)² + 1/4) / 0.1² = 165, and what an interval of so few has more
    assert 160 <= int(needed) <= 240
    days = (datetime.date.fromisoformat(day) - NOON.date()).days
    assert abs(days - (int(needed) - 16) / 8) <= 2


@pytest.mark.parametrize(
    ("older", "says"),
    [
        ({}, "so far. ±10 points needs about N."),  # the day may go on
        ({DAYS[28]: 3}, "so far. ±10 points needs about N in 30 days, more than come at this rate."),
        ({"2026-10-01": 3, DAYS[28]: 3}, "in 2 days. ±10 points needs about N."),  # the oldest is left out
    ],
)
def test_where_reports_will_not_be_enough_no_day_is_named(store, older, says):
    fill(store, "home", YES, older | {DAYS[29]: 6 - older.get(DAYS[28], 0)})
    assert re.sub(r"about \d+", "about N", finding(store, "door").sentence) == f"6 reports {says}"


def test_before_two_reports_there_is_nothing_to_estimate(store):
    ask_fleet(store, "home", YES)
    assert finding(store, "door").sentence.startswith("No report has been counted so far.")
    fill(store, "home", MODES, {DAYS[0]: 1})
    assert finding(store, "mode").sentence.startswith("1 report has been counted so far.")


@pytest.mark.parametrize(
    ("newest", "says"),
    [
        ([0.1, 0.7, 0.2], r"Most common is boost: (69|7\d)(\.\d)? % of devices .*, steady\."),
        ([0.75, 0.2, 0.05], r"Boost: [12]\d\.\d % of devices .* in the newest 2 days, down .*"),
    ],
)
def test_the_most_common_label_is_named_while_it_is(store, newest, says):
    shares = {day: [0.1, 0.7, 0.2] if day < DAYS[4] else newest for day in DAYS[:6]}
    fill(store, "home", MODES, dict.fromkeys(DAYS[:6], 3000), shares)
    assert re.fullmatch(says, finding(store, "mode").sentence)


def test_every_kind_of_experiment_has_a_finding(store):
    fill_kinds(store)
    said = {name: finding(store, name) for name in Facts(store).names("home")}
    assert said["delay"].sentence.startswith("Mean: ")
    assert said["room"].sentence.startswith("Median: ")
    assert said["crash"].sentence.startswith("Most common is 1.0.0…: ")
    pair = r"crashed=yes: (49|50|51)\.\d % \(.* %\) with version=1\.0; up to .* % with version.*"
    assert re.fullmatch(pair + CHANCE, said["crash_by_version"].sentence)
    named = "Name the texts to ask about: hushmote estimate firmware --candidates FILE."
    assert (said["firmware"].sentence, said["firmware"].enough) == (named, False)


@pytest.mark.parametrize(
    ("payload", "asked", "match"),
    [
        (ROOM, "warm", "a range reads low:high"),
        (ROOM, "120 %", "between 0 and 100 %, not 120 %"),
        (YES, "median", "door has no label median"),
        (MODES, "8:", "mode has no label 8:"),
    ],
)
def test_a_question_that_does_not_fit_is_refused(payload, asked, match):
    with pytest.raises(UnitsError, match=match):
        asks_of(parse_experiment(payload), [asked])


LOOKS = (2, 3, 5, 8, 12, 20, 30)


def said_to_move(
    step: float, reports: int, rng: np.random.Generator, days_seen: tuple[int, ...] = LOOKS
) -> bool:
    """Whether it is said at any of these looks that a share changed on the eleventh day."""
    e = parse_experiment(experiment_json(epsilon=1_000_000))
    shares = [0.4 + step * (day >= 10) for day in range(30)]
    days = [vectorised.histogram(e, rng.multinomial(reports, [1 - s, s]), rng) for s in shares]
    (ask,) = asks_of(e)
    told = []
    for seen in days_seen:
        parts = thirds([f"{day}" for day in range(seen)])
        sums = (np.sum([days[int(day)] for day in part], axis=0) for part in parts)
        before, after = (FleetEstimate(estimate(e, one)) for one in sums)
        change = changed(ask, before, after, looks(seen))
        assert change
        told.append(change[1] < 0.05)
    return any(told)


def test_of_fleets_without_a_change_at_most_one_in_twenty_is_ever_said_to_move():
    """200 fleets, seven looks at each. At a chance of 0.05, more than 36 come by chance 1e-11."""
    rng = np.random.default_rng()
    assert sum(said_to_move(0, 1000, rng) for _ in range(200)) <= 36


def test_a_change_of_the_planned_size_is_said():
    """200 fleets. At a chance of 0.8, fewer than 122 come by chance 1e-10."""
    rng = np.random.default_rng()
    planned = 1.96 * np.sqrt((0.9207 + 0.24) / 4000)  # half the interval of one day: ε 1, a share of 0.4
    assert sum(said_to_move(planned, 4000, rng, LOOKS[-1:]) for _ in range(200)) >= 122


def test_periods_are_windows():
    there = tuple(DAYS)
    assert periods.last("7d", there, NOON) == tuple(DAYS[-7:])
    assert periods.last("1w", there, NOON, before=1) == tuple(DAYS[-14:-7])
    assert periods.missing("7d", DAYS[-7:], NOON) == ""
    said = "The last 7d are 2026-11-24 to 2026-11-30 UTC, with today: 6 of these 7 days have reports."
    assert periods.missing("7d", DAYS[-7:-1], NOON) == said
    hours = ("2026-11-30T01", "2026-11-30T11", "2026-11-30T12")
    assert periods.last("2h", hours, NOON) == hours[1:]
    with pytest.raises(UsageError, match="newest window with reports is 2026-11-30") as none:
        periods.last("2h", DAYS, NOON + datetime.timedelta(days=9))
    assert "no report came from 2026-12-09 11:00 to 2026-12-09 13:00 UTC" in str(none.value)
    several = ["2026-11-01..2026-11-03", "2026-11-02", "2027-01"]
    assert periods.chosen(several, there) == (*DAYS[:3], "2027-01")
    assert periods.chosen(["2026-11"], there) == there
    with pytest.raises(UsageError, match="the first day first"):
        periods.chosen(["2026-11-03..2026-11-01"], there)
    assert [*periods.grouped(there, "week")] == [f"2026-W{week}" for week in range(44, 50)]
    assert periods.grouped(there, "month") == {"2026-11": there}
    with pytest.raises(UsageError, match="put together by day, week, month, not year"):
        periods.grouped(there, "year")


def test_the_same_sentence_is_told_everywhere(store, tmp_path):
    """The command, its JSON, status, a published result and Python."""
    today = datetime.datetime.now(datetime.UTC).date()
    # None that a published result leaves out because it ended a minute ago.
    days = [(today - datetime.timedelta(days=n)).isoformat() for n in range(13, 1, -1)]
    fill(store, "home", YES, dict.fromkeys(days, 2000), [0.7, 0.3])
    url = f"sqlite:///{tmp_path}/store.sqlite"
    with hushmote.open(url) as reader:
        sentence = str(reader.fleet().experiment("door").finding)
    assert sentence.endswith(", steady.")

    def said(*arguments: str) -> str:
        return " ".join(run_hushmote(*arguments, "--store", url, cwd=tmp_path).split())

    assert said("estimate", "door").startswith(sentence)
    assert said("estimate", "door", "--trend").startswith(sentence)
    assert json.loads(said("estimate", "door", "--json"))["finding"] == sentence
    assert sentence in said("status")
    now = datetime.datetime.now(datetime.UTC)
    assert result_of(store, "home", "door", now).finding == sentence
