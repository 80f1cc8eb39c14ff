"""Experiments are announced once the log has them, changes wait for a day, and boards accept the proofs."""

import contextlib
import datetime
import logging
import socket
import threading
import time
from dataclasses import replace

import pytest
from boards import FLEET_KEYS, SIGNING, ask_fleet, experiment, payload_of
from log_witness import LOG, ORIGIN, TestWitness
from running_aggregator import until

from hushmote.device import ldp_client, ldp_log
from hushmote.server.ingest import log_witnesses
from hushmote.server.ingest.announce import Announcer
from hushmote.server.ingest.log_keeper import LogKeeper
from hushmote.server.ingest.log_witnesses import load_witnesses
from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.ingest.status import Status
from hushmote.server.log.entry import experiment_entry
from hushmote.server.log.note import ECDSA, PublicKey, board_keys
from hushmote.server.log.proof import proof_topic
from hushmote.server.overview.fleets import overview
from hushmote.server.store import Store, StoreError
from hushmote.server.store.backup import backup
from hushmote.server.store.counting import ClockWrong
from hushmote.server.store.log import StoredLog
from hushmote.server.wire import keys, topics

NAMES = "home", "temp"
TOPIC, PROOF = topics.experiment_topic(*NAMES), proof_topic(*NAMES)
DAY = datetime.timedelta(days=1)
OLD = payload_of(experiment())
NEW = payload_of(experiment(epsilon=500_000))
GROUPS = [payload_of(experiment(group="fw", groups=["1", "2", "3", "4"][:n])) for n in range(1, 5)]


@pytest.fixture
def witness():
    with TestWitness() as witness:
        yield witness


@pytest.fixture
def home(tmp_path):
    """Return a store with a keyed fleet that asks temp."""
    with Store(f"sqlite:///{tmp_path}/home.sqlite") as store:
        ask_fleet(store, "home", OLD, keyed=True)
        yield store


class Serving:
    """An announcer with a log, whose clock a test sets ahead; `retained` is what a broker has."""

    def __init__(self, store, *witnesses):
        self.ahead, self.turns, self.retained, self.store = datetime.timedelta(), 0, {}, store
        self.keeper = LogKeeper(store, LOG, [each.witness for each in witnesses])
        status = Status()
        fleets = KnownFleets(store, status, FLEET_KEYS)
        fleets.load()
        self.announcer = Announcer(fleets, status, self.now, keeper=self.keeper)

    def __enter__(self):
        self.keeper.__enter__()
        return self

    def __exit__(self, *exc):
        self.keeper.__exit__(*exc)

    def now(self):
        return datetime.datetime.now(datetime.UTC) + self.ahead

    def turn(self, hours=0.0):
        """Make a turn, some hours later."""
        self.ahead += datetime.timedelta(hours=hours)
        self.turns += 10
        assert self.announcer.turn(self.retained.__setitem__, float(self.turns))
        return self.retained

    def signed(self):
        """Make turns until the newest checkpoint is signed by all witnesses."""
        until(lambda: self.turn() and self.is_signed(), lambda: self.keeper.warnings)
        return self.turn()

    def wake(self):
        """Make witnesses be asked now instead of after the pause."""
        for thread in self.keeper._threads:
            thread.wake()

    def is_signed(self):
        return self.keeper.stored.tree.size in self.keeper.stored.cosigned

    @property
    def question(self):
        """Return the JSON that boards have."""
        return self.retained.get(TOPIC, b"").partition(b"\0")[0]

    @property
    def log(self):
        return [(each.entry.key, each.entry.question) for each in self.keeper.stored.entries]


def policy(*witnesses, need=1):
    public = [LOG.public(ECDSA), *(each.secret.public(ECDSA) for each in witnesses)]
    return {"origin": ORIGIN, "keys": board_keys(public), "need": need}


def verified(serving, *witnesses, need=1):
    """Check the proof as a board does, and return the index."""
    arguments = TOPIC, serving.retained[TOPIC], serving.retained[PROOF], lambda: None
    return ldp_log.verify(policy(*witnesses, need=need), *arguments)


