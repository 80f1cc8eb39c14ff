"""The simulation of boards that reconnect simultaneously, compared with results worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
from drawings import points, saved_figure

from hushmote.device import reporter_base
from hushmote.studies.arrival import draw, numbers_of
from hushmote.studies.power_cut import ArrivalError, Boards, Server, simulate, spread_for

# A broker that accepts 100 boards a second, and boards that take almost no time.
SERVER = Server(0.002, 0.004, 0.001, 0.001, 0.002)
QUICK = Boards(200, boot_s=(0.0, 0.0), crypto_s=0.0, round_trip_s=0.0)


class TestSimulate:
    def test_single_board_takes_its_own_and_the_brokers_time(self):
        board = Boards(1, boot_s=(5.0, 5.0), crypto_s=1.0, round_trip_s=0.1, spread_s=1)
        run = simulate(board, SERVER, 1)
        # TCP and the first flight take 1.5 round trips, four more responses one each, and the last a half.
        min_s = 5.0 + 1.0 + 0.010 + 0.1 * 6
        assert min_s <= run.all_s <= min_s + 1.0
        assert run.attempts.tolist() == [1]
        assert run.busy.sum() == pytest.approx(SERVER.board_s)
        assert run.wasted == pytest.approx(0, abs=1e-9)

    def test_spread_boards_cost_the_broker_one_connection_each(self):
        run = simulate(replace(QUICK, spread_s=10, timeout_s=3), SERVER, 1, max_s=12)
        assert run.connections.sum() == run.tries.sum() == 200
        assert run.busy.sum() == pytest.approx(200 * SERVER.board_s)
        assert run.wasted == pytest.approx(0, abs=1e-9)

    def test_simultaneous_boards_take_as_long_as_the_work(self):
        # 200 boards arrive within 2 s and cause 2 s of work, so the queue is rarely empty.
        run = simulate(replace(QUICK, backoff_s=1), SERVER, 1)
        assert 2.0 <= run.all_s < 3.5

    @pytest.mark.slow
    def test_timeouts_waste_work_unless_boards_are_spread(self):
        boards = replace(QUICK, count=2000, timeout_s=3)
        at_once = simulate(boards, SERVER, 1)
        spread = simulate(replace(boards, spread_s=spread_for(2000, SERVER)), SERVER, 1)
        assert at_once.attempts.mean() > 2
        assert at_once.wasted > 0.2
        assert at_once.busy.sum() * (1 - at_once.wasted) == pytest.approx(2000 * SERVER.board_s)
        assert spread.attempts.mean() == 1
        assert spread.wasted == pytest.approx(0, abs=1e-9)
        assert spread.tries.max() < at_once.tries.max() / 5
        assert spread.all_s < at_once.all_s

    @pytest.mark.slow
    def test_backlog_rejects_boards_before_they_cost_anything(self):
        boards = replace(QUICK, count=1500, timeout_s=3)
        rejected = simulate(boards, replace(SERVER, backlog=20), 1)
        accepted = simulate(boards, SERVER, 1)
        assert rejected.wasted < accepted.wasted / 2

    def test_waits_match_the_reporter(self, monkeypatch: pytest.MonkeyPatch):
        calls: list[int] = []

        def wait_ms(attempt: int, first_s: int, max_s: int, below: object) -> int:
            calls.append(attempt)
            assert (first_s, max_s) == (3, 40)
            return 1_000

        monkeypatch.setattr(reporter_base, "_wait_ms", wait_ms)
        slow = Server(0.5, 0.5, 0.1, 0.1, 0.1)
        run = simulate(
            replace(QUICK, count=20, backoff_s=3, backoff_max_s=40, timeout_s=4), slow, 1, max_s=60
        )
        assert {0, 1} <= set(calls)
        assert len(calls) >= run.attempts.sum() - 20

    def test_unconnected_board_has_infinite_time(self):
        run = simulate(replace(QUICK, count=50), Server(10.0, 10.0, 0, 0, 0), 1, max_s=100)
        assert np.isinf(run.all_s)
        assert numbers_of(run)["all_s"] is None

    def test_seed_repeats_arrivals_and_progress_adds_up(self):
        progress: list[float] = []
        result = simulate(QUICK, SERVER, 7, advance=progress.append)
        second = simulate(QUICK, SERVER, 7)
        np.testing.assert_array_equal(result.connected_s, second.connected_s)
        assert sum(progress) == pytest.approx(1)


class TestPicture:
    def test_time_axis_is_in_seconds(self, monkeypatch: pytest.MonkeyPatch):
        """Each point is the mean of two seconds, and is drawn in their middle."""
        run = simulate(replace(QUICK, count=50, spread_s=400), SERVER, 1)
        assert 300 <= len(run.tries) < 450
        axes, _ = saved_figure(monkeypatch, draw, None, {"spread": run}).axes
        x, _ = points(axes.lines[0])
        assert x == list(range(1, len(run.tries) + 1, 2))


class TestArguments:
    @pytest.mark.parametrize(("boards", "max_s"), [(0, 60.0), (3_000_000, 60.0), (10, 0.0), (10, 1e6)])
    def test_rejects_invalid_arrivals(self, boards: int, max_s: float):
        with pytest.raises(ArrivalError, match="an arrival"):
            simulate(Boards(boards), SERVER, max_s=max_s)
