"""A discrete-event simulation of a broker when all boards of a region reconnect after a power cut.

A board starts, joins its network, waits as its reporter does, opens a TCP connection, performs the TLS
handshake, connects, subscribes and publishes its status. If an answer does not arrive within timeout_s,
the board gives up and tries again after the reporter's own back-off, computed by the shipped function.
The broker processes arrived packets on its cores. Only while processing does it notice that a board has given
up in the meantime, so that its work for that board was wasted. If most of its work is wasted, the broker is
fully busy although hardly any board connects.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..device import reporter_base
from ..server.errors import HushmoteError

# TCP's retransmission delays if nobody accepts.
_SYN_AGAIN_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

# Events: a board's next attempt, its SYN, work that has arrived, a core that has finished, a deadline.
_ATTEMPT, _SYN, _ARRIVED, _DONE, _DEADLINE = range(5)
# Steps of a connection, in order; the operating system handles the first, and the broker the others.
_TCP, _HELLO, _FINISH, _CONNECT, _SUBSCRIBE, _STATUS, _CONNECTED = range(7)
_GIVEN_UP = -1  # any work for the attempt is void


class ArrivalError(HushmoteError):
    """A fleet or broker that cannot be simulated; the message says what was expected."""


@dataclass(frozen=True)
class Server:
    """A broker as connecting boards see it.

    Attributes:
        hello_s: CPU seconds for a TLS handshake until the broker's signature.
        finish_s: CPU seconds for the rest of the handshake, from the board's certificate onwards.
        connect_s, subscribe_s, status_s: CPU seconds for each of these three packets.
        cores: Number of cores that work at once.
        backlog: Number of connections that the system holds until the broker accepts them, which a
            single-threaded broker does between two rounds of work; None if it accepts at once. It picks any
            of the waiting connections, because neither a loop over sockets nor goroutines keep an order.
    """

    hello_s: float
    finish_s: float
    connect_s: float
    subscribe_s: float
    status_s: float
    cores: float = 1
    backlog: int | None = None

    @property
    def board_s(self) -> float:
        """CPU seconds for a board that connects at its first attempt."""
        return self.hello_s + self.finish_s + self.connect_s + self.subscribe_s + self.status_s

    @property
    def per_s(self) -> float:
        """Maximum number of boards per second that it can accept."""
        return self.cores / self.board_s


@dataclass(frozen=True)
class Boards:
    """A region's boards; times in seconds, the reporter's settings under their own names.

    Attributes:
        boot_s: (min, max) seconds from power-on until the network is up, uniformly distributed.
        crypto_s: A board's own computation during the handshake.
        round_trip_s: Network round trip to the broker.
        spread_s: None for a reporter without this setting.
    """

    count: int
    spread_s: int | None = None
    timeout_s: int = 10
    backoff_s: int = 2
    backoff_max_s: int = 300
    boot_s: tuple[float, float] = (3.0, 8.0)
    crypto_s: float = 1.0
    round_trip_s: float = 0.05
    asyncio: bool = False


@dataclass(frozen=True)
class Arrival:
    """The result of a simulation.

    Attributes:
        connected_s: Per board, seconds from the return of power until it is connected; infinite if it
            never was.
        attempts: Number of attempts per board.
        tries, connections: Attempts and new connections in each second.
        busy: The broker's CPU seconds in each second, over all cores.
        most_open: The highest number of connections at once, half-open ones included.
    """

    boards: Boards
    server: Server
    connected_s: NDArray[np.float64] = field(repr=False)
    attempts: NDArray[np.int64] = field(repr=False)
    tries: NDArray[np.int64] = field(repr=False)
    connections: NDArray[np.int64] = field(repr=False)
    busy: NDArray[np.float64] = field(repr=False)
    most_open: int

    @property
    def all_s(self) -> float:
        """Seconds until every board is connected; infinite if some never are."""
        return float(self.connected_s.max())

    def share_s(self, share: float) -> float:
        """Return the seconds until this share of the boards is connected."""
        return float(np.quantile(self.connected_s, share, method="higher"))

    @property
    def wasted(self) -> float:
        """Share of the broker's work for attempts that failed."""
        useful = np.isfinite(self.connected_s).sum() * self.server.board_s
        return max(1 - float(useful / self.busy.sum()), 0.0)