class TestAnnounce:
    def test_only_what_the_log_has(self, home):
        with Serving(home) as serving:
            serving.turn()
            assert serving.question == OLD
            assert [*serving.keeper.stored.checkpoints] == [0, 1]
            assert bytes(serving.keeper.stored.entries[0].entry) == bytes(
                experiment_entry(*NAMES, serving.retained[TOPIC])
            )

    def test_proof_follows_when_a_witness_has_signed(self, home, witness):
        with Serving(home, witness) as serving:
            serving.turn()
            assert serving.question == OLD
            serving.signed()
            assert verified(serving, witness) == 0

    def test_proof_gets_a_late_witness(self, home, witness):
        with TestWitness("w2.example", 20) as late:
            late.answer = 503, "not yet\n", {"Retry-After": "1"}
            with Serving(home, witness) as serving:
                serving.signed()
            late.answer = None
            with Serving(home, witness, late) as serving:
                until(
                    lambda: serving.turn() and len(serving.retained[PROOF]) == 9 + 64 + 2 * 68,
                    "no third line",
                )
                assert verified(serving, witness, late, need=2) == 0

    def test_turn_without_news_compares_no_signatures(self, home, witness, monkeypatch):
        with Serving(home, witness) as serving:
            serving.signed()
            comparing, made = [], PublicKey.made

            def note(key, line):
                comparing.append(threading.current_thread())
                return made(key, line)

            monkeypatch.setattr(PublicKey, "made", note)
            serving.turn()
            assert threading.current_thread() not in comparing

    def test_restart_publishes_the_same_bytes(self, home, witness):
        with Serving(home, witness) as serving:
            before = dict(serving.signed())
        with Serving(home, witness) as serving:
            assert serving.turn() == before
            assert len(serving.log) == 1

    def test_two_aggregators_publish_the_same_bytes(self, store_url, witness):
        with Store(store_url) as store:
            ask_fleet(store, "home", OLD, keyed=True)
            with Serving(store, witness) as first, Serving(store, witness) as second:
                first.turn()
                second.turn()
                assert first.signed() == second.signed()
                assert first.log == second.log == [(TOPIC, OLD)]

    def test_what_was_added_before_a_crash_is_announced(self, home):
        payload = keys.sign_experiment(SIGNING, TOPIC, OLD, home.experiments()[0].serial)
        StoredLog(home).append(LOG, lambda _: [experiment_entry(*NAMES, payload)], 100)
        with Serving(home) as serving:
            assert serving.turn()[TOPIC] == payload
            assert len(serving.log) == 1

    def test_full_disk_announces_nothing_new(self, home, monkeypatch):
        with Serving(home) as serving:
            monkeypatch.setattr(home, "writing", _no_space)
            serving.turns += 10
            assert not serving.announcer.turn(serving.retained.__setitem__, float(serving.turns))
            assert serving.retained == {}
            assert serving.announcer.failing
            monkeypatch.undo()
            serving.turn()
            assert serving.question == OLD


def _no_space():
    raise StoreError("the disk is full")


