"""device/main.py over time: sleeps, restarts and the watchdog, on fake chips with a simulated clock.

lightsleep, deepsleep, WDT and the reset causes behave as in ports/rp2 and ports/esp32 of MicroPython 1.25.
"""

import contextlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boards
import pytest
from enumeration import memory
from experiments import experiment_json
from settings_mistakes import MISTAKES, VALID, Mistake
from wake_ups import Air, install, provisioned

from hushmote.device import consent, ldp_client, main, station
from hushmote.device import memory as memory_module
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.server.experiments import definition

HOUR_MS = 3_600_000


class PowerOff(BaseException):
    """Raised at the end of the simulated time."""


class WatchdogReset(BaseException):
    """Raised if the watchdog is not fed in time."""


class Chip:
    """An RP2040, with only light sleep, a watchdog that never stops, and two reset causes."""

    PWRON_RESET = 1
    WDT_RESET = 3

    def __init__(self, cause: int = 1, until_ms: int = 10 * HOUR_MS) -> None:
        self.now_ms = 0
        self.cause = cause
        self.naps = 0
        self.early = False  # the radio is active, so lightsleep returns immediately
        self.dogs = 0
        self._until_ms = until_ms
        self._bites_ms: int | None = None

    def reset_cause(self) -> int:
        return self.cause

    def pass_ms(self, ms: float) -> None:
        self.now_ms += int(ms)
        if self._bites_ms is not None and self.now_ms > self._bites_ms:
            raise WatchdogReset
        if self.now_ms >= self._until_ms:
            raise PowerOff

    def lightsleep(self, ms: int) -> None:
        if ms >= 4_294_968:
            raise ValueError("sleep too long")
        self.naps += 1
        self.pass_ms(0 if self.early else ms)

    def WDT(self, timeout: int) -> Any:
        if timeout > 8_388:
            raise ValueError("timeout exceeds 8388")
        self.dogs += 1
        chip = self

        class Dog:
            def feed(self) -> None:
                chip._bites_ms = chip.now_ms + timeout

        dog = Dog()
        dog.feed()
        return dog


class Esp32(Chip):
    """An ESP32, with deep sleep, after which it restarts and knows the cause."""

    DEEPSLEEP_RESET = 4
    TIMER_WAKE = 4
    EXT0_WAKE = 2

    def __init__(self, cause: int, wake: int = 0) -> None:
        super().__init__(cause)
        self.wake = wake
        self.slept_ms: list[int] = []
        self.rtc = b""

    def RTC(self) -> "Esp32":
        return self

    def memory(self, data: bytes | None = None) -> bytes:
        self.rtc = self.rtc if data is None else data
        return self.rtc

    def wake_reason(self) -> int:
        return self.wake

    def deepsleep(self, ms: int) -> None:
        self.slept_ms.append(ms)
        raise PowerOff


class Time:
    """main.py's clock, which follows the chip's."""

    def __init__(self, patch: pytest.MonkeyPatch, chip: Chip) -> None:
        patch.setattr(main, "machine", chip)
        patch.setattr(main, "time", self)
        for module in (main, station):
            patch.setattr(module, "ticks_ms", lambda: chip.now_ms)
            patch.setattr(module, "sleep_ms", chip.pass_ms)
        patch.setattr(main, "_watchdog", [])
        self._chip = chip

    def sleep(self, seconds: float) -> None:
        self._chip.pass_ms(seconds * 1000)


class Draws:
    """A random source whose below() returns its maximum, with which `every` skips the call."""

    def below(self, n: int) -> int:
        return n - 1

    def bernoulli(self, threshold: int) -> bool:
        return False


@pytest.fixture
def lifetime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[int]]:
    """Run main() until the power fails; return its readings' times in ms after the start."""

    def run(
        chip: Chip,
        *,
        known: bool = True,
        awake_ms: int = 0,
        every: int = 1,
        rng: Any = None,
        ask: str = "once",
    ) -> list[int]:
        readings: list[int] = []
        storage = memory(provisioned())
        air = Air()
        folder = tmp_path / str(known)
        payload = experiment_json(name="t", every=every, budget={"rule": "unlimited"})
        air.experiment("t", payload)
        install(monkeypatch, air, folder, storage, {"t": True}, rng or Draws())
        monkeypatch.setattr(main, "POLICY", main.POLICY | {"ask": ask})
        if known:
            client = ldp_client.Client(main.POLICY, storage, "board-1", fleet="home")
            with contextlib.suppress(ldp_client.ExperimentRefused):  # the question still needs an opt-in
                KeptExperiments(client, str(folder)).take("t", payload)

        def reading() -> bool:
            readings.append(chip.now_ms)
            chip.pass_ms(awake_ms)
            return True

        monkeypatch.setattr(main, "READINGS", {"t": reading})
        Time(monkeypatch, chip)
        with pytest.raises(PowerOff):
            main.main()
        return readings

    return run


