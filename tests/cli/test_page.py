"""Settings of `hushmote page`, which are refused in one line before it listens."""

from pathlib import Path

from boards import ask_fleet, experiment, payload_of
from browser import ask, paged
from odd_broker import Habits, OddBroker
from refusals import Refusal, refusals
from running_aggregator import until
from traffic import publish

from hushmote.server.store.store import Store


class TestSettings:
    @refusals(
        ("--http 0.0.0.0:80", "0.0.0.0 can be reached from other machines; give --token-file FILE"),
        ("--http 0.0.0.0:80 --token-file none", "cannot read the token none: No such file"),
        ("--http 0.0.0.0:80 --token-file tokens --policy none.py", "cannot read none.py: No such file"),
        ("--experiment temp --fleet home", "--experiment names what the in-browser board subscribes to: add"),
        ("--experiment temp --broker mqtt://localhost", "without wildcards: add --fleet NAME"),
        files={"tokens": "a-secret-of-a-reader-1234"},
        command="page",
    )
    def test_refusal_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)


class TestExperiments:
    def test_arrive_by_name_without_wildcards(self, tmp_path: Path):
        store, question = f"sqlite:///{tmp_path / 'store.sqlite'}", experiment()
        with Store(store) as writable:
            ask_fleet(writable, "home", question)
        with OddBroker(Habits(wildcards_get_retained=False)) as broker:
            publish(broker, [("hushmote/v1/home/experiment/temp", payload_of(question))], retain=True)
            options = ("--broker", f"mqtt://127.0.0.1:{broker.port}", "--fleet", "home")
            for more, expected in (((), 404), (("--experiment", "temp"), 200)):
                with paged(store, *options, *more) as page:
                    path = "/v1/home/experiment/temp"
                    until(lambda page=page, path=path: ask(page, path)[0] != 503, "the door is still reading")
                    assert ask(page, path)[0] == expected