class TestChange:
    def test_waits_for_a_day(self, home, witness, caplog):
        with Serving(home, witness) as serving:
            serving.signed()
            home.add_experiment("home", NEW)
            with caplog.at_level(logging.INFO):
                serving.turn()
                serving.turn()
            waits = [r.getMessage() for r in caplog.records if "is waiting" in r.getMessage()]
            due = (serving.now() + DAY + datetime.timedelta(seconds=60)).astimezone()
            minutes = {f"{due + datetime.timedelta(seconds=shift):%a %H:%M}" for shift in (-60, 0)}
            assert len(waits) == 1
            assert waits[0] in {
                f"temp of fleet home is waiting until {minute}: witnesses allow one change a day"
                for minute in minutes
            }
            assert serving.question == OLD
            serving.turn(hours=23.9)
            assert serving.question == OLD
            serving.turn(hours=0.2)
            serving.signed()
            assert serving.question == NEW
            assert verified(serving, witness) == 1

    def test_keeps_the_signed_question_until_the_new_one_is_signed(self, home, witness):
        with TestWitness("w2.example", 20) as late, Serving(home, witness, late) as serving:
            until(lambda: serving.turn() and len(serving.retained[PROOF]) > 9 + 64 + 68, "no two witnesses")
            until(lambda: late.size == 1, "not signed")
            home.add_experiment("home", NEW)
            late.answer = 503, "not yet\n", {"Retry-After": "1"}
            serving.turn(hours=25)
            why = {TOPIC: "temp of fleet home is waiting until witness w2.example has signed it"}
            # Before the first witness's signature is stored, the question waits for it.
            until(lambda: serving.turn() and serving.announcer._waiting == why, serving.announcer._waiting)
            assert witness.size == 2
            assert [question for _, question in serving.log] == [OLD, NEW]
            assert serving.question == OLD
            assert verified(serving, witness, late, need=2) == 0
            late.answer = None
            until(lambda: serving.turn() and serving.question == NEW, serving.announcer._waiting)
            assert verified(serving, witness, late, need=2) == 1
            assert serving.announcer._waiting == {}

    def test_withdraws_at_once_while_a_change_is_unsigned(self, home, witness):
        with Serving(home, witness) as serving:
            serving.signed()
            home.add_experiment("home", NEW)
            witness.answer = 503, "not yet\n", {"Retry-After": "1"}
            serving.turn(hours=25)
            home.withdraw_experiment("home", "temp")
            serving.turn()
            assert keys.is_withdrawal(serving.retained[TOPIC])
            assert serving.retained[PROOF] == b""

    def test_restart_keeps_the_signed_question(self, home, witness):
        with Serving(home, witness) as serving:
            serving.signed()
            home.add_experiment("home", NEW)
            witness.answer = 503, "not yet\n", {"Retry-After": "3600"}
            serving.turn(hours=25)
        with Serving(home, witness) as serving:
            serving.turn()
            assert serving.question == OLD
            assert verified(serving, witness) == 0

    def test_waits_until_witnesses_have_signed_the_last_one(self, home, witness):
        with Serving(home, witness) as serving:
            witness.answer = 503, "not yet\n", {"Retry-After": "3600"}
            serving.turn()
            home.add_experiment("home", NEW)
            serving.turn(hours=100)
            assert serving.question == OLD
            assert serving.keeper.waiting == {
                TOPIC: "temp of fleet home is waiting until witness w1.example has signed its last change"
            }

    def test_list_of_every_is_not_logged(self, home):
        with Serving(home) as serving:
            serving.turn()
            home.add_experiment("home", payload_of(experiment(group="fw", groups=["1"], every=[1, 90])))
            serving.turn(hours=25)
            assert serving.question == OLD
            assert serving.keeper.waiting[TOPIC].startswith(
                "temp of fleet home is waiting because witnesses refuse it: it has an every for each group"
            )

    def test_field_that_is_there_twice_is_not_logged(self, home):
        with Serving(home) as serving:
            home.add_experiment("home", OLD.replace(b"{", b'{"v": 1, ', 1))
            serving.turn()
            assert serving.log == []
            assert serving.keeper.waiting[TOPIC].startswith(
                "temp of fleet home is waiting because witnesses refuse it: it has another name"
            )

    def test_only_the_newest_of_several_is_announced(self, home):
        with Serving(home) as serving:
            serving.turn()
            for epsilon in (100_000, 200_000, 500_000):
                home.add_experiment("home", payload_of(experiment(epsilon=epsilon)))
                serving.turn()
            serving.turn(hours=25)
            assert serving.log == [(TOPIC, OLD), (TOPIC, NEW)]

    def test_other_names_do_not_wait(self, home):
        with Serving(home) as serving:
            serving.turn()
            home.add_experiment("home", payload_of(experiment(name="other")))
            serving.turn()
            assert len(serving.log) == 2

    def test_withdrawal_is_logged_at_once_and_clears_the_proof(self, home, witness):
        with Serving(home, witness) as serving:
            serving.signed()
            home.withdraw_experiment("home", "temp")
            serving.turn()
            assert keys.is_withdrawal(serving.retained[TOPIC])
            assert serving.retained[PROOF] == b""
            assert serving.log == [(TOPIC, OLD), (TOPIC, b"")]
            home.add_experiment("home", OLD)  # asking the same again is no change
            serving.turn()
            assert serving.question == OLD
            serving.signed()
            assert verified(serving, witness) == 2

    def test_a_withdrawal_between_hides_no_change(self, home):
        with Serving(home) as serving:
            serving.turn()
            home.withdraw_experiment("home", "temp")
            serving.turn()
            home.add_experiment("home", NEW)
            serving.turn()
            assert keys.is_withdrawal(serving.retained[TOPIC])
            serving.turn(hours=25)
            assert serving.question == NEW

    def test_groups_may_be_added_twice_a_day(self, home):
        with Serving(home) as serving:
            serving.turn()
            questions = []
            for payload, hours in zip(GROUPS, (25, 1, 1, 1), strict=True):
                home.add_experiment("home", payload)
                serving.turn(hours)
                questions.append(serving.question)
            assert questions == [*GROUPS[:3], GROUPS[2]]
            serving.turn(hours=22.1)
            assert serving.question == GROUPS[3]

    def test_question_that_no_longer_counts_is_withdrawn(self, home):
        with Serving(home) as serving:
            serving.turn()
            home.add_experiment("home", NEW, grace_days=0)
            serving.turn()
            assert keys.is_withdrawal(serving.retained[TOPIC])
            assert [question for _, question in serving.log] == [OLD, b""]
            serving.turn(hours=25)
            assert serving.question == NEW

    def test_clock_that_is_wrong_adds_nothing(self, home):
        with Serving(home) as serving:

            def wrong():
                raise ClockWrong("behind", "the clock is wrong")

            serving.announcer._clock = wrong
            assert not serving.announcer.turn(serving.retained.__setitem__, 10.0)
            assert serving.keeper.stored.tree.size == 0