def spread_for(boards: int, server: Server, load: float = 0.8) -> int:
    """Return the whole seconds over which boards must spread to keep the broker's load at this share."""
    return max(math.ceil(boards / server.per_s / load), 1)


def simulate(
    boards: Boards,
    server: Server,
    seed: int | None = None,
    *,
    max_s: float = 7200.0,
    advance: Callable[[float], object] = lambda _: None,
) -> Arrival:
    """Start all boards at second 0 and simulate until each is connected.

    Args:
        boards: The boards.
        server: The broker.
        seed: Repeats a run; None for a random one.
        max_s: Simulated seconds after which to stop in any case.
        advance: Called with the share of the work done since the last call.

    Raises:
        ArrivalError: If a number is out of range.
    """
    if not 1 <= boards.count <= 2_000_000:
        raise ArrivalError(f"an arrival must have 1 to 2,000,000 boards, not {boards.count:,}")
    if not 0 < max_s <= 86_400:
        raise ArrivalError(f"an arrival must last more than 0 and at most 86,400 seconds, not {max_s:g}")
    return _Simulation(boards, server, np.random.default_rng(seed), max_s).run(advance)


class _Simulation:
    """The pending events, and the state of the broker and the boards."""

    def __init__(self, boards: Boards, server: Server, rng: np.random.Generator, max_s: float) -> None:
        n = boards.count
        self._boards, self._server, self._rng, self._max_s = boards, server, rng, max_s
        costs = (server.hello_s, server.finish_s, server.connect_s, server.subscribe_s, server.status_s)
        # A fraction of a core is modelled as a slower core.
        self._costs = (0.0, *(cost / min(server.cores, 1) for cost in costs))
        # The step whose deadline covers each step; it must finish within timeout_s.
        self._limit = [0, 0, 0, 3, 4, 5] if boards.asyncio else [0, 1, 1, 1, 4, 5]
        self._events: list[tuple[float, int, int, int, int]] = []  # time, kind, board, attempt, step
        self._part = [_TCP] * n
        self._attempt = [0] * n  # attempts started; events of other attempts are void
        self._waiting: deque[tuple[int, int, float]] = deque()  # connections in the backlog
        self._work: list[tuple[int, int, int]] = []  # board -1: accept the waiting connections
        self._free = max(int(server.cores), 1)
        self._open = self._most_open = 0
        self._connected = np.full(n, math.inf)
        self._tries: list[float] = []
        self._spent: list[tuple[float, float]] = []

    def run(self, advance: Callable[[float], object]) -> Arrival:
        boards, rng = self._boards, self._rng
        starts = rng.uniform(*boards.boot_s, boards.count)
        first = boards.backoff_s if boards.spread_s is None else boards.spread_s
        starts += rng.integers(0, max(first * 1000, 1), boards.count) / 1000
        self._events = [(float(s), _ATTEMPT, i, 0, 0) for i, s in enumerate(starts)]
        heapq.heapify(self._events)
        unconnected, reported = boards.count, boards.count
        handlers = (self._begin, self._syn, self._on_arrival, self._on_done, self._deadline)
        while self._events and unconnected:
            now, kind, board, attempt, part = heapq.heappop(self._events)
            if now > self._max_s:
                break
            unconnected -= bool(handlers[kind](now, board, attempt, part))
            if reported - unconnected > boards.count // 200:
                advance((reported - unconnected) / boards.count)
                reported = unconnected
        advance(reported / boards.count)
        return self._arrival()

    def _at(self, when: float, kind: int, board: int, attempt: int = 0, part: int = 0) -> None:
        heapq.heappush(self._events, (when, kind, board, attempt, part))

    def _is_at(self, board: int, attempt: int, part: int) -> bool:
        return self._attempt[board] == attempt and self._part[board] == part

    # The board

    def _begin(self, now: float, board: int, _attempt: int, _part: int) -> None:
        self._attempt[board] += 1
        self._part[board] = _TCP
        self._tries.append(now)
        attempt = self._attempt[board]
        self._at(now + self._boards.timeout_s, _DEADLINE, board, attempt, _TCP)
        self._syn(now, board, attempt, 0)

    def _syn(self, now: float, board: int, attempt: int, sent: int) -> None:
        if not self._is_at(board, attempt, _TCP):
            return
        backlog = self._server.backlog
        if backlog is not None and len(self._waiting) >= backlog:
            self._at(now + _SYN_AGAIN_S[min(sent, 7)], _SYN, board, attempt, sent + 1)
            return
        trip = self._boards.round_trip_s
        self._open += 1
        self._most_open = max(self._most_open, self._open)
        self._begin_part(now + trip, board, attempt, _HELLO)
        if backlog is None:
            self._at(now + 1.5 * trip, _ARRIVED, board, attempt, _HELLO)
            return
        self._waiting.append((board, attempt, now + 1.5 * trip))
        if len(self._waiting) == 1:
            self._work.append((-1, 0, 0))
            self._take(now)

    def _begin_part(self, now: float, board: int, attempt: int, part: int) -> None:
        self._part[board] = part
        if self._limit[part] == part:
            self._at(now + self._boards.timeout_s, _DEADLINE, board, attempt, part)

    def _deadline(self, now: float, board: int, attempt: int, part: int) -> None:
        at = self._part[board]
        if self._attempt[board] != attempt or at in (_CONNECTED, _GIVEN_UP) or self._limit[at] != part:
            return
        self._open -= at != _TCP
        self._part[board] = _GIVEN_UP
        boards = self._boards
        below = lambda n: int(self._rng.integers(n))  # noqa: E731
        wait_ms = reporter_base._wait_ms(attempt - 1, boards.backoff_s, boards.backoff_max_s, below)
        self._at(now + wait_ms / 1000, _ATTEMPT, board)

    # The broker

    def _on_arrival(self, now: float, board: int, attempt: int, part: int) -> None:
        self._work.append((board, attempt, part))
        self._take(now)

    def _take(self, now: float) -> None:
        work = self._work
        while self._free and work:
            chosen = int(self._rng.integers(len(work)))
            work[chosen], work[-1] = work[-1], work[chosen]
            board, attempt, part = work.pop()
            if board < 0:  # all waiting connections are accepted at once
                for waiting_board, its_attempt, when in self._waiting:
                    self._at(max(now, when), _ARRIVED, waiting_board, its_attempt, _HELLO)
                self._waiting.clear()
                continue
            cost = self._costs[part]
            self._free -= 1
            self._spent.append((now, cost * min(self._server.cores, 1)))
            self._at(now + cost, _DONE, board, attempt, part)

    def _on_done(self, now: float, board: int, attempt: int, part: int) -> bool:
        self._free += 1
        is_connected = False
        if self._is_at(board, attempt, part):
            trip = self._boards.round_trip_s
            if part == _STATUS:
                self._part[board] = _CONNECTED
                self._connected[board] = now + trip / 2
                is_connected = True
            else:
                self._begin_part(now + trip / 2, board, attempt, part + 1)
                compute_s = self._boards.crypto_s if part == _HELLO else 0.0
                self._at(now + trip + compute_s, _ARRIVED, board, attempt, part + 1)
        self._take(now)
        return is_connected

    def _arrival(self) -> Arrival:
        connected = self._connected
        tries = np.array(self._tries)
        when, cost = np.array(self._spent).reshape(-1, 2).T
        last = np.max(connected[np.isfinite(connected)], initial=0.0)
        seconds = int(max(last, tries.max(), when.max(initial=0.0))) + 1

        def counted(at: NDArray[np.float64]) -> NDArray[np.int64]:
            return np.bincount(at.astype(np.int64), minlength=seconds)

        return Arrival(
            self._boards,
            self._server,
            connected,
            np.array(self._attempt),
            counted(tries),
            counted(connected[np.isfinite(connected)]),
            np.bincount(when.astype(np.int64), cost, seconds).astype(float),
            self._most_open,
        )
