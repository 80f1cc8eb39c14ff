"""Consent on the board: nothing is sent before opt-in, and a preview shows the possible reports."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from enumeration import distribution, memory
from epsilon_shapes import SHAPES
from experiments import experiment_json
from failing_storage import FailingStorage
from reference_board import ledger_record

from hushmote.device import consent, preview
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, ExperimentRefused, LedgerError, SettingsError, provision
from hushmote.server.mechanisms import MECHANISMS
from hushmote.server.wire.report import encode

POLICY = {
    "sum": 8_000_000,
    "squares": 0,
    "epsilon": 4_000_000,
    "rules": ("sum", "squares", "count"),
    "experiments": ("room_temp", "door"),
}
TEMPERATURE = {"type": "number", "low": 0, "high": 40_000, "bins": 100, "mechanism": "olh", "g": 3}


class NoDraws:
    """A random source that must not be used."""

    def bernoulli(self, threshold: int) -> bool:
        raise AssertionError("something was drawn")

    def below(self, n: int) -> int:
        raise AssertionError("a number was drawn")


def board(slots: Any = None, **more: Any) -> Client:
    storage = memory(slots)
    if slots is None:
        provision(storage)
    client = Client(POLICY | more, storage, device_id="board-1", fleet="home")
    client.enroll(experiment_json(name="room_temp", every=3, **TEMPERATURE))
    return client


def slots_of(client: Any) -> dict[int, bytes]:
    return client._ledger._storage.slots


class TestBeforeOptIn:
    @pytest.mark.parametrize(
        "answers", [(), (False,), (True, False)], ids=["no answer", "opt-out", "opt-in and opt-out"]
    )
    def test_draws_debits_and_stores_nothing(self, answers: tuple[bool, ...]):
        client = board()
        for answer in answers:
            client.consent = answer
        client.rng = NoDraws()
        before = dict(slots_of(client))
        assert client.consent is (answers[-1] if answers else None)
        for value in (21.4, None, float("nan"), "warm", [1]):  # not even inspected
            assert client.report("room_temp", value) is None
        assert client.outbox() == []
        assert slots_of(client) == before

    def test_is_silent_for_every_reading(self):
        """Every reading is silent with probability exactly 1, given the answer as part of the state."""
        slots = slots_of(board())

        def reported(rng: Any, value: float) -> Any:
            client = board(slots)
            client.rng = rng
            return client.report("room_temp", value)

        assert [distribution(lambda rng, v=v: reported(rng, v)) for v in (1.0, 39.0)] == [
            {None: 1},
            {None: 1},
        ]


class TestOptIn:
    def test_does_not_send_earlier_clients_reports(self):
        record = ledger_record(3, [("room_temp", 1, "sum", 0, 2)], 2, 4, [b"unasked"], asked=False)
        client = board({0: record, 1: ledger_record(2)})
        client.consent = True
        assert client.outbox() == []
        assert client.status()["sum"] == 2

    @pytest.mark.parametrize("answer", [1, 0, None, "yes", "given"])
    def test_accepts_only_true_and_false(self, answer: Any):
        client = board()
        with pytest.raises(SettingsError, match=r"^consent must be True or False$"):
            client.consent = answer
        assert client.consent is None

    @pytest.mark.parametrize("fault", ["raise", "lost", "torn"])
    def test_does_not_count_if_write_fails(self, fault: str):
        client = Client(POLICY, FailingStorage(slots_of(board()), fault, 0), device_id="board-1")
        assert client.status()["locked"] is None
        client.enroll(experiment_json(name="room_temp", **TEMPERATURE))
        with pytest.raises(LedgerError):
            client.consent = True
        assert client.consent is None
        assert client.report("room_temp", 21.4) is None

    def test_comes_from_network_only_if_policy_allows(self):
        client = board()
        with pytest.raises(SettingsError, match=r"^only someone at the board can say yes$"):
            consent.from_network(client, True)
        client.consent = True
        consent.from_network(client, False)
        assert client.consent is False
        open_to_it = board(consent_from="network")
        consent.from_network(open_to_it, True)
        assert open_to_it.consent is True


def states_of(kept: KeptExperiments) -> list[str]:
    return [line["state"] for line in kept._client.status()["experiments"].values()]


class TestQuestion:
    """Under "ask": "each", an opt-in applies to one question, before and after a restart."""

    ROOM = TEMPERATURE | {"name": "room_temp", "epsilon": 1_000_000, "window": "day"}
    WAITS = "nobody has consented to it: call agree(name)"

    @pytest.fixture
    def start(self, tmp_path: Path) -> Callable[..., KeptExperiments]:
        slots = slots_of(board())

        def make(**policy: Any) -> KeptExperiments:
            """Start a board."""
            policy = POLICY | {"ask": "each", "groups": ("firmware", "model")} | policy
            client = Client(policy, memory(slots), device_id="board-1", fleet="home")
            client.consent = True
            return KeptExperiments(client, str(tmp_path))

        return make

    def asks(self, kept: KeptExperiments, fields: dict[str, Any]) -> bool:
        """Deliver a retained message; return whether it awaits an opt-in rather than taking effect."""
        payload = experiment_json(**fields)
        kept.put_aside("room_temp", payload)
        reason = kept.consider()[1]
        assert reason in (None, self.WAITS)
        assert list(kept.asking) == ["room_temp"] * (reason is not None)
        if reason is None:
            exp = kept._client._experiments["room_temp"]
            assert exp.digest == hashlib.sha256(payload).digest()[:4]
        return reason is not None

    def agreed(self, start: Any, fields: dict[str, Any] | None = None) -> KeptExperiments:
        experiments = start()
        assert self.asks(experiments, fields or self.ROOM)
        experiments.agree("room_temp")
        return experiments

    def test_waits_for_its_own_consent(self, start: Any):
        experiments = start()
        assert self.asks(experiments, self.ROOM)
        assert experiments._client.report("room_temp", 21.4) is None
        experiments.agree("room_temp")
        assert experiments._client.report("room_temp", 21.4) is not None

    @pytest.mark.parametrize("restart", [False, True], ids=["same", "restart"])
    @pytest.mark.parametrize(
        "change",
        [
            {"epsilon": 4_000_000},
            {"epsilon": 1_000_001},
            {"low": -1},
            {"high": 40_001},
            {"bins": 101},
            {"bins": 99},
            {"group": "firmware", "groups": ["2.4.0"]},
            {"missing": 1},
            {"mechanism": "grr", "g": None},
            {"type": "choice", "labels": ["a", "b", "c"], "low": None, "high": None, "bins": None},
            {"type": "bool", "mechanism": "rr", "low": None, "high": None, "bins": None, "g": None},
        ],
        ids=[
            "larger epsilon",
            "slightly larger epsilon",
            "lower low",
            "higher high",
            "more bins",
            "fewer bins",
            "group",
            "missing",
            "grr",
            "choice",
            "bool",
        ],
    )
    def test_change_asks_again(self, start: Any, change: dict[str, Any], restart: bool):
        experiments = self.agreed(start)
        changed = {k: v for k, v in (self.ROOM | change).items() if v is not None}
        experiments = start() if restart else experiments
        assert self.asks(experiments, changed)
        # The old question continues; nothing is sent for the new one, even after a restart.
        for restarted in (experiments, start()):
            assert restarted._client._experiments["room_temp"].epsilon == 1_000_000
            assert self.asks(restarted, changed)
        assert not self.asks(experiments, self.ROOM)  # republished, so no question is pending any more
        assert self.asks(experiments, changed)
        experiments.agree("room_temp")
        assert not self.asks(start(), changed)
        assert self.asks(start(), self.ROOM) == ("epsilon" not in change)  # an opt-in applies to one question

    @pytest.mark.parametrize(
        "change",
        [
            {"epsilon": 999_999},
            {"epsilon": 1_000, "g": 2},
            {"every": 90},
            {"window": "hour"},
            {"budget": {"rule": "count", "cap": 3}},
            {"g": 5},
        ],
        ids=["smaller epsilon", "smallest epsilon", "every", "window", "budget", "g"],
    )
    def test_new_version_with_same_question_does_not_ask(self, start: Any, change: dict[str, Any]):
        experiments = self.agreed(start)
        assert not self.asks(experiments, self.ROOM | change)
        assert not self.asks(start(), self.ROOM | change)
        assert not self.asks(start(), self.ROOM)  # the opt-in was to this epsilon

    def test_covers_new_values_of_its_group_only(self, start: Any):
        group = {"group": "firmware", "groups": ["2.3.1"]}
        experiments = self.agreed(start, self.ROOM | group)
        listed = self.ROOM | group | {"groups": ["2.3.1", "2.4.0"], "every": [130, 1, 130]}
        assert not self.asks(experiments, listed)
        assert self.asks(experiments, listed | {"group": "model"})

    def test_says_that_the_group_is_unprotected(self, start: Any):
        client = start()._client
        client.consent = False
        assert consent.attend(client, None, None, lambda: None) == (
            "silent, as someone said no; with a yes it answers room_temp, door and may send firmware, model "
            "unprotected: yes() says it"
        )

    def test_outlasts_restart_while_waiting(self, start: Any, tmp_path: Path):
        waiting = start()
        assert self.asks(waiting, self.ROOM)
        restarted = start()
        assert restarted.asking == waiting.asking
        restarted.agree("room_temp")
        assert start().asking == {}
        assert [path.name for path in sorted(tmp_path.iterdir())] == ["room_temp", "room_temp.yes"]

    @pytest.mark.parametrize("ends", ["withdrawn", "replaced", "damaged"])
    def test_stops_waiting(self, start: Any, tmp_path: Path, ends: str):
        experiments = self.agreed(start)
        assert self.asks(experiments, self.ROOM | {"epsilon": 4_000_000})
        if ends == "withdrawn":
            experiments.take("room_temp", b"")
        elif ends == "replaced":
            assert not self.asks(experiments, self.ROOM)
        else:
            (tmp_path / "room_temp.ask").write_bytes(b"{}")
        assert start().asking == {}

    def test_rejects_consent_to_withdrawn_question(self, start: Any):
        experiments = start()
        room, door = (experiment_json(**self.ROOM | {"name": name}) for name in ("room_temp", "door"))
        with pytest.raises(ExperimentRefused, match="nobody has consented"):
            experiments.take("door", door)
        for _ in range(2):  # the second withdrawal has the bytes of the first
            with pytest.raises(ExperimentRefused, match="nobody has consented"):
                experiments.take("room_temp", room)
            experiments.take("room_temp", b"")
            for restarted in (experiments, start()):
                assert list(restarted.asking) == ["door"]
                for shown in (None, room):
                    with pytest.raises(ExperimentRefused, match=r"^no question is waiting$"):
                        restarted.agree("room_temp", shown)
        experiments.agree("door", door)
        assert states_of(experiments) == ["absent", "reporting"]

    def test_includes_labels(self, start: Any):
        labels = {"name": "room_temp", "type": "choice", "mechanism": "grr", "epsilon": 1_000_000}
        experiments = self.agreed(start, labels | {"labels": ["home", "away"]})
        for changed in (["home"], ["away", "home"], ["home", "away", "asleep"], ["home,away"]):
            assert self.asks(experiments, labels | {"labels": changed})

    def test_asks_again_after_withdrawal(self, start: Any):
        for experiments in (self.agreed(start), start()):
            experiments.take("room_temp", b"")
            assert self.asks(experiments, self.ROOM)
            assert self.asks(start(), self.ROOM)
            experiments.agree("room_temp")

    def test_consent_to_refused_question_does_not_count(self, start: Any):
        experiments = start()
        assert self.asks(experiments, self.ROOM | {"epsilon": 5_000_000})
        with pytest.raises(ExperimentRefused, match="epsilon"):
            experiments.agree("room_temp")
        assert self.asks(experiments, self.ROOM)
        assert self.asks(start(epsilon=5_000_000), self.ROOM | {"epsilon": 5_000_000})

    def test_consent_applies_to_question_shown(self, start: Any):
        experiments = start()
        assert self.asks(experiments, self.ROOM)
        shown = experiments.asking["room_temp"]
        assert self.asks(experiments, self.ROOM | {"epsilon": 4_000_000})
        with pytest.raises(ExperimentRefused, match=r"^another question is waiting now$"):
            experiments.agree("room_temp", shown)
        experiments.agree("room_temp", experiments.asking["room_temp"])

    def test_consent_outlasts_policy_without_the_name(self, start: Any, tmp_path: Path):
        self.agreed(start)
        start(experiments=("door",))
        assert [path.name for path in tmp_path.iterdir()] == ["room_temp.yes"]
        assert not self.asks(start(), self.ROOM)
        start(experiments=("door",))
        assert self.asks(start(), self.ROOM | {"epsilon": 1_000_001})

    @pytest.mark.parametrize("restart", [False, True])
    @pytest.mark.parametrize("stored", [True, False])
    def test_general_opt_out_erases_every_consent(self, tmp_path: Path, restart: bool, stored: bool):
        slots = slots_of(board())
        storage = memory(slots)

        def start() -> KeptExperiments:
            client = Client(POLICY | {"ask": "each"}, storage, device_id="board-1", fleet="home")
            return KeptExperiments(client, str(tmp_path) if stored else None)

        experiments = start()
        experiments._client.consent = True
        assert self.asks(experiments, self.ROOM)
        experiments.agree("room_temp")
        experiments._client.consent = False
        experiments = start() if restart else experiments
        experiments._client.consent = True
        for restarted in (experiments, start()):
            assert restarted._client.report("room_temp", 21.4) is None
            assert self.asks(restarted, self.ROOM)
            assert restarted._client.report("room_temp", 21.4) is None
        experiments.agree("room_temp")
        assert experiments._client.report("room_temp", 21.4) is not None

    @pytest.mark.parametrize("ask", ["each", None])
    @pytest.mark.parametrize("restart", [False, True])
    def test_opt_out_erases_consent_to_missing_names(self, start: Any, ask: str | None, restart: bool):
        self.agreed(start)
        other = start(experiments=("door",), ask=ask)
        if restart:  # the opt-out came while another firmware ran that does not store consent
            other._client._on_opt_out = None
        other._client.consent = False
        if restart:
            KeptExperiments(other._client, other._folder)
        other._client.consent = True
        assert self.asks(start(), self.ROOM)

    def test_unwritten_opt_out_erases_consent_too(self, start: Any, monkeypatch: pytest.MonkeyPatch):
        experiments = self.agreed(start)

        def fail(_state: Any) -> None:
            raise LedgerError("storage failed")

        with monkeypatch.context() as patch:
            patch.setattr(experiments._client._ledger, "commit", fail)
            with pytest.raises(LedgerError):
                experiments._client.consent = False
        experiments._client.consent = True
        assert experiments._client.report("room_temp", 21.4) is None
        assert self.asks(experiments, self.ROOM)

    @pytest.mark.parametrize("agreeing", [False, True])
    def test_concurrent_opt_out_ends_it(self, start: Any, agreeing: bool):
        """An opt-out during the processing of a payload leaves no experiment in force."""
        experiments = start()
        if not agreeing:
            experiments = self.agreed(start)
        assert self.asks(experiments, self.ROOM) == agreeing
        enroll, changed = experiments._client.enroll, self.ROOM | {"every": 2}

        def no_meanwhile(payload: bytes, verified: bool = False) -> Any:
            status = enroll(payload, verified)
            experiments._client.consent = False
            return status

        experiments._client.enroll = no_meanwhile
        with pytest.raises(ExperimentRefused, match=r"^someone said no meanwhile$"):
            experiments.agree("room_temp") if agreeing else experiments.take(
                "room_temp", experiment_json(**changed)
            )
        experiments._client.enroll = enroll
        experiments._client.consent = True
        assert experiments._client.report("room_temp", 21.4) is None
        assert self.asks(experiments, self.ROOM)
        assert self.asks(start(), self.ROOM)

    def test_policy_change_asks_about_known_experiments(self, start: Any):
        experiments = start(ask="once")
        experiments.take("room_temp", experiment_json(**self.ROOM))
        restarted = start()
        assert restarted._client.report("room_temp", 21.4) is None
        assert list(restarted.asking) == ["room_temp"]
        restarted.agree("room_temp")
        assert start()._client.report("room_temp", 21.4) is not None

    def test_asks_again_after_power_cut_or_damage(self, start: Any, tmp_path: Path):
        """Truncating or changing either file never accepts a question without consent."""
        self.agreed(start)
        for path in (tmp_path / "room_temp", tmp_path / "room_temp.yes"):
            content = path.read_bytes()
            damaged = [content[:size] for size in range(len(content))]
            damaged += [content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in range(len(content))]
            for data in damaged:
                path.write_bytes(data)
                experiments = start()
                assert "room_temp" not in experiments._client._experiments
                assert self.asks(experiments, self.ROOM) == (path.suffix == ".yes")
            path.write_bytes(content)
        assert start()._client.report("room_temp", 21.4) is not None

    def test_consent_covers_a_single_fleet_and_name(self, start: Any, tmp_path: Path):
        self.agreed(start)
        (tmp_path / "room_temp.yes").rename(tmp_path / "door.yes")
        assert self.asks(start(), self.ROOM)

    def test_consent_ends_at_restart_without_folder(self, start: Any):
        experiments = KeptExperiments(start()._client, None)
        assert self.asks(experiments, self.ROOM)
        experiments.agree("room_temp")
        assert not self.asks(experiments, self.ROOM | {"every": 9})
        experiments.take("room_temp", b"")
        assert self.asks(experiments, self.ROOM)

    @pytest.mark.parametrize(
        ("text", "same"),
        [
            (
                b'{ "bins":8, "name":"r", "labels":["b","a"], "epsilon":1, "every":2, "budget":{}, "g":3}',
                True,
            ),
            (b'{"labels":["b","a"],"bins":8,"name":"r","epsilon":1}', True),
            (b'{"labels":["a","b"],"bins":8,"name":"r","epsilon":1}', False),
            (b'{"labels":["b","a"],"bins":8,"name":"r","epsilon":1,"group":{"name":"f"}}', False),
            (b'{"labels":["b","a"],"bins":8,"name":"r","epsilon":1,"of":[{"missing":1}]}', False),
        ],
        ids=["other fields", "sorted", "other labels", "group", "part"],
    )
    def test_digest_covers_sorted_fields(self, text: bytes, same: bool):
        expected = hashlib.sha256(b'{"bins":8,"labels":["b","a"],"name":"r"}').digest()[:8]
        question = consent.question(json.loads(text))
        assert (question[:8] == expected) == same
        assert question[8:] == bytes((0, 0, 0, 1))

    @pytest.mark.parametrize(
        "fields",
        [
            *({}, {"epsilon": "1"}, {"epsilon": 1, "x": None}, {"epsilon": 1, "x": [{}, [None]]}),
            *({"epsilon": 1, "x": 1e999}, {"epsilon": 1, "x": 1.5}, {"epsilon": 1, "x": True}),
        ],
        ids=["no epsilon", "string epsilon", "null", "null in list", "infinity", "fraction", "boolean"],
    )
    def test_rejects_unknown_fields(self, fields: dict[str, Any]):
        with pytest.raises(ExperimentRefused):
            consent.question(fields)

    @pytest.mark.parametrize("word", MECHANISMS)
    def test_does_not_depend_on_code_layout(self, word: str):
        """Covers all fields except views, which define questions about several readings together."""
        layout = dict.fromkeys(set(MECHANISMS[word].parameters) - {"views"}, 1)
        places = "consent.py, clients/js/question.js, reference_board.py and make_vectors.questions()"
        is_same = consent.question({"epsilon": 1} | layout) == consent.question({"epsilon": 1})
        assert is_same, f"list {', '.join(layout)} in {places}"


class TestButton:
    """A board's button, whose pin is polled every 20 ms; 1 is up and 0 is down."""

    HELD = (*[1] * 3, *[0] * 200, 1)

    @pytest.fixture
    def attend(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Poll the board's pin and return the resulting answers."""

        class End(Exception):
            pass

        def run(client: Client, looks: Any, *, released: bool = False, light: Any = None) -> list[Any]:
            pending, answers, passed = iter(looks), [client.consent], 0

            def value() -> int:
                try:
                    return next(pending)
                except StopIteration:
                    raise End from None

            def sleep_ms(ms: int) -> None:
                nonlocal passed
                passed += ms
                if client.consent is not answers[-1]:
                    answers.append(client.consent)

            pins = {14: type("Pin", (), {"value": staticmethod(value)}), 2: light}
            pin = type("Pin", (), {"IN": 0, "OUT": 1, "PULL_UP": 2, "__new__": lambda _, n, *_mode: pins[n]})
            monkeypatch.setattr(consent, "sleep_ms", sleep_ms)
            monkeypatch.setattr(consent, "ticks_ms", lambda: passed)
            monkeypatch.setattr(consent, "machine", type("machine", (), {"Pin": pin}))
            with contextlib.suppress(End):
                consent.attend(client, 14, light and 2, lambda: None, released)
            return answers

        return run

    @pytest.mark.parametrize("answer", [None, True, False])
    def test_changes_nothing_if_stuck_since_power_up(self, attend: Any, answer: bool | None):
        client = board()
        if answer is not None:
            client.consent = answer
        assert attend(client, [0] * 20_000) == [answer]

    def test_counts_only_after_a_release(self, attend: Any):
        assert attend(board(), [0] * 500 + [1] + [0] * 500) == [None, True]
        assert attend(board(), [0] * 500, released=True) == [None, True]  # noticed before a sleep

    def test_ignores_a_touch(self, attend: Any):
        assert attend(board(), [1, 0, 0, 0, 1] * 50) == [None]

    def test_changes_state_once_per_press(self, attend: Any):
        client = board()
        client.consent = True
        assert attend(client, [0] * 20_000, released=True) == [True, False]
        assert attend(client, [0] * 20_000) == [False]
        assert attend(client, self.HELD) == [False, True]

    def test_light_shows_the_answer(self, attend: Any, capsys: pytest.CaptureFixture[str]):
        lit: list[int] = []
        light = type("Light", (), {"value": lambda _, on: lit.append(on)})()
        assert attend(board(), self.HELD, light=light) == [None, True]
        assert lit[-1] == 0
        assert capsys.readouterr().out.count("takes part") == 1

    def test_is_optional(self):
        client = board()
        client.consent = False
        attended = consent.attend(client, None, None, lambda: None)
        assert attended == "silent, as someone said no; with a yes it answers room_temp, door: yes() says it"


class TestPreview:
    def test_describes_report_and_spends_nothing(self):
        client = board()
        client.rng = NoDraws()
        before = dict(slots_of(client))
        lines = preview.preview(client, "room_temp", 21.4).split("\n")
        # e^1: 0.576 of the 1st 3 cells; 3^5 - 1 seeds with 3 cells each.
        assert lines == [
            "room_temp: one of 726 codes, in 11 bytes.",
            "242 codes stand for 21.4. One of these is sent in 57.6% of reports.",
            "No code is more than 2.8 times as likely at one reading as at another.",
            "One reading in 3 is reported, chosen before anything looks at it.",
            "A report costs epsilon 1; 4 more reports left.",
            "Nothing is sent: nobody at this board has opted in.",
        ]
        assert slots_of(client) == before
        assert "a uniformly drawn value" in preview.preview(client, "room_temp", None)
        assert preview.preview(client, "door", True) == "door: there is no such experiment yet."
        with pytest.raises(SettingsError, match=r"^garage is not in the policy$"):
            preview.preview(client, "garage", True)

    def test_names_the_group_as_unprotected(self):
        client = Client(POLICY | {"groups": ("firmware",)}, memory(), device_id="board-1", fleet="home")
        group = {"group": "firmware", "groups": ["2.3.1", "2.4.0"], "every": [90, 1, 130]}
        exp = client.enroll(experiment_json(name="door", **group))
        client.groups = {"firmware": "2.3.1"}
        for given, value, every in ((None, "2.3.1", 90), ("2.4.0", "2.4.0", 1), ("x", "other", 130)):
            lines = preview.preview(client, "door", True, given).split("\n")
            assert lines[0] == "door: one of 2 codes, in 11 bytes."
            assert f"Unprotected, everyone can see firmware {value} in the report." in lines
            assert any(line.startswith(f"One reading in {every} ") for line in lines) == (every > 1)
        report = encode(exp, 1, 1, group=1)
        assert preview.words(client, report).startswith("door: code 1 of 2, 11 bytes, epsilon 1;")

    @pytest.mark.parametrize(
        "shape", ["rr", "grr-16", "olh-9-3", "hh-9-3-hash", "pgr-5-3", "sw-5-2", "prefix-2", "views"]
    )
    def test_describes_every_mechanism(self, shape: str):
        client = Client(POLICY, memory(), device_id="board-1", fleet="home")
        client.enroll(experiment_json(name="door", **SHAPES[shape]))
        reading = {"number": 1, "text": "1.2", "pair": ("1.2", True)}.get(SHAPES[shape]["type"], True)
        assert preview.preview(client, "door", reading).startswith("door: one of ")

    def test_shows_how_often_the_truth_is_sent(self):
        """An output is evidence for the reading that makes it more likely than any other reading does."""
        client = board()
        exp = client._experiments["room_temp"]
        first, other = (distribution(lambda rng, i=i: exp.randomize(i, rng)) for i in (53, 54))
        least = min(first.values())
        speak = [code for code, chance in first.items() if chance > least]
        truth = sum(first[code] for code in speak)
        assert len(speak) == 242
        assert int(1000 * truth) == 576
        assert max(first[code] / other[code] for code in first) <= 2.8


class TestDisplay:
    def test_describes_last_eight_reports(self):
        client = board()
        client.consent = True
        client.enroll(experiment_json(name="door", type="bool", mechanism="rr", epsilon=100_000))
        shown = preview.LastReports()
        for _ in range(10):
            report = client.report("door", True)
            assert report is not None
            client.sent(report)
            shown(preview.words(client, report))
        assert len(shown.lines) == 8
        assert shown.lines[-1].endswith(
            f"door: code {report[9]} of 2, 10 bytes, epsilon 0.1; 30 more reports left"
        )
        assert preview.words(board(), report) == "a question that is no longer asked: 10 bytes"

    def test_failure_changes_nothing(self):
        def broken(words: str) -> None:
            raise OSError("no display")

        client = board()
        report = b"\x10" + bytes(10)
        assert preview.show(broken, client, report) == "on_report: OSError: no display"
        assert preview.show(lambda words: None, client, report) is None