class TestWitnesses:
    def test_first_change_waits_for_an_answer(self, home, caplog):
        with TestWitness() as away:
            pass
        with Serving(home, away) as serving:
            serving.turn()
            assert TOPIC not in serving.retained
            assert "no fleet has a current experiment" not in caplog.text
            assert serving.keeper.waiting[TOPIC].endswith(
                "is waiting until witness w1.example has signed the log since this start"
            )
            assert "cannot be reached" in serving.keeper.warnings[0]
            home.withdraw_experiment("home", "temp")
            serving.turn()
            assert keys.is_withdrawal(serving.retained[TOPIC])

    def test_restored_backup_adds_nothing(self, home, witness, tmp_path):
        with Serving(home, witness) as serving:
            serving.signed()
            backup(f"sqlite:///{tmp_path}/home.sqlite", tmp_path / "old.sqlite")
            home.add_experiment("home", payload_of(experiment(name="other")))
            serving.signed()
        assert witness.size == 2
        with Store(f"sqlite:///{tmp_path}/old.sqlite") as old, Serving(old, witness) as serving:
            old.add_experiment("home", payload_of(experiment(name="third")))
            serving.turn()
            third = topics.experiment_topic("home", "third")
            assert serving.keeper.waiting[third] == (
                "third of fleet home is waiting because witness w1.example has signed what this store does "
                "not have"
            )
            assert "hushmote log restore URL|FOLDER" in serving.keeper.warnings[0]
            assert serving.question == OLD  # what the log has is still announced
            entries = StoredLog(home)
            entries.refresh()
            assert entries.checkpoint is not None
            serving.keeper.stored.extend(
                [each.entry for each in entries.entries], entries.checkpoint, int(time.time())
            )
            serving.wake()
            until(lambda: serving.turn() and third in serving.retained, lambda: serving.keeper.waiting)

    def test_restored_log_is_not_continued_with_an_older_version(self, home, witness, tmp_path):
        with Serving(home, witness) as serving:
            serving.signed()
            backup(f"sqlite:///{tmp_path}/home.sqlite", tmp_path / "old.sqlite")
            home.add_experiment("home", NEW)
            serving.turn(hours=25)
            logged = serving.signed()[TOPIC]
            entries = [each.entry for each in serving.keeper.stored.entries]
            checkpoint = serving.keeper.stored.checkpoint
        assert checkpoint is not None
        with Store(f"sqlite:///{tmp_path}/old.sqlite") as old:
            StoredLog(old).extend(entries, checkpoint, int(time.time()))
            with Serving(old, witness) as serving:
                serving.signed()
                serving.turn(hours=25)
                # Witnesses refuse a lower serial for ever, and with it every later entry.
                assert len(serving.log) == 2
                assert serving.retained[TOPIC] == logged
                why = serving.keeper.waiting[TOPIC]
                assert "is waiting because witnesses refuse it: it changes with serial" in why
                assert f"but serial {keys.signed_serial(logged)} came before" in why
                (experiment_overview,) = overview(old, serving.now()).experiments
                assert experiment_overview.waits.startswith("for `hushmote serve` to log it, ")
                old.add_experiment("home", OLD)
                serving.turn()
                assert serving.log[2:] == [(TOPIC, OLD)]

    def test_signed_log_needs_its_witnesses(self, home, witness):
        with Serving(home, witness) as serving:
            serving.signed()
        words = "have signed the log in .*: give their file with --witnesses, because they know whether"
        with pytest.raises(StoreError, match=words), Serving(home):
            pass

    def test_backup_without_a_log_adds_nothing(self, home, witness, tmp_path):
        with Serving(home, witness) as serving:
            serving.signed()
        with Store(f"sqlite:///{tmp_path}/new.sqlite") as new:
            ask_fleet(new, "home", NEW, keyed=True)
            with Serving(new, witness) as serving:
                serving.turn()
                assert serving.log == []
                assert "at size 1, but this store has it at size 0" in serving.keeper.warnings[0]

    def test_another_history_adds_nothing(self, home, witness, tmp_path):
        with Serving(home, witness) as serving:
            serving.signed()
        with Store(f"sqlite:///{tmp_path}/new.sqlite") as new:
            ask_fleet(new, "home", NEW, keyed=True)
            with Serving(new) as serving:
                serving.turn()
            with Serving(new, witness) as serving:
                new.add_experiment("home", payload_of(experiment(name="other")))
                serving.turn()
                assert "has signed other entries" in serving.keeper.warnings[0]
                assert len(serving.log) == 1

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ((404, "?", {}), "w1.example does not know the log example.org/questions"),
            ((403, "two changes\nof temp", {}), "w1.example does not sign: two changes"),
            ((503, "a day has not passed", {"Retry-After": "9"}), "does not sign yet: a day has not passed"),
            ((200, "", {}), "has not signed with its key"),
            ((200, "x", {}), "answers with a wrong signature: a note's signature is a line"),
            ((200, "x" * 100_000, {}), "answers with a wrong signature"),
            ((409, "-1", {}), "does not say which checkpoint it has signed"),
            ((500, "", {}), "w1.example does not sign: HTTP status 500"),
        ],
    )
    def test_says_once_why_a_witness_does_not_sign(self, home, witness, answer, words, caplog):
        with Serving(home, witness) as serving:
            witness.answer = answer
            serving.turn()
            until(lambda: serving.wake() or len(witness.posts) > 2, "too few attempts")
            assert words in serving.keeper.warnings[0]
            assert [r.levelname for r in caplog.records if words in r.getMessage()] == ["WARNING"]
            assert serving.retained[PROOF] == b""
            witness.answer = None
            serving.wake()
            serving.signed()
            assert serving.keeper.warnings == ()

    @pytest.mark.parametrize(
        "answer",
        [
            (502, "Bad Gateway", {}),
            (400, "?", {}),
            (404, "?", {}),
            (409, "9" * 5000, {}),
            (409, "\u0662", {}),
            (503, "later", {"Retry-After": "9" * 400}),
            (503, "later", {"Retry-After": "\u00b2"}),
            (302, "", {"Location": "ftp://127.0.0.1:1/x"}),
            (302, "", {"Location": "http://[::1"}),
            (700, "", {}),
        ],
        ids=range(10),
    )
    def test_only_sizes_and_signatures_confirm(self, home, witness, answer, tmp_path):
        with Serving(home, witness) as serving:
            serving.signed()
        witness.answer = answer
        with Store(f"sqlite:///{tmp_path}/new.sqlite") as new:
            ask_fleet(new, "home", NEW, keyed=True)
            with Serving(new, witness) as serving:
                until(lambda: serving.keeper.warnings, "no warning")
                serving.turn()
                assert serving.log == []
                witness.answer = None
                serving.wake()
                until(lambda: "at size 1" in "".join(serving.keeper.warnings), serving.keeper.warnings)

    @pytest.mark.parametrize("answer", [(409, "812", {}), (422, "no", {})], ids=["size", "entries"])
    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_false_claim_does_not_stop_the_log(self, home, witness, answer, is_restarted):
        with TestWitness("w2.example", 20) as second, TestWitness("w3.example", 30) as liar:
            witnesses = witness, second, liar
            if not is_restarted:
                liar.answer = answer
            with Serving(home, *witnesses) as serving:
                serving.signed()
            liar.answer = answer
            with Serving(home, *witnesses) as serving:
                until(lambda: serving.keeper.warnings, "no warning")
                assert "w3.example says that it has signed what" in serving.keeper.warnings[0]
                home.add_experiment("home", NEW)
                serving.turn(hours=25)
                until(lambda: serving.turn() and serving.question == NEW, lambda: serving.keeper.waiting)
                assert verified(serving, *witnesses, need=2) == 1

    def test_false_claim_of_half_the_witnesses_stops_the_log(self, home, witness):
        with TestWitness("w2.example", 20) as liar, Serving(home, witness, liar) as serving:
            serving.signed()
            liar.answer = 409, "812", {}
            home.add_experiment("home", payload_of(experiment(name="other")))
            serving.turn()
            until(lambda: serving.keeper.warnings, "no warning")
            home.add_experiment("home", payload_of(experiment(name="third")))
            serving.turn()
            (why,) = serving.keeper.waiting.values()
            assert "and not more than half of the witnesses have signed the log since this start" in why

    @pytest.mark.parametrize("is_forged", [False, True])
    def test_claim_needs_the_logs_signature(self, home, witness, is_forged):
        secret = TestWitness(ORIGIN, 70).secret if is_forged else LOG
        with Serving(home, witness) as serving:
            serving.signed()
            witness.answer = 409, "812", {}
            witness.checkpoint = secret.sign_tree(812, bytes(32))
            home.add_experiment("home", payload_of(experiment(name="other")))
            serving.turn()
            until(lambda: serving.keeper.warnings, "no warning")
            (thread,) = serving.keeper._threads
            assert (thread.stopped, thread.is_disputed) == (not is_forged, is_forged)
            witness.answer = 503, "away", {}
            serving.wake()
            until(lambda: "does not sign yet" in serving.keeper.warnings[0], serving.keeper.warnings)
            assert (thread.stopped, thread.is_disputed) == (not is_forged, is_forged)

    def test_unexpected_error_does_not_end_the_thread(self, home, witness, monkeypatch):
        with Serving(home, witness) as serving, monkeypatch.context() as patch:
            patch.setattr(log_witnesses, "parse_signatures", lambda _: 1 // 0)
            serving.turn()
            until(
                lambda: "cannot be asked: ZeroDivisionError" in "".join(serving.keeper.warnings), "no warning"
            )
            patch.undo()
            serving.wake()
            serving.signed()

    def test_failure_of_the_store_is_forgotten(self, home, witness, monkeypatch):
        with Serving(home, witness) as serving:
            serving.signed()
            with monkeypatch.context() as patch:
                patch.setattr(serving.keeper.stored, "refresh", _no_space)
                serving.wake()
                until(lambda: serving.keeper.warnings == ("the disk is full",), "no warning")
            serving.wake()
            until(lambda: serving.keeper.warnings == (), serving.keeper.warnings)

    @pytest.mark.parametrize("status", [b"200 OK", b"503 Not yet"])
    def test_dripping_answer_is_cut_off(self, home, witness, status, monkeypatch):
        monkeypatch.setattr(log_witnesses, "TIMEOUT_S", 0.5)
        ended = threading.Event()

        def drip():
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.sendall(b"HTTP/1.1 %s\r\n\r\n" % status)
                while not ended.wait(0.1):
                    client.sendall(b"X")

        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=drip)
            thread.start()
            slow = replace(witness.witness, url=f"http://127.0.0.1:{server.getsockname()[1]}")
            try:
                with pytest.raises(
                    log_witnesses.WitnessFailed, match=r"took more than|does not sign yet: HTTP"
                ):
                    log_witnesses.request_signatures(StoredLog(home), LOG, slow, int(time.time()))
            finally:
                ended.set()
                thread.join()

    def test_one_that_is_gone_keeps_its_place(self, home, witness, tmp_path):
        with TestWitness("w0.example", 20) as gone:
            file = tmp_path / "witnesses.txt"
            file.write_text(f"- {gone.line.partition(' ')[2]}{witness.line}")
            boards = policy(gone, witness)
        serving = Serving(home)
        serving.keeper = serving.announcer._keeper = LogKeeper(home, LOG, load_witnesses(file))
        with serving:
            serving.signed()
            verify = ldp_log.verify
            assert verify(boards, TOPIC, serving.retained[TOPIC], serving.retained[PROOF], lambda: None) == 0
            home.add_experiment("home", NEW)
            serving.turn(hours=25)
            serving.signed()
            assert serving.question == NEW
            assert serving.keeper.warnings == ()

    def test_one_that_replaces_another_is_in_the_proof(self, home, witness):
        with Serving(home, witness) as serving:
            serving.signed()
        gone = replace(witness.witness, url="-")
        with TestWitness("w2.example", 20) as second:
            for others in ((), (second.witness,)):
                home.add_experiment("home", payload_of(experiment(name=f"e{len(others)}")))
                serving = Serving(home)
                serving.keeper = serving.announcer._keeper = LogKeeper(home, LOG, (gone, *others))
                with serving:
                    serving.turn()
                    if others:
                        serving.signed()
                        assert verified(serving, second) == 0

    def test_lies_are_not_published(self, home, witness):
        with Serving(home, witness) as serving:
            other = TestWitness("w1.example", 90).secret
            lines = other.cosign("example.org/questions\n1\n\n", 5)
            witness.answer = 200, "".join(map(str, lines)), {}
            serving.turn()
            until(lambda: serving.keeper.warnings, "no warning")
            assert serving.retained[PROOF] == b""