class TestFirstReading:
    def test_is_at_a_random_time_within_interval(self, lifetime: Any):
        for known, first_s in ((True, main.INTERVAL_S - 1), (False, main.START_SPREAD_S - 1)):
            moments = lifetime(Chip(), known=known)
            assert moments[0] == (main.START_DELAY_S + first_s) * 1000

    def test_waits_a_full_interval_after_watchdog_reset(self, lifetime: Any):
        moments = lifetime(Chip(Chip.WDT_RESET))
        assert moments[0] == (main.START_DELAY_S + main.INTERVAL_S) * 1000


class NinthSaysYes(Draws):
    """Reports on every ninth draw with `every` = 90."""

    draws = 0

    def below(self, n: int) -> int:
        if n != 90:
            return super().below(n)
        self.draws += 1
        return int(self.draws % 9 != 0)


class TestRp2040:
    @pytest.mark.slow
    @pytest.mark.parametrize("interval_s", [60, 3600, 7200])  # the last exceeds lightsleep's limit
    @pytest.mark.parametrize("early", [False, True])
    def test_reads_once_per_interval_despite_early_wake(
        self, interval_s: int, early: bool, lifetime: Any, monkeypatch: pytest.MonkeyPatch
    ):
        chip = Chip(until_ms=(main.START_DELAY_S + 4 * interval_s) * 1000)
        chip.early = early
        monkeypatch.setattr(main, "INTERVAL_S", interval_s)
        moments = lifetime(chip, awake_ms=3000)
        assert len(moments) >= 4
        gaps = [b - a for a, b in itertools.pairwise(moments)]
        assert set(gaps) == {interval_s * 1000}
        # If it cannot sleep, it naps at most once in 100 ms instead of spinning.
        assert chip.naps <= chip.now_ms / (100 if early else 4_000)

    def test_sleeps_until_next_reported_reading(self, lifetime: Any):
        chip = Chip(until_ms=30 * HOUR_MS)
        moments = lifetime(chip, every=90, awake_ms=3000, rng=NinthSaysYes())
        first_ms = (
            main.START_DELAY_S + main.INTERVAL_S - 1
        ) * 1000  # the time of the first draw, which skips the call
        assert moments == [first_ms + 8 * HOUR_MS, first_ms + 17 * HOUR_MS, first_ms + 26 * HOUR_MS]


