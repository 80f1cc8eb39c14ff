"""The C client's reporter with a simulated broker and clock: the messages it sends, and when."""

from __future__ import annotations

from ctypes import c_uint64
from pathlib import Path
from typing import Any

import pytest
from boards import SIGNING
from c_client import CBoard, Refused, Source
from c_core import needs_gcc
from c_reporter import TOPIC, Board
from enumeration import POLICY, MemoryStorage, memory
from experiments import experiment_json, number_json
from retained_messages import (
    REFUSED_WORDS,
    WAITING,
    WAITING_NAMES,
    WAITING_POLICY,
    digests_in_force,
    digests_of,
)

from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, ExperimentRefused
from hushmote.server.wire import keys

pytestmark = needs_gcc

PAYLOAD = experiment_json(budget={"rule": "sum", "cap": 40_000_000})
ANNOUNCE = keys.public_key_bytes(SIGNING)


class TestConsent:
    def stored_reports(self, board: Board) -> tuple[bytes, ...]:
        """Return the unsent reports in flash, as MicroPython's client reads them."""
        storage: Any = MemoryStorage(board.storage.slots)
        return Client(POLICY, storage, device_id="board-1")._ledger.state.unsent

    @pytest.mark.slow
    def test_is_required_until_opt_out(self):
        provisioned = CBoard(POLICY, MemoryStorage(), entropy=Source(3), begin=False)
        provisioned.provision()
        board = Board(provisioned.storage.slots)
        for _ in range(50):
            assert board.tick(3_600_000) == []
        board.message("e", PAYLOAD)
        assert board.report() == 0
        board.board.consent = True
        board.connected()
        assert board.report() > 0
        assert len(board.published()) == 1
        board.board.consent = True  # a repeated opt-in keeps the report
        assert len(self.stored_reports(board)) == 1
        board.board.consent = False
        assert self.stored_reports(board) == ()
        assert board.tick() == [("status", "offline"), ("disconnect",)]
        for _ in range(50):
            assert board.tick(3_600_000) == []
            assert board.report() == 0
        board.board.consent = True
        assert [what for what in board.connected() if what[0] == "report"] == []
        # From the network: an opt-out always, an opt-in if the policy allows it.
        network = board.c.hushmote_consent_from_network
        assert network(board.board.client, True) == -17
        assert network(board.board.client, False) == 0
        assert board.tick()[-1] == ("disconnect",)
        assert network(board.board.client, True) == -17
        assert board.board.consent is False
        board.board.rules.consent = 1
        assert network(board.board.client, True) == 0
        assert board.board.consent is True


def raise_disk_full(slot: int, data: bytes) -> None:
    raise OSError(28)