def test_boards_refuse_the_proof_of_another_version(home, witness):
    with Serving(home, witness) as serving:
        serving.signed()
        altered = keys.sign_experiment(SIGNING, TOPIC, NEW, 1)
        with pytest.raises(ldp_client.ExperimentRefused, match="it is not in the log"):
            ldp_log.verify(policy(witness), TOPIC, altered, serving.retained[PROOF], lambda: None)


def test_status_says_what_waits(home, witness):
    with Serving(home, witness) as serving:
        serving.signed()
        (experiment_overview,) = overview(home, serving.now()).experiments
        assert experiment_overview.waits == ""
        home.add_experiment("home", NEW)
        (experiment_overview,) = overview(home, serving.now()).experiments
        words = experiment_overview.problems()["waiting"]
        assert words.startswith("Its newest version is waiting until ")
        assert words.endswith(": witnesses allow one change a day.")
        (experiment_overview,) = overview(home, serving.now() + 2 * DAY).experiments
        assert (
            experiment_overview.waits
            == "for `hushmote serve` to log it, after every witness has signed since its start"
        )


class TestStatusOfUnsigned:
    @staticmethod
    def waits(serving):
        """Return what the newest version waits for, by the experiment's name."""
        return {each.name: each.waits for each in overview(serving.store, serving.now()).experiments}

    def test_names_the_witness_that_has_not_signed(self, home, witness):
        with TestWitness("w2.example", 20) as second, Serving(home, witness, second) as serving:
            serving.turn()
            until(lambda: self.waits(serving) == {"temp": ""}, lambda: self.waits(serving))
            second.answer = 503, "not yet\n", {"Retry-After": "1"}
            home.add_experiment("home", NEW)
            serving.turn(25)
            until(
                lambda: self.waits(serving) == {"temp": "for witness w2.example to sign it"},
                lambda: self.waits(serving),
            )
            second.answer = None
            until(lambda: self.waits(serving) == {"temp": ""}, lambda: self.waits(serving))

    def test_says_that_none_has_signed(self, home, witness):
        with Serving(home, witness) as serving:
            witness.answer = 403, "the fleet home is not in the rule\n", {}
            serving.turn()
            assert serving.keeper.stored.tree.size == 1
            until(lambda: serving.keeper.warnings, "no warning")
            assert self.waits(serving) == {"temp": "for a witness to sign it: none has signed it yet"}

    def test_forgets_a_witness_after_a_month(self, home, witness):
        with TestWitness("w2.example", 20) as second, Serving(home, witness, second) as serving:
            serving.signed()
            until(lambda: self.waits(serving) == {"temp": ""}, lambda: self.waits(serving))
        home.add_experiment("home", NEW)
        with Serving(home, witness) as serving:
            serving.turn(24 * 31)
            until(lambda: self.waits(serving) == {"temp": ""}, lambda: self.waits(serving))
