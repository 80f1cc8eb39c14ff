"""What `hushmote estimate` does."""

from dataclasses import replace

from ...server.answers import periods, second_epsilon, tables
from ...server.answers.ask import EstimateQuestion, ask
from ...server.answers.pair_tables import PairQuestion
from ...server.answers.query import Facts, Selection
from ...server.answers.second_epsilon import Shuffling
from ...server.errors import UsageError
from ...server.experiments.asking import require
from ...server.store.store import Store, Version
from .. import output
from ..candidates import read_candidates
from ..options import print_json
from ..output import PICTURES
from .options import EstimateOptions


def run(options: EstimateOptions, store: Store, versions: tuple[Version, ...]) -> None:
    """Estimate, print and write; versions: all of the fleet. Raises HushmoteError for what has no answer."""
    facts = Facts(store, _versions={options.fleet or "": versions})
    options, outputs = _in_windows(options, facts), options.outputs or ()
    _check(options)
    reply = ask(facts, _question(options, facts))
    purpose = facts.selected(_selection(options)).versions[-1].purpose
    for path in outputs:
        if path.suffix.lower() in PICTURES:
            reply.pictured().plot(path, purpose)
        else:
            csv = path.suffix.lower() == ".csv"
            output.write(path, reply.answers.to_csv() if csv else reply.to_json())
    if options.as_json:
        print_json(reply.to_dict())
        return
    estimate, answers = reply.estimate, reply.answers
    versus = f"; against {answers[0].against}" if answers[0].against else ""
    if reply.headline:
        tables.out.print(f"{reply.headline}\n")
    tables.out.print(f"{options.name}: {estimate.reports:,} reports, {estimate.which}{versus}")
    tables.answers(answers, tables.over_time if options.trend and not options.rows else tables.answer)
    private = second_epsilon.both_words(reply.once, reply.every_day)
    tables.out.print(f"\n{private}\n\n{reply.guide.words()}")
    for path in outputs:
        tables.out.print(f"written: {path}")


def _in_windows(options: EstimateOptions, facts: Facts) -> EstimateOptions:
    """Return the options with the windows of their periods. Raises UsageError for an invalid period."""
    periods_of = ("--last", options.last), ("--against-last", options.against_last)
    given = [option for option, length in periods_of if length]
    if given and (options.windows or (len(given) > 1 and options.last != options.against_last)):
        raise UsageError(f"--window and {' and '.join(given)} name periods that differ: name one")
    if options.against_last and options.other:
        raise UsageError("--against-last and --against name two things to compare with: leave one out")
    there = tuple(facts.selected(_selection(replace(options, windows=None))).there)
    windows, other = options.windows, options.other
    if length := options.last or options.against_last:
        windows = list(periods.last(length, there, facts.at))
    elif windows:
        windows = list(periods.chosen(windows, there))
    if options.against_last:
        other = list(periods.last(options.against_last, there, facts.at, before=1))
    elif side := _against(options):  # whose fleet or version has windows of its own
        theirs = tuple(facts.selected(replace(side, windows=())).there)
        same = periods.last(options.last, theirs, facts.at) if options.last and not side.windows else ()
        days = periods.chosen(side.windows, theirs) or same
        other = [one for one in options.other or () if "=" in one] + list(days)
    return replace(options, windows=windows, other=other, trend=options.trend or options.by is not None)


def _selection(options: EstimateOptions) -> Selection:
    """The reports that are asked about."""
    return Selection(options.name, options.fleet or "", tuple(options.windows or ()), options.version)


def _wanted(length: str, facts: Facts, before: int = 0) -> periods.Period | None:
    """Return the period that a length of time is now; None for none and for all."""
    return periods.wanted(length, facts.at, before) if length not in ("", periods.ALL) else None


def _pair(options: EstimateOptions) -> PairQuestion:
    """What is asked of a pair."""
    match options.given or []:
        case [first, second]:
            return PairQuestion(options.of, "", (first, second), options.joint)
        case [_, _, _, *_]:
            raise UsageError("--given is there once, or twice for two conditions and their difference")
        case given:
            return PairQuestion(options.of, "".join(given), None, options.joint)


def _against(options: EstimateOptions) -> Selection | None:
    """Return the reports to compare with, if any. Raises UsageError for a text that names none."""
    if not options.other:
        return None
    named: dict[str, list[str]] = {"window": [], "fleet": [], "version": []}
    for text in options.other:
        what, equals, name = text.partition("=")
        if equals and what not in named:
            raise UsageError(f"--against takes a window, fleet=NAME or version=DIGEST, not {text}")
        named[what if equals else "window"].append(name if equals else text)
    windows, fleets, versions = named.values()
    if max(len(fleets), len(versions)) > 1:
        raise UsageError("--against takes one fleet, and one version")
    fleet, version = "".join(fleets), "".join(versions)
    return Selection(
        options.name,
        fleet or options.fleet or "",
        tuple(windows or options.windows or ()),
        version or ("" if fleet else options.version),
    )


def _check(options: EstimateOptions) -> None:
    """Raise UsageError for options that would have no effect."""
    against = _against(options)
    if against == _selection(options):
        raise UsageError("both sides are the same: name another window, fleet or version to compare with")
    if options.trend and against:
        raise UsageError("--trend and --against are two questions: ask one at a time")
    if options.together and not (options.ranges or options.candidates):
        raise UsageError("--together is about ranges: name some, each with --range")
    if not (options.trend or against):
        return
    asked, single = "--trend" if options.trend else "--against", "--range LABEL, or --range LOW:HIGH"
    chance = "processed shares have no intervals, and chance cannot be told from change without"
    lacking: tuple[tuple[str, object, str], ...] = (
        ("--top", options.top, f"ask for the shares of single values, {single} of a number"),
        ("--post", options.post != "raw", f"{chance}; leave --post out"),
        ("--together", options.together, "it tells of each range by itself"),
        ("--cdf", options.trend and options.cdf, "ask for --range :HIGH or --quantile"),
    )
    for option, there, instead in lacking:
        if there:
            raise UsageError(f"{asked} has no {option}: {instead}")
    if options.rows and options.ranges and not options.trend:
        raise UsageError("--rows is for histograms, and there is none here: leave it out")


def _question(options: EstimateOptions, facts: Facts) -> EstimateQuestion:
    """All that is asked of these facts."""
    ranges = list(options.ranges or ())
    if options.candidates is not None:
        asked = [version.experiment for version in facts.selected(_selection(options)).versions]
        require(asked, "candidates", "leave --candidates out")
        ranges += read_candidates(options.candidates)
    ranges = ranges or _listed_texts(options, facts)
    same = ("together", "top", "cdf", "rows", "post", "trend", "confidence", "unit", "alphabet")
    length, earlier = options.last or options.against_last, options.against_last
    return EstimateQuestion(
        _selection(options),
        _against(options),
        ranges=tuple(ranges),
        quantiles=tuple(options.quantiles or ()),
        weigh=options.weigh,
        shuffling=Shuffling(options.delta, options.honest),
        pair=_pair(options),
        by=options.by or "",
        period=_wanted(length, facts),
        before=_wanted(earlier, facts, 1),
        **{name: getattr(options, name) for name in same},
    )


def _listed_texts(options: EstimateOptions, facts: Facts) -> list[str]:
    """Return the texts that the experiment's file lists to look for; none of another experiment."""
    selected = facts.selected(_selection(options))
    return selected.newest.asked.splitlines() if "candidates" in selected.can else []