class TestReports:
    @pytest.mark.slow
    def test_oldest_are_sent_first_and_resent_unchanged(self):
        board = Board()
        board.connected()
        board.message("e", PAYLOAD)
        board.message("f", number_json(300, name="f"))  # with a longer code
        sizes = [board.report("eeffefe"[i], None) for i in range(7)]
        outbox = board.board.outbox()
        assert sizes == [len(report) for report in outbox]
        board.id = -1  # a message's id may be 0
        first = board.published()
        assert [report for _, report in first] == outbox[:4]
        assert board.published(20_000) == []
        board.acknowledged(first[2][0])
        board.acknowledged(first[2][0])
        board.acknowledged(99)
        assert board.board.outbox() == outbox[:2] + outbox[3:]
        (fifth,) = board.published()
        assert fifth[1] == outbox[4]
        board.lost()
        assert board.published() == []
        # Reports in flight are resent unchanged; late acknowledgements on an old connection do not count.
        resent = [what[1:] for what in board.connected() if what[0] == "report"]
        assert [report for _, report in resent] == [*outbox[:2], *outbox[3:5]]
        board.acknowledged(first[0][0])
        assert board.published() == []
        for number, _ in resent:
            board.acknowledged(number)
        published = board.published()
        assert [report for _, report in published] == outbox[5:]
        # The reporter disconnects if the broker does not answer in time.
        assert board.tick(29_999) == []
        assert board.tick(1) == [("disconnect",)]
        resent = [what[1:] for what in board.connected() if what[0] == "report"]
        assert [report for _, report in resent] == outbox[5:]
        for number, _ in resent:
            board.acknowledged(number)
        assert (board.board.outbox(), board.published()) == ([], [])

    @pytest.mark.slow
    def test_are_delayed_randomly(self):
        board = Board(delay=30_000)
        board.connected()
        board.message("e", PAYLOAD)
        waits = []
        for _ in range(30):
            assert board.report() > 0
            waited = 0
            while not (sent := board.published(100)):
                waited += 100
            board.acknowledged(sent[0][0])
            waits.append(waited)
        assert max(waits) <= 30_000
        # 30 random waits fall into fewer parts with probability below 1e-12.
        assert len({wait // 3000 for wait in waits}) >= 4

    def test_are_made_of_every_reading_with_precomputed_gap(self):
        board = Board()
        board.message("e", experiment_json(every=90, budget={"rule": "unlimited"}))
        for value in [True, "no bool", None] * 4:
            assert (board.board.gap(10_000)[1], board.report(value=value) > 0) == (["e"], True)

    @pytest.mark.slow
    def test_flash_write_is_retried_a_minute_after_failed_puback(self):
        board = Board()
        board.connected()
        board.message("e", PAYLOAD)
        board.report()
        board.report()
        sent = board.published()
        write, board.storage.write = board.storage.write, raise_disk_full
        board.acknowledged(sent[0][0])
        board.acknowledged(sent[1][0])
        assert len(board.board.outbox()) == 2
        assert board.tick(1000) == [("status", "online fault")]
        assert (board.report(), board.tick()) == (0, [])
        board.storage.write = write
        board.tick(50_000)
        assert len(board.board.outbox()) == 2
        board.lost()
        assert [what for what in board.connected() if what[0] == "report"] == []
        for _ in range(10):
            assert board.published(1000) == []
        assert board.board.outbox() == []
        assert board.tick(1000) == []

    @pytest.mark.slow
    def test_second_failed_flash_write_is_retried_as_late(self):
        board = Board()
        board.connected()
        board.message("e", PAYLOAD)
        write = board.storage.write
        for statuses in ([("status", "online fault")], []):  # the second time, it has that status already
            board.report()
            ((number, _),) = board.published()
            board.storage.write = raise_disk_full
            board.acknowledged(number)
            board.storage.write = write
            assert board.tick(59_000) == statuses
            assert (board.report("f"), board.tick()) == (0, [])  # it has no experiment, so it tells nothing
            assert len(board.board.outbox()) == 1
            assert board.tick(1000) == [("status", "online")]
            assert board.board.outbox() == []
            # This fault is not the flash's, which has recovered.
            board.board.entropy.stuck = True
            assert board.report() == -2
            assert board.tick() == [("status", "online fault")]
            assert board.tick(60_000) == []
            board.board.entropy.stuck = False


def signed(name: str, body: bytes, serial: int) -> bytes:
    return keys.sign_experiment(SIGNING, TOPIC + name, body, serial)


class TestExperiments:
    @pytest.mark.slow
    def test_are_not_verified_again_if_repeated(self):
        board = Board(announce_key=ANNOUNCE)
        board.connected()
        first, second, withdrawal = (
            signed("e", PAYLOAD, 1),
            signed("e", PAYLOAD + b" ", 3),
            signed("e", b"", 4),
        )
        wrong = first[:-1] + bytes([first[-1] ^ 1])
        for payload, verified, reports in (
            (wrong, 1, False),
            (first, 1, True),
            (first, 0, True),
            (wrong, 1, True),
            (second, 1, True),
            (first, 0, True),  # an older version
            (b"", 0, True),
            (withdrawal, 1, False),
            (withdrawal, 0, False),
            (second, 0, False),
            (signed("f", PAYLOAD, 9), 1, False),
        ):
            board.verified = 0
            board.message("e", payload)
            assert (board.verified, board.report() > 0) == (verified, reports), payload[:40]
            board.message("e", payload)
            assert board.verified == verified
            board = Board(board.storage, board.kept, announce_key=ANNOUNCE)
            assert (board.report() > 0, board.verified) == (reports, 0)
            board.connected()

    @pytest.mark.parametrize("announce", [ANNOUNCE, None], ids=["keyed", "open"])
    def test_withdrawn_by_application_stay_so_until_it_enrolls(self, announce: bytes | None):
        old, new = (
            signed("e", PAYLOAD, 1),
            signed("e", PAYLOAD + b" ", 3),
        )  # an open fleet ignores the signature
        board = Board(announce_key=announce)
        board.connected()
        board.message("e", old)
        board.board.withdraw("e")
        for payload in (old, new, old):
            board.message("e", payload)
            assert board.report() == 0
        assert board.tick() == []
        board.board.enroll(new)
        board.message("e", new)
        assert board.report() > 0
        board.board.withdraw("e")
        assert Board(board.storage, board.kept, announce_key=announce).report() > 0

    def test_serial_survives_firmware_without_the_name(self):
        board = Board(announce_key=ANNOUNCE)
        assert board.take("e", signed("e", PAYLOAD, 5)) == 0
        assert board.take("e", signed("e", b"", 7)) == 0
        other = POLICY | {"experiments": ("f",)}
        board = Board(board.storage, board.kept, other, announce_key=ANNOUNCE)
        assert board.take("f", signed("f", experiment_json(name="f"), 6)) == 0
        board = Board(board.storage, board.kept, announce_key=ANNOUNCE)
        assert board.take("e", signed("e", PAYLOAD, 5)) != 0
        assert board.report() == 0
        assert board.take("e", signed("e", PAYLOAD, 8)) == 0

    def test_reads_serial_that_micropython_kept_for_later(self, tmp_path: Path):
        for names in (("e",), ("f",)):
            policy = POLICY | {"experiments": names}
            client = Client(policy, memory(), "board-1", announce_key=ANNOUNCE, fleet="home")
            kept = KeptExperiments(client, str(tmp_path))
            if names == ("e",):
                kept.take("e", signed("e", PAYLOAD, 7))
        board = Board(kept={"e": (tmp_path / "e").read_bytes()}, announce_key=ANNOUNCE)
        assert board.take("e", signed("e", PAYLOAD, 5)) != 0
        assert board.report() == 0

    def test_without_room_for_its_serial_is_refused(self):
        board = Board(announce_key=ANNOUNCE)
        board.connected()
        board.full = True
        board.message("e", signed("e", PAYLOAD, 5))
        assert board.report() == 0
        assert board.tick() == [("status", "online fault refused:e")]
        board.full = False
        board.message("e", signed("e", PAYLOAD, 5))
        assert board.report() > 0

    @pytest.mark.slow
    def test_no_longer_retained_are_withdrawn_in_open_fleet(self):
        board = Board()
        board.connected()
        board.message("e", PAYLOAD)
        board.message("f", experiment_json(name="e"))  # name and topic differ
        assert board.board.status()["experiments"]["f"]["refused"] == "REFUSED"
        board.board.during = lambda where: board.message("f", experiment_json(name="f"))
        assert board.report() > 0  # the message during the call is not remembered as refused
        board.board.during = lambda where: None
        board.message("f", experiment_json(name="f"))
        assert board.report("f") > 0
        board.tick(10_000)
        assert board.report() > 0
        board.lost()
        board.connected()
        board.tick(9_000)
        assert board.report() > 0
        board.tick(1_000)
        assert (board.report(), board.kept) == (0, {})
        board.message("e", PAYLOAD)
        assert board.report() > 0
        board.message("e", b"")
        assert (board.report(), board.kept) == (0, {})
        keyed = Board(announce_key=ANNOUNCE)
        for wrong in (b"", PAYLOAD):  # neither is signed
            keyed.connected()
            if not keyed.verified:
                keyed.message("e", signed("e", PAYLOAD, 1))
            assert keyed.tick(10_000) == []
            keyed.message("e", wrong)
            assert keyed.tick() == [("status", "online refused:e")]
            keyed.message("e", signed("e", PAYLOAD, 1))
            assert keyed.tick() == [("status", "online")]
            keyed.lost()
        assert keyed.report() > 0

    @pytest.mark.slow
    @pytest.mark.parametrize("announce", [None, ANNOUNCE], ids=["open", "keyed"])
    def test_files_match_those_of_micropython_client(self, announce: bytes | None, tmp_path: Path):
        board = Board(announce_key=announce)
        board.connected()
        folder = tmp_path / "experiments"

        def other() -> tuple[Any, KeptExperiments]:
            storage: Any = board.storage
            client: Any = Client(POLICY, storage, device_id="board-1", announce_key=announce, fleet="home")
            return client, KeptExperiments(client, str(folder))

        _, theirs = other()
        payloads = [PAYLOAD, signed("e", PAYLOAD, 7)] + [signed("e", b"", 9)] * (announce is not None)
        for payload in payloads[announce is not None :]:
            board.message("e", payload)
            theirs.take("e", payload)
            assert board.kept == {"e": (folder / "e").read_bytes()}
            restarted = Board(board.storage, {"e": (folder / "e").read_bytes()}, announce_key=announce)
            client, kept = other()
            enrolled = restarted.board.status()["experiments"]["e"]["enrolled"]
            assert enrolled == (client.status()["experiments"]["e"]["left"] is not None)
            assert restarted.board.serial("e") == client.serials.get("e", 0)
            assert kept.digests.keys() == ({"e"} if enrolled else set())
        # Damaged and truncated files are ignored.
        intact = board.kept["e"]
        for wrong in (
            intact[:-1],
            intact[:9],
            b"",
            intact + b"\0",
            bytes([intact[0] ^ 1]) + intact[1:],
            bytes(1200),
        ):
            restarted = Board(board.storage, {"e": wrong}, announce_key=announce)
            assert not restarted.board.status()["experiments"]["e"]["enrolled"]
            assert restarted.board.serial("e") == 0
        fails = Board(board.storage, announce_key=announce)
        fails.connected()
        fails.fails = True
        fails.message("e", payloads[1])
        assert fails.tick()[0][1] == "online fault"
        assert fails.report() > 0


class TestGroup:
    FIRMWARE = experiment_json(group="firmware", groups=["2.3.1", "2.4.0"])

    def test_is_that_of_the_readings_period(self):
        board = Board(policy=POLICY | {"groups": ("firmware",)})
        board.board.groups = {"firmware": "2.4.0"}
        assert board.take("e", self.FIRMWARE) == 0
        for group in (None, "2.3.1", "1.0"):
            assert board.report("e", "wrong type", group) == 11  # it counts as missing, in the same group
        assert [report[9] for report in board.board.outbox()] == [1, 0, 2]

    def test_outside_the_policy_is_a_problem_in_the_status(self):
        board = Board()
        board.connected()
        board.message("e", self.FIRMWARE)
        assert board.tick() == [("status", "online refused:e")]
        assert board.c.hushmote_text(-25) == b"the policy does not name its group"


class TestWaitingMessages:
    @pytest.mark.slow
    def test_decide_what_the_board_answers(self):
        def answer_all(board: Board) -> list[bytes]:
            """Return a report on each experiment that the board answers."""
            for name in WAITING_NAMES:
                board.report(name)
            reports = board.board.outbox()
            for report in reports:
                board.board.sent(report)
            return reports

        board = Board(policy=WAITING_POLICY)
        board.connected()
        earlier = [case for case in WAITING if case.before is not None]
        for case in earlier:
            board.message(case.name, case.before or b"")
        assert len(answer_all(board)) == len(earlier)

        board = Board(board.storage.slots, board.kept, WAITING_POLICY)
        board.connected()
        for case in WAITING:
            if case.message:
                board.message(case.name, case.message)
        happened = board.tick(10_000)  # an experiment that was not repeated is withdrawn
        assert happened[-1:] == [("status", f"online{REFUSED_WORDS}")]
        assert digests_of(answer_all(board)) == digests_in_force()


class TestStatus:
    @pytest.mark.slow
    def test_lists_problems_of_experiments_and_flash(self):
        names = ("e", *(f"n{i}" for i in range(8)))
        board = Board(policy=POLICY | {"experiments": names})
        board.connected()
        single_report = experiment_json(budget={"rule": "sum", "cap": 1_000_000})
        board.message("e", single_report)
        assert board.tick() == []
        assert board.report(value="no bool") > 0
        ((number, _),) = board.published()
        board.acknowledged(number)
        assert board.tick() == [("status", "online spent:e")]
        for i in range(6):
            board.message(f"n{i}", b"{}")
        assert board.tick() == [("status", "online spent:e " + " ".join(f"refused:n{i}" for i in range(6)))]
        board.message("n6", b"{}")
        refused = " ".join(f"refused:n{i}" for i in range(5))
        assert board.tick() == [("status", f"online spent:e {refused} more")]
        board.message("n7", b"{}")
        assert board.tick() == []
        board.board.entropy.stuck = True
        assert board.report() == -2
        assert board.tick()[0][1].startswith("online fault spent:e refused:n0 ")
        board.board.entropy.stuck = False
        board.report()
        assert board.tick()[0][1].startswith("online spent:e ")
        board.lost()
        for _ in range(100):
            if happened := board.tick(1000):
                break
        assert happened[0][1].startswith("offline spent:e ")

    @pytest.mark.slow
    def test_shows_unwritten_experiment_until_one_is_written(self):
        board = Board()
        board.connected()
        for every in (2, 3):
            board.fails = True
            board.message("e", experiment_json(every=every))
            assert board.tick() == [("status", "online fault")]
            board.fails = False
            board.message("e", experiment_json(every=every + 2))
            assert board.tick() == [("status", "online")]

    @pytest.mark.slow
    def test_shows_another_client_on_the_ledger(self):
        board = Board()
        board.connected()
        board.message("e", experiment_json(budget={"rule": "sum", "cap": 1_000_000}))
        other = CBoard(POLICY, board.storage, entropy=Source(9))
        other.consent = True
        assert board.report() == 0
        assert board.tick() == [("status", "online locked fault")]


class TestConnection:
    @pytest.mark.slow
    def test_subscribes_to_policy_names_and_sends_online(self):
        board = Board(kept={})
        assert board.connected() == [*(("subscribe", TOPIC + name) for name in "efg"), ("status", "online")]
        assert board.tick(1000) == []

    @pytest.mark.slow
    def test_backoff_is_random_and_reset_by_good_connection(self):
        waits: list[list[int]] = []
        for seed in (5, 6):
            board = Board(seed=seed, spread=8_000)
            board.fails = True
            waits.append([])
            waited = 0
            while len(waits[-1]) < 12:
                waited += 100
                if board.tick(100):
                    waits[-1].append(waited)
                    waited = 0
            assert waits[-1][0] <= 8_100
            assert all(wait <= min(2000 << i, 60_000) + 100 for i, wait in enumerate(waits[-1][1:]))
            assert max(waits[-1]) > 8_100
            board.fails = False
            board.connected()
            for _ in range(31):
                assert board.tick(1000) == []
            board.lost()
            assert any(board.tick(100) for _ in range(81))
            # The broker does not answer the attempt.
            assert board.tick(29_000) == []
            assert board.tick(2000) == [("disconnect",)]
        assert waits[0] != waits[1]

    @pytest.mark.slow
    def test_is_closed_if_it_rejects_requests(self):
        board = Board()
        board.message("e", PAYLOAD)
        board.c.hushmote_reporter_connected(board.reporter)  # unsolicited
        assert board.happened == []
        board.connecting()
        board.fails = True
        board.c.hushmote_reporter_connected(board.reporter)
        assert board.happened == [("subscribe", TOPIC + "e"), ("disconnect",)]
        board.happened.clear()
        board.fails = False
        board.connected()
        # Failed publications are retried at the next tick.
        board.mute = True
        board.report()
        board.message("f", b"{}")
        assert board.tick() == []
        board.mute = False
        ((number, _),) = board.published()
        board.acknowledged(number)
        assert board.tick() == [("status", "online refused:f")]
        board.c.hushmote_reporter_close(board.reporter)
        assert board.happened == [("status", "offline refused:f"), ("disconnect",)]
        board.happened.clear()
        board.c.hushmote_reporter_close(board.reporter)
        board.lost()
        assert board.happened == []
        assert board.tick()[0][0] == "connect"
        board.lost()
        assert board.tick() == []
        board.c.hushmote_reporter_close(board.reporter)  # ends the wait
        assert board.tick()[0][0] == "connect"

    @pytest.mark.slow
    def test_requires_its_callbacks_but_not_storage(self):
        for field in ("connect", "subscribe", "publish", "disconnect", "read_kept", "write_kept"):
            board = Board()
            setattr(board.port, field, type(getattr(board.port, field))())
            assert board.begin() == -1
        assert board.begin(keeps=False) == 0
        board.connected()
        board.message("e", PAYLOAD)
        assert board.report() > 0
        assert board.kept == {}
        board.board.config.fleet = None
        assert board.begin(keeps=False) == -1
        board.board.config.fleet = b"home"
        board.board.entropy.stuck = True
        assert board.begin(keeps=False) == -2
        board.board.client = (c_uint64 * len(board.board.client))()  # a client that has not been started
        assert board.begin(keeps=False) == -1
        assert board.c.hushmote_consent_from_network(board.board.client, True) == -17
        # An experiment in flash is ignored if a stricter policy no longer allows it.
        large = Board()
        large.connected()
        large.message("e", experiment_json(epsilon=4_000_000))
        small = Board(large.storage, large.kept, POLICY | {"epsilon": 1_000_000})
        assert small.board.status()["experiments"]["e"]["refused"] == "REFUSED_POLICY"
        assert small.report() == 0


class TestForbiddenWill:
    def test_is_left_out_after_two_refused_connections(self):
        board = Board()
        assert board.connecting() == "offline"
        board.lost()
        assert board.connecting() == "offline"
        board.lost()
        assert board.connecting() is None
        board.c.hushmote_reporter_connected(board.reporter)
        board.lost()
        assert board.connecting() is None  # the connection was short
        board.c.hushmote_reporter_connected(board.reporter)
        board.tick(30_000)
        board.lost()
        assert board.connecting() == "offline"  # the broker's rules may have changed
        board.lost()
        assert board.connecting() is None

    def test_is_not_the_cause_if_connections_fail_without_it(self):
        board = Board()
        wills = []
        for _ in range(6):
            wills.append(board.connecting())
            board.refused(5)
        assert wills == ["offline", "offline", None] * 2

    def test_is_not_suspected_for_wrong_password_or_timeout(self):
        board = Board()
        for _ in range(3):
            assert board.connecting() == "offline"
            board.refused(4)
        for _ in range(3):
            assert board.connecting() == "offline"
            assert board.tick(30_000)[0] == ("disconnect",)
        board.fails = True  # the broker cannot be reached
        for _ in range(3):
            assert board.connecting() == "offline"

    def test_is_noticed_by_ports_that_wait(self):
        board = Board()
        board.refuses = 1
        assert [board.connecting() for _ in range(3)] == ["offline", "offline", None]

    def test_setting_omits_it(self):
        assert Board(omit_will=True).connecting() is None


class TestForbiddenStatus:
    def statuses(self, board: Board) -> list[Any]:
        return [call[1] for call in board.connected() if call[0] == "status"]

    def test_is_left_out_after_two_lost_connections(self):
        board = Board()
        board.answers_status = False
        for statuses in (["online"], ["online"], [], []):
            assert self.statuses(board) == statuses
            board.lost()
        self.statuses(board)
        board.tick(30_000)
        board.lost()
        assert self.statuses(board) == ["online"]
        board.answers_status = True
        board.tick()
        board.lost()
        assert self.statuses(board) == ["online"]

    def test_is_left_out_after_two_missing_answers(self):
        board = Board()
        board.answers_status = False
        assert self.statuses(board) == ["online"]
        assert board.tick(30_000) == []  # the connection continues
        board.message("e", b"{}")
        assert board.tick() == [("status", "online refused:e")]
        assert board.tick(30_000) == []
        board.message("e", PAYLOAD)
        assert board.tick() == []
        assert board.report() > 0
        assert len(board.published()) == 1

    def test_does_not_hold_up_reports(self):
        board = Board()
        board.message("e", PAYLOAD)
        board.report()
        calls = board.connected()
        assert [call[0] for call in calls] == ["subscribe", "subscribe", "subscribe", "report"]
        assert board.tick(1000) == []
        board.acknowledged(calls[-1][1])
        assert board.tick() == [("status", "online")]

    def test_is_counted_if_publishing_fails(self):
        board = Board()
        for _ in range(2):
            board.connecting()
            board.mute = True  # as a port that waits for the acknowledgement
            board.c.hushmote_reporter_connected(board.reporter)
            board.tick()
            board.lost()
            board.mute = False
        assert self.statuses(board) == []

    def test_setting_omits_it(self):
        board = Board(omit_status=True)
        assert self.statuses(board) == []
        board.board.consent = False
        assert board.tick() == [("disconnect",)]


class TestForbiddenSubscription:
    def test_is_a_problem_in_the_status_until_granted(self):
        board = Board()
        board.connected()
        board.subscribed("e", 128)
        assert board.tick() == [("status", "online refused:e")]
        assert board.c.hushmote_text(-26) == b"the broker forbids the subscription"
        assert board.tick(10_000) == []
        board.lost()
        board.connected()
        board.subscribed("e", 0)
        assert board.tick() == [("status", "online")]

    @pytest.mark.parametrize("granted", [0, 1])
    def test_granted_subscription_changes_nothing(self, granted: int):
        board = Board()
        board.connected()
        board.subscribed("e", granted)
        assert board.tick() == []


class TestSameDeviceTwice:
    def test_is_in_the_status_until_a_connection_lasts(self):
        board = Board()
        for _ in range(3):
            assert board.connected()[-1] == ("status", "online")
            board.tick(29_000)
            board.lost()
        assert board.connected()[-1] == ("status", "online duplicate-id")
        assert board.tick(30_000) == [("status", "online")]
        board.lost()
        assert board.connected()[-1] == ("status", "online")

    def test_is_not_suspected_if_reports_end_the_connection(self):
        board = Board()
        board.message("e", PAYLOAD)
        board.report()
        for _ in range(4):
            assert board.connected()[-1][0] == "report"
            board.lost()
        assert not [call for call in board.connected() if call[0] == "status"]


class TestDefaultSpread:
    def wait_ms(self, interval_ms: int, seed: int) -> int:
        """Return the wait after a lasting connection."""
        board = Board(spread=2**32 - 1, seed=seed)
        board.connected()
        board.tick(40_000)
        for _ in range(2 if interval_ms else 0):
            board.report("e")
            board.report("f")  # at the same time, which is no interval
            board.tick(interval_ms)
        board.lost()
        waited = 0
        while not board.tick(500):
            waited += 500
        return waited

    @pytest.mark.slow
    @pytest.mark.parametrize(("interval_ms", "longest"), [(0, 60_000), (20_000, 20_000), (600_000, 60_000)])
    def test_is_a_minute_or_the_interval(self, interval_ms: int, longest: int):
        waits = [self.wait_ms(interval_ms, seed) for seed in range(40)]
        # Of 40 waits the longest is below half of the limit with probability 1e-12.
        assert longest / 2 <= max(waits) <= longest
        assert min(waits) < longest / 4


class TestAskingEach:
    """asking.c: an opt-in applies to one question."""

    EACH = POLICY | {"ask": "each"}
    STRONG = experiment_json(epsilon=4_000_000, budget={"rule": "sum", "cap": 40_000_000})
    UNASKED = -24

    def agreed(self, announce: bytes | None = None, payload: bytes = PAYLOAD) -> Board:
        board = Board(policy=self.EACH, announce_key=announce)
        assert board.take("e", payload) == self.UNASKED
        assert board.report() == 0
        assert board.agree("e") == 0
        assert board.report() > 0
        return board

    def reboot(self, board: Board, kept: dict[str, bytes] | None = None) -> Board:
        """Restart the board."""
        announce = ANNOUNCE if board.verified else None
        board.c.hushmote_reporter_tick(board.reporter, 0)
        return Board(board.storage, board.kept if kept is None else kept, self.EACH, announce_key=announce)

    def test_asks_about_the_group_but_not_about_its_values(self):
        self.EACH = self.EACH | {"groups": ("firmware", "model")}
        listed = {"group": "firmware", "groups": ["2.3.1"], "budget": {"rule": "sum", "cap": 40_000_000}}
        board = self.agreed()
        assert board.take("e", experiment_json(**listed)) == self.UNASKED
        assert board.asking_groups() == {"e": "firmware"}
        assert board.report(group="2.3.1") == 10  # of the version without a group
        assert board.agree("e") == 0
        assert board.report(group="2.3.1") == 11
        for restart in (False, True):
            device = self.reboot(board) if restart else board
            assert device.take("e", experiment_json(**listed | {"groups": ["2.3.1", "2.4.0"]})) == 0
            assert device.report(group="2.4.0") == 11
            assert device.take("e", experiment_json(**listed | {"group": "model"})) == self.UNASKED
            assert device.asking_groups() == {"e": "model"}
            assert device.take("e", experiment_json(**listed | {"group": "region"})) == -25
            assert device.take("e", experiment_json(**listed)) == 0
            assert device.asking_groups() == {}

    def test_asks_again_for_higher_epsilon_and_keeps_old_version(self):
        board = self.agreed()
        assert board.take("e", self.STRONG) == self.UNASKED
        for restart in (False, True):
            device = self.reboot(board) if restart else board
            assert device.board.status()["experiments"]["e"]["epsilon"] == 1_000_000
            assert device.report() > 0
            assert device.take("e", self.STRONG) == self.UNASKED
            assert device.asking() == {"e": self.STRONG}
            assert device.agree("e", PAYLOAD) == self.UNASKED
            assert device.board.status()["experiments"]["e"]["epsilon"] == 1_000_000
        assert board.take("e", PAYLOAD) == 0  # the old version is published again, so no question waits
        assert (board.asking(), board.agree("e")) == ({}, self.UNASKED)
        assert board.take("e", self.STRONG) == self.UNASKED
        assert board.agree("e", self.STRONG) == 0
        for device in (board, self.reboot(board)):
            assert device.board.status()["experiments"]["e"]["epsilon"] == 4_000_000
            assert device.asking() == {}

    def test_consent_verifies_the_signature_and_keeps_serials(self):
        board = self.agreed(ANNOUNCE, signed("e", PAYLOAD, 3))
        assert board.verified == 1
        forged = self.STRONG + b"\0" + bytes(68)
        for payload, why in ((forged, -20), (signed("e", self.STRONG, 4)[:-1] + b"\1", -19)):
            assert board.take("e", payload) == self.UNASKED
            assert board.agree("e") == why
            assert board.asking() == {}
        restarted = self.reboot(board)
        assert (restarted.report() > 0, restarted.verified, restarted.board.serial("e")) == (True, 0, 3)
        withdrawal = signed("e", b"", 4)
        assert restarted.take("e", withdrawal) == 0
        assert restarted.take("e", signed("e", PAYLOAD, 5)) == self.UNASKED

    @pytest.mark.parametrize("restart", [False, True])
    def test_opt_out_erases_consent_to_missing_names(self, restart: bool):
        board = self.agreed()
        other = Board(board.storage, board.kept, self.EACH | {"experiments": ("f",)})
        other.board.consent = False
        if restart:
            other = Board(board.storage, board.kept, self.EACH | {"experiments": ("f",)})
        else:
            other.tick()
        other.board.consent = True
        board = self.reboot(board)
        assert board.take("e", PAYLOAD) == self.UNASKED
        assert board.agree("e") == 0
        assert self.reboot(board).report() > 0

    @pytest.mark.parametrize("restart", [False, True])
    def test_general_opt_out_erases_every_consent(self, restart: bool):
        board = self.agreed()
        board.board.consent = False
        assert not board.board.status()["experiments"]["e"]["enrolled"]
        assert board.agree("e") == self.UNASKED
        board = self.reboot(board) if restart else board
        board.board.consent = True
        for device in (board, self.reboot(board)):
            assert device.report() == 0
            assert device.take("e", PAYLOAD) == self.UNASKED
            assert device.report() == 0
        assert set(board.kept) == {"e", ".no"}
        assert board.agree("e") == 0
        assert board.report() > 0
        assert set(board.kept) == {"e", "e.yes", ".no"}

    def test_unwritten_opt_out_erases_consent_too(self):
        board = self.agreed()

        def fail(slot: int, data: bytes) -> None:
            raise OSError(28)

        write, board.storage.write = board.storage.write, fail
        with pytest.raises(Refused):
            board.board.consent = False
        board.storage.write = write
        board.board.consent = True
        assert board.report() == 0
        assert board.take("e", PAYLOAD) == self.UNASKED

    def test_concurrent_opt_out_ends_the_question(self):
        """The opt-out arrives while a signature is verified, as from an interrupt."""
        board = self.agreed(ANNOUNCE, signed("e", PAYLOAD, 3))
        verify = board._verify

        def opt_out_during_verify(_context: Any, key: Any, digest: Any, signature: Any) -> bool:
            board.board.consent = False
            return verify(_context, key, digest, signature)

        assert board.take("e", signed("e", self.STRONG, 4)) == self.UNASKED
        board._verify = opt_out_during_verify
        assert board.agree("e") == self.UNASKED
        board._verify = verify
        board.board.consent = True
        for device in (board, self.reboot(board)):
            assert device.report() == 0
            assert device.take("e", signed("e", self.STRONG, 4)) == self.UNASKED

    def test_stored_consent_matches_micropython_client(self, tmp_path: Path):
        board = self.agreed()
        client = Client(self.EACH, board.storage, device_id="board-1", fleet="home")
        theirs = KeptExperiments(client, str(tmp_path))
        with pytest.raises(ExperimentRefused):
            theirs.take("e", PAYLOAD)
        theirs.agree("e")
        assert board.kept == {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def test_asks_again_if_stored_consent_is_damaged(self):
        board = self.agreed()
        intact = board.kept["e.yes"]
        damaged = [intact[:size] for size in range(len(intact))] + [intact + b"\0", bytes(2000)]
        damaged += [intact[:i] + bytes([intact[i] ^ 1]) + intact[i + 1 :] for i in range(len(intact))]
        for data in damaged:
            restarted = self.reboot(board, board.kept | {"e.yes": data})
            assert not restarted.board.status()["experiments"]["e"]["enrolled"]
            assert restarted.asking() == {"e": PAYLOAD}
        other = self.reboot(board, {"f": board.kept["e"], "f.yes": intact})
        assert other.take("f", experiment_json(name="f")) == self.UNASKED

    def test_unwritten_consent_lasts_until_the_restart(self):
        board = Board(policy=self.EACH)
        board.connected()
        assert board.take("e", PAYLOAD) == self.UNASKED
        board.fails = True
        assert board.agree("e") == 0
        assert board.report() > 0
        assert board.kept == {}
        ((number, _),) = board.published()
        board.acknowledged(number)
        assert board.tick() == [("status", "online fault")]
        assert self.reboot(board).take("e", PAYLOAD) == self.UNASKED

    def test_status_shows_waiting_question(self):
        board = Board(policy=self.EACH)
        board.connected()
        board.message("e", PAYLOAD)
        assert board.tick() == [("status", "online refused:e")]
        board.message("e", PAYLOAD)
        assert board.asking() == {"e": PAYLOAD}
        assert board.agree("e") == 0
        assert board.tick(1000) == [("status", "online")]

    def test_withdrawal_while_offline_ends_the_question(self):
        board = Board(policy=self.EACH)
        board.connected()
        for name in ("e", "f"):
            board.message(name, experiment_json(name=name))
        assert list(board.asking()) == ["e", "f"]
        board.lost()
        board.connected()
        board.message("f", experiment_json(name="f"))
        board.tick(9_999)
        assert list(board.asking()) == ["e", "f"]
        assert board.tick(1) == [("status", "online refused:f")]
        assert list(board.asking()) == ["f"]
        assert (board.agree("e"), board.agree("f")) == (self.UNASKED, 0)

    def test_refused_experiments_do_not_wait(self):
        board = Board(policy=self.EACH)
        odd = (experiment_json(name="f"), b'{"epsilon":1}', b"{}", b"x", PAYLOAD + bytes(1100))
        for payload in odd:
            assert board.take("e", payload) == -16
            assert board.asking() == {}
        assert (board.agree("e"), board.agree("none")) == (self.UNASKED, -8)
        assert Board().agree("e") == -8

    def test_asks_about_refused_version_once_consent_has_ended(self):
        """A refused version is examined again once its question is asked again."""
        pinned = experiment_json(budget={"rule": "count", "cap": 4})
        for end in ("no", "withdrawal", "another yes"):
            board = self.agreed()
            assert board.take("e", pinned) == -18
            if end == "no":
                board.board.consent = False
                board.board.consent = True
            elif end == "withdrawal":
                assert board.take("e", b"") == 0
            else:
                assert board.take("e", experiment_json(mechanism="grr")) == self.UNASKED
                assert board.agree("e") == 0
            assert board.take("e", pinned) == self.UNASKED
            assert board.asking() == {"e": pinned}

    def test_policy_and_callback_must_match(self):
        board = Board(policy=self.EACH)
        assert board.c.hushmote_text(self.UNASKED) == b"nobody has opted in to this question"
        for call in (board.c.hushmote_enroll, board.c.hushmote_enroll_kept):
            assert call(board.board.client, PAYLOAD, len(PAYLOAD)) == self.UNASKED
        questions, board.port.questions = board.port.questions, None
        assert board.begin() == -1
        board.port.questions, board.port.asker = questions, None
        assert board.begin() == -1
        without = Board()
        without.port.asker, without.port.questions = Board(policy=self.EACH).port.asker, questions
        assert without.begin() == -1
        without.board.rules.consent = 4
        assert without.c.hushmote_begin(without.board.client, without.board.config_pointer) == -1
