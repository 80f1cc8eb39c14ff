"""Batches are due when full, old, or as large as the broker's window; failures are followed by waits."""

from hushmote.server.ingest.pacing import Backoff, Pace


def steps(pace, count, start, gap_s=0.0001):
    for i in range(1, count + 1):
        pace.note_arrival(i, 1, start + i * gap_s)


class TestDue:
    def test_when_full_or_old_but_not_for_single_reports(self):
        pace = Pace(batch_reports=100, batch_s=1.0)
        steps(pace, 100, 0.0)
        assert pace.is_due(100, 0.01)
        steps(pace, 1, 5.0)
        assert not pace.is_due(1, 5.9)
        assert pace.is_due(1, 6.1)
        assert not pace.is_due(0, 1000.0)

    def test_when_the_usual_window_is_full(self):
        pace = Pace()
        steps(pace, 20, 0.0)
        assert not pace.is_due(20, 0.0025)
        assert pace.is_due(20, 0.006)
        steps(pace, 21, 1.0)  # the broker sends more than that, so it was not a window
        assert pace.window is None
        assert not pace.is_due(21, 1.5)


def stuck(committed_after: float, again_after: float = 0.1) -> Pace:
    """Feed batches of 32, committed and followed by the next message after these delays."""
    pace, now = Pace(), 0.0
    for _ in range(3):
        steps(pace, 32, now, 0.0)
        now += committed_after
        pace.note_commit(32, now)
        now += again_after
    return pace


class TestLearnedWindow:
    def test_comes_from_stalled_batches(self):
        pace = Pace()
        now = 0.0
        for _ in range(2):
            steps(pace, 32, now)
            assert not pace.is_due(32, now + 0.5)
            now += 1.1
            assert pace.is_due(32, now)
            pace.note_commit(32, now)
        steps(pace, 32, now)
        assert pace.window == 32
        assert pace.is_due(32, now + 0.01)

    def test_ignores_thin_traffic(self):
        pace = Pace(window=None)
        now = 0.0
        for _ in range(50):
            steps(pace, 5, now)
            pace.note_commit(5, now + 1.1)
            now += 1.1
        assert pace.window is None

    def test_ignores_batches_that_waited_briefly(self):
        assert stuck(0.49).window is None
        assert stuck(0.51).window == 32

    def test_ignores_a_broker_that_resumes_late(self):
        assert stuck(1.1, 0.24).window == 32
        assert stuck(1.1, 0.26).window is None

    def test_ignores_batches_of_different_sizes(self):
        pace, now = Pace(window=None), 0.0
        for count in (32, 40, 32, 40, 32):
            steps(pace, count, now)
            now += 1.1
            pace.note_commit(count, now)
        assert pace.window is None


class TestBackoff:
    def test_doubles_up_to_the_limit_and_resets(self):
        backoff = Backoff()
        assert [backoff.next_s() for _ in range(9)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]
        backoff.reset()
        assert backoff.next_s() == 0.2
        short = Backoff(max_s=1.0)
        assert [short.next_s() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