class TestBoardHealth:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("cause", "started"), [(Chip.PWRON_RESET, "power"), (Chip.WDT_RESET, "watchdog"), (5, "other")]
    )
    def test_is_a_reading_for_the_example(
        self, cause: int, started: str, lifetime: Any, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(main, "_last", {})
        chip = Chip(cause)
        lifetime(chip)
        assert main._last["up"] == pytest.approx(chip.now_ms / 1000, abs=main.START_DELAY_S + 5)
        monkeypatch.setattr(memory_module.gc, "mem_free", lambda: 80 * 1024, raising=False)
        main._last["rssi"] = -67
        experiment = definition.load(
            Path(__file__).parents[2] / "examples" / "board_health.toml"
        ).experiment()
        assert main.board_health() == (started, -67, 80.0)
        assert isinstance(experiment.bucket(main.board_health()), int)
        del main._last["rssi"]
        assert experiment.bucket(main.board_health()) is None


class TestPrintedResults:
    def test_count_one_report_in_the_singular(self, capsys: pytest.CaptureFixture[str]):
        board = boards.client("d", boards.experiment())
        reporter = SimpleNamespace(error=None, fault=None, mistyped={}, failures=(0,), sent=0, refused={})
        lines = []
        for _ in range(3):
            memory_module.print_results(board, reporter, SimpleNamespace(fault=None))
            lines.append(capsys.readouterr().out.splitlines()[0])
            board.report("temp", 20.0)
        assert [line.removeprefix("hushmote: temp: ") for line in lines] == [
            "0 reports made, 4 left",
            "1 report made, 3 left",
            "2 reports made, 2 left",
        ]
        board = boards.client("d", boards.experiment(budget={"rule": "count", "cap": 1}))
        board.report("temp", 20.0)
        memory_module.print_results(board, reporter, SimpleNamespace(fault=None))
        assert "silent: its budget is spent, after 1 report\n" in capsys.readouterr().out


class TestEsp32:
    def test_reads_after_full_sleep_and_sleeps_again(self, lifetime: Any):
        chip = Esp32(Esp32.DEEPSLEEP_RESET, Esp32.TIMER_WAKE)
        assert lifetime(chip, awake_ms=2500) == [0]
        assert chip.slept_ms == [HOUR_MS - 2500]

    def test_remembers_wake_reason_through_deep_sleep(self, lifetime: Any, monkeypatch: pytest.MonkeyPatch):
        rng = NinthSaysYes()
        memory = b'[{}, null, {"up": 9}]'
        # After a button press, the third reading is at another time than the one drawn for.
        for wake, readings, sleeps_ms in (
            (Esp32.TIMER_WAKE, [], 8 * HOUR_MS),
            (Esp32.TIMER_WAKE, [0], 9 * HOUR_MS),
            (Esp32.EXT0_WAKE, [], HOUR_MS - 1000),
            (Esp32.TIMER_WAKE, [], 8 * HOUR_MS),
        ):
            monkeypatch.setattr(main, "_last", {})
            chip = Esp32(Esp32.DEEPSLEEP_RESET, wake)
            chip.rtc = memory
            assert lifetime(chip, every=90, rng=rng) == readings
            assert chip.slept_ms == [sleeps_ms]
            memory = chip.rtc
            assert memory.startswith(b"[{}, null, ") == (wake == Esp32.EXT0_WAKE)  # no draw
        assert main._last["up"] == 8 * 3600 + 3599  # since the button's press

    @pytest.mark.parametrize(("cause", "wake"), [(4, Esp32.EXT0_WAKE), (1, 0), (5, 0)])
    def test_waits_before_reading_after_any_other_wake(self, cause: int, wake: int, lifetime: Any):
        chip = Esp32(cause, wake)
        assert lifetime(chip) == []
        assert chip.slept_ms == [(main.INTERVAL_S - 1) * 1000]


class TestSettings:
    """The file that `hushmote flash` writes, in which someone may have changed fields."""

    @pytest.fixture
    def client_of(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
        """Return a function that makes the client of a board with this settings file."""
        file = tmp_path / "settings.json"
        monkeypatch.setattr(main, "SETTINGS", str(file))
        monkeypatch.setattr(main, "LEDGER", memory(provisioned()))

        def make(text: str) -> ldp_client.Client:
            file.write_text(text)
            return main.make_client(main.load_settings())

        return make

    def test_become_the_clients(self, client_of: Callable[[str], Any]):
        assert client_of(json.dumps(VALID)).fleet == "home"

    @pytest.mark.parametrize("mistake", MISTAKES, ids=str)
    def test_mistake_is_named(self, mistake: Mistake, client_of: Callable[[str], Any]):
        with pytest.raises(main.NeedsPerson) as caught:
            client_of(json.dumps(mistake.settings))
        mistake.assert_explained_by(str(caught.value))

    def test_damaged_or_missing_file_is_one_line(self, client_of: Callable[[str], Any], tmp_path: Path):
        with pytest.raises(main.NeedsPerson, match=r"settings\.json is damaged: run `hushmote flash` again"):
            client_of('{"fleet":')
        (tmp_path / "settings.json").unlink()
        with pytest.raises(main.NeedsPerson, match="run `hushmote provision`, then `hushmote flash`"):
            main.load_settings()


class TestWatchdog:
    def test_resets_board_if_sensor_hangs(self, lifetime: Any):
        with pytest.raises(WatchdogReset):
            lifetime(Chip(), awake_ms=9_000)

    def test_is_off_while_someone_must_intervene(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        chip = Chip()
        install(monkeypatch, Air(), tmp_path, memory(provisioned()), {"t": True})
        Time(monkeypatch, chip)
        monkeypatch.setattr(main, "READINGS", {})  # a fault that a person must fix
        main.main()
        assert chip.now_ms == main.START_DELAY_S * 1000
        assert chip.dogs == 0

    def test_is_fed_during_every_wait(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """An attempt at unavailable Wi-Fi takes 20 s, more than twice the watchdog's timeout."""
        chip = Chip()
        storage = memory(provisioned())
        air = Air()
        air.up = False
        install(monkeypatch, air, tmp_path, storage, {"t": True}, Draws())
        Time(monkeypatch, chip)
        with pytest.raises(PowerOff):
            main.main()
        assert air.connections >= 9
        assert not air.on  # the radio is off during sleep
        assert chip.dogs == 1

    def test_is_fed_for_29_seconds_of_a_look_up(self, monkeypatch: pytest.MonkeyPatch):
        """On an RP2040 a timer feeds it, because a look-up blocks; it must still end one that hangs."""
        fed_s: list[int] = []
        now_s = [0]
        timers: list[Any] = []

        class Timer:
            def __init__(self, _number: int, *, period: int, callback: Callable[[Any], None]) -> None:
                assert period == 1000
                self.tick = callback
                self.is_on = True
                timers.append(self)

            def deinit(self) -> None:
                self.is_on = False

        def getaddrinfo(_host: str, port: int) -> list[Any]:
            for now_s[0] in range(60):
                timers[0].tick(timers[0])
            return [(0, 0, 0, "", ("10.0.0.7", port))]

        monkeypatch.setattr(main.sys, "platform", "rp2")
        monkeypatch.setattr(main, "machine", SimpleNamespace(Timer=Timer))
        monkeypatch.setattr(main, "_last", {})
        monkeypatch.setattr(main, "feed", lambda: fed_s.append(now_s[0]))
        assert main.look_up(getaddrinfo, "broker", 1883)[0][-1] == ("10.0.0.7", 1883)
        assert fed_s == list(range(29))
        assert not timers[0].is_on


class TestButton:
    """A board with a button on pin 14, which is down permanently or from a given time."""

    @pytest.fixture
    def chip(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
        def make(chip: Any, is_down: Callable[[], bool]) -> Any:
            pin = type("Pin", (), {"IN": 0, "OUT": 1, "PULL_UP": 2, "__init__": lambda *_: None})
            pin.value = lambda _, *on: chip.lit_ms.append(chip.now_ms) if on else int(not is_down())  # pyright: ignore[reportAttributeAccessIssue]
            chip.Pin = pin
            chip.lit_ms = []
            chip.woken_by = []
            esp32 = type("esp32", (), {"WAKEUP_ALL_LOW": 0})
            esp32.wake_on_ext0 = lambda *_: chip.woken_by.append("button")  # pyright: ignore[reportAttributeAccessIssue]
            monkeypatch.setattr(main, "esp32", esp32)
            monkeypatch.setattr(main, "BUTTON", 14)
            monkeypatch.setattr(main, "_last", {})
            monkeypatch.setattr(consent, "machine", chip)
            monkeypatch.setattr(consent, "ticks_ms", lambda: chip.now_ms)
            monkeypatch.setattr(consent, "sleep_ms", chip.pass_ms)
            return chip

        return make

    @pytest.mark.parametrize(("held_ms", "counts"), [(2_980, False), (3_000, True)])
    def test_hold_counts_after_3_seconds(self, held_ms: int, counts: bool, chip: Any):
        board = chip(Chip(), lambda: board.now_ms <= held_ms)
        assert consent.Button(board.Pin(), released=True).was_held(lambda: None) == counts

    @pytest.fixture
    def answers(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        given: list[bool] = []
        toggle = consent.toggle_consent
        monkeypatch.setattr(
            consent,
            "toggle_consent",
            lambda client, *more: toggle(client, *more) or given.append(client.consent),
        )
        return given

    def test_rp2040_runs_with_stuck_button(self, chip: Any, lifetime: Any, answers: list[bool]):
        board = chip(Chip(until_ms=5 * HOUR_MS), lambda: True)
        assert len(lifetime(board)) >= 3
        assert answers == []

    def test_does_not_wake_esp32_if_stuck(self, chip: Any, lifetime: Any, answers: list[bool]):
        board = chip(Esp32(Esp32.DEEPSLEEP_RESET, Esp32.TIMER_WAKE), lambda: True)
        assert lifetime(board) == [0]
        assert (answers, board.woken_by) == ([], [])

    def test_press_opts_out_while_rp2040_sleeps(self, chip: Any, lifetime: Any, answers: list[bool]):
        board = chip(Chip(until_ms=5 * HOUR_MS), lambda: board.now_ms > 2 * HOUR_MS)  # and is then stuck
        lifetime(board)
        assert answers == [False]

    def test_press_that_wakes_esp32_opts_out(self, chip: Any, lifetime: Any, answers: list[bool]):
        asleep = chip(Esp32(Esp32.DEEPSLEEP_RESET, Esp32.TIMER_WAKE), lambda: False)
        lifetime(asleep)
        assert asleep.woken_by == ["button"]
        awake = chip(Esp32(Esp32.DEEPSLEEP_RESET, Esp32.EXT0_WAKE), lambda: awake.now_ms < 4_000)
        awake.rtc = asleep.rtc
        lifetime(awake)
        assert answers == [False]

    def held_when_lit(self, chip: Any) -> bool:
        """Return whether the button is down, which it is for 4 s after the light comes on."""
        return bool(chip.lit_ms) and 500 <= chip.now_ms - chip.lit_ms[0] < 4_500

    @pytest.fixture
    def said_yes(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], bool]:
        """Return whether flash has an opt-in to the pending question; the board has a light."""
        monkeypatch.setattr(main, "LED", "LED")
        return (tmp_path / "True" / "t.yes").exists

    def test_hold_while_light_asks_agrees_to_question(
        self, chip: Any, lifetime: Any, answers: list[bool], said_yes: Any
    ):
        board = chip(Chip(until_ms=2 * HOUR_MS), lambda: self.held_when_lit(board))
        lifetime(board, ask="each")
        assert said_yes()
        assert answers == []

    def test_hold_at_any_other_time_opts_out(
        self, chip: Any, lifetime: Any, answers: list[bool], said_yes: Any
    ):
        board = chip(Chip(until_ms=2 * HOUR_MS), lambda: 1_000_000 < board.now_ms < 1_006_000)
        lifetime(board, ask="each")
        assert board.lit_ms
        assert answers == [False]
        assert not said_yes()

    def test_touch_makes_the_light_ask_again(
        self, chip: Any, lifetime: Any, answers: list[bool], said_yes: Any
    ):
        touch_ms = 1_000_000

        def is_down() -> bool:
            return (
                touch_ms < board.now_ms < touch_ms + 1_500
                or touch_ms + 4_000 < board.now_ms < touch_ms + 9_000
            )

        board = chip(Chip(until_ms=2 * HOUR_MS), is_down)
        lifetime(board, ask="each")
        assert said_yes()
        assert answers == []

    def test_hold_that_wakes_esp32_opts_out(
        self, chip: Any, lifetime: Any, answers: list[bool], said_yes: Any
    ):
        board = chip(Esp32(Esp32.DEEPSLEEP_RESET, Esp32.EXT0_WAKE), lambda: board.now_ms < 4_000)
        board.rtc = b'[{}, null, {"released": true}]'
        lifetime(board, ask="each")
        assert answers == [False]
        assert not said_yes()

    def test_touch_that_wakes_esp32_makes_the_light_ask(
        self, chip: Any, lifetime: Any, answers: list[bool], said_yes: Any
    ):
        board = chip(Esp32(Esp32.DEEPSLEEP_RESET, Esp32.EXT0_WAKE), lambda: self.held_when_lit(board))
        lifetime(board, ask="each")
        assert said_yes()
        assert answers == []

    def test_hold_opts_out_without_light(
        self, chip: Any, lifetime: Any, answers: list[bool], said_yes: Any, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(main, "LED", None)
        board = chip(Chip(until_ms=2 * HOUR_MS), lambda: 20_000 < board.now_ms < 26_000)
        lifetime(board, ask="each")
        assert answers == [False]
        assert not said_yes()

    def test_prompt_agrees_to_question(
        self,
        chip: Any,
        lifetime: Any,
        said_yes: Any,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ):
        monkeypatch.setattr(main, "LED", None)
        lifetime(chip(Chip(until_ms=HOUR_MS), lambda: False), ask="each")
        main.agree("t")
        assert said_yes()
        main.agree("t")
        assert capsys.readouterr().out == "hushmote: t: yes\nhushmote: t: refused: no question is waiting\n"
