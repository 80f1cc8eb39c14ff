"""How long to wait before something that failed is tried again; pure."""

from __future__ import annotations

FIRST_S = 0.2
MOST_S = 15.0


class Backoff:
    """Waits that double from first_s to most_s, in seconds, until reset()."""

    def __init__(self, most_s: float = MOST_S, first_s: float = FIRST_S) -> None:
        self._first_s = self._wait_s = first_s
        self._most_s = most_s

    def next_s(self) -> float:
        """Return the wait after one more failure."""
        wait_s = self._wait_s
        self._wait_s = min(2 * wait_s, self._most_s)
        return wait_s

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._wait_s = self._first_s
