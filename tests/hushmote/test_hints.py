"""Messages in Python name Python arguments and methods, not command-line options."""

import re
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from experiment_kinds import WORDS, fill_kinds

import hushmote
from hushmote.device.ldp_client import LDPError
from hushmote.server import hints
from hushmote.server.answers.question import PairQuestion
from hushmote.server.errors import HushmoteError
from hushmote.server.store import Store

OPTION = re.compile(r"(?<!\w)--[a-z]")
PAIRS = (
    *(PairQuestion(of, given) for of, given in product(("", "crashed", "crashed=yes", "version"), repeat=2)),
    PairQuestion("version", versus=("crashed=yes", "crashed=no")),
    PairQuestion("version", versus=("crashed=yes", "crashed=yes")),
    PairQuestion("", versus=("version=1.0", "crashed=yes")),
    PairQuestion("crashed=yes", "crashed=no"),
    PairQuestion("crashed=yes", joint=True),
    PairQuestion(joint=True),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hushmote.FleetReader]:
    """Provide a fleet with an experiment of each kind, two of them in two versions."""
    url = f"sqlite:///{tmp_path_factory.mktemp('kinds') / 'kinds.sqlite'}"
    with Store(url) as store:
        fill_kinds(store)
    with hushmote.open(url) as opened:
        yield opened.fleet("home")


def answer(question: Callable[[], object]) -> str:
    """Return all words of an answer or of its error."""
    try:
        reply = question()
        words = [repr(reply), getattr(reply, "note", ""), getattr(reply, "sentence", "")]
        words += [reply.to_json()] if isinstance(reply, hushmote.Answer) else []
        words += [str(item) for item in reply] if isinstance(reply, hushmote.Answers) else []
        return "\n".join(words)
    except (HushmoteError, LDPError, ValueError) as e:
        return str(e)


def questions(reader: hushmote.ExperimentReader) -> Iterator[Callable[[], object]]:
    """Yield every kind of question, whether or not this experiment can answer it."""
    many, ranges = [f"text {i}" for i in range(40)], [f"{i}:{i + 1}" for i in range(15)]
    yield lambda: reader.finding
    for wanted in ((), ("mean",), ("1.0.0",), ("0:4",), tuple(many), tuple(ranges)):
        yield lambda wanted=wanted: reader.trend(*wanted)
        yield lambda wanted=wanted: reader.trend(*wanted, quantiles=(0.5,))
        yield lambda wanted=wanted: reader.compare("1d", *wanted)
    for pair in PAIRS:
        yield lambda pair=pair: reader.trend(pair=pair)
        yield lambda pair=pair: reader.estimate("2026-11-19").pairs.ask(pair)
        yield lambda pair=pair: reader.estimate("2026-11-19").pairs.ask(pair, 10_000)
    for windows in ("2026-11-19", "all"):
        for post in ("raw", "nonnegative", "smooth", "none"):
            yield lambda w=windows, p=post: reader.estimate(w).histogram(post=p)
            yield lambda w=windows, p=post: reader.estimate(w).share("0:4", post=p)
            yield lambda w=windows, p=post: reader.estimate(w).together("0:4", "8:12", post=p)
        yield lambda w=windows: reader.estimate(w, weigh="variance").summary()
        yield lambda w=windows: reader.estimate(w).candidates(WORDS)
        yield lambda w=windows: reader.estimate(w).discover()
        yield lambda w=windows: reader.estimate(w).discover("".join(map(chr, range(0x20, 0x2FFF))))
        yield lambda w=windows: reader.estimate(w).mean()
        yield lambda w=windows: reader.estimate(w).quantile(0.5, 7)
        yield lambda w=windows: reader.estimate(w).cdf()
        yield lambda w=windows: reader.estimate(w).top(3)
    yield lambda: reader.estimate("2026-11-19", version="ffff")
    yield lambda: reader.two_epsilons()


@pytest.mark.parametrize("name", ["room", "delay", "firmware", "crash", "crash_by_version"])
def test_answers_name_no_option(home: hushmote.FleetReader, name: str):
    reader = home.experiment(name)
    texts = [answer(question) for question in questions(reader)]
    assert [text for text in texts if OPTION.search(text)] == []


@pytest.mark.parametrize(
    ("interface", "named"),
    [("python", "of and given"), ("command", "--of and --given"), ("page", "of and given")],
)
def test_each_interface_uses_its_own_names(
    home: hushmote.FleetReader, interface: hints.Interface, named: str
):
    pairs = home.experiment("crash_by_version").estimate("2026-11-19").pairs
    with hints.use_interface(interface), pytest.raises(HushmoteError, match=named):
        pairs.ask(PairQuestion("crashed", "crashed"))
