"""Publications and their times, and batches that wait for a failing store, without a broker."""

import datetime
import logging
import time

import pytest
from boards import FLEET_KEYS, MASTER, SIGNING, ask_fleet, experiment, payload_of

from hushmote.fleet.provisioning.master_key import without_signing
from hushmote.server.ingest import clock
from hushmote.server.ingest.announce import Announcer
from hushmote.server.ingest.commit import Committer
from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.ingest.status import Status
from hushmote.server.store import Store, StoreError
from hushmote.server.wire import keys, report, topics

TEMP = topics.experiment_topic("open", "temp")


@pytest.fixture
def status():
    return Status()


@pytest.fixture
def fleets(store, status):
    fleets = KnownFleets(store, status)
    fleets.load()
    return fleets


@pytest.fixture
def failing(store, monkeypatch):
    """Return a function that makes the store fail when it is read and written, or work again."""

    def failing(fails):
        def fail(*_):
            raise StoreError("the disk is full")

        for name in ("experiments", "ingest"):
            monkeypatch.setattr(store, name, fail if fails else getattr(Store, name).__get__(store))

    return failing


def message(number, exp=None):
    return topics.report_topic("open", "a"), report.encode(exp or experiment(), number, 0)


@pytest.fixture
def keyed(store, status):
    ask_fleet(store, "keyed", experiment(), keyed=True)
    fleets = KnownFleets(store, status, FLEET_KEYS, ["keyed"])
    fleets.load()
    return fleets


KEYED = topics.experiment_topic("keyed", "temp")


def serial(payload):
    return int.from_bytes(payload[-68:-64], "big")


def withdrawal_of(payload):
    """Return a version's withdrawal with the serial after the version's."""
    return keys.sign_experiment(SIGNING, KEYED, b"", serial(payload) + 1)


@pytest.fixture
def over(store, keyed, status):
    """Return an announcer of a version that a wrong clock treated as expired, and its publications."""
    store.add_experiment("keyed", payload_of(experiment()), datetime.date.today() + datetime.timedelta(9))
    ahead = datetime.timedelta(0)
    announcer, published = Announcer(keyed, status, lambda: clock.now() + ahead), []
    assert announcer.turn(lambda *args: published.append(args), 100.0)
    ahead = datetime.timedelta(30)
    assert announcer.turn(lambda *args: published.append(args), 102.0)
    assert published[1:] == [(KEYED, withdrawal_of(published[0][1]))]
    ahead = datetime.timedelta(0)
    return announcer, published


class TestWithdrawal:
    def test_is_signed_with_the_same_bytes_everywhere(self, store, keyed, status):
        published = []

        def turn(now, others=None):
            assert announcer.turn(lambda *args: published.append(args), now, others)

        announcer = Announcer(keyed, status)
        turn(100.0)
        first = published[0][1]
        store.withdraw_experiment("keyed", "temp")
        turn(102.0)
        assert published[1:] == [(KEYED, withdrawal_of(first))]
        assert announcer.experiments == 0
        turn(104.1, {KEYED: first})  # someone replays the experiment
        announcer = Announcer(keyed, status)  # a restart
        turn(200.0)
        announcer.begin()  # a new connection, on which it is retained
        turn(201.0, {KEYED: withdrawal_of(first)})
        assert published[2:] == [(KEYED, withdrawal_of(first))] * 3
        store.add_experiment("keyed", payload_of(experiment()))
        turn(203.1)
        assert published[5][1].startswith(payload_of(experiment()))
        assert serial(published[5][1]) > serial(withdrawal_of(first))
        assert announcer.experiments == 1

    def test_replaced_names_withdrawal_has_a_higher_serial(self, store, keyed, status):
        new = payload_of(experiment(epsilon=500_000))
        store.add_experiment("keyed", new)
        store.add_experiment("keyed", payload_of(experiment()))  # the older version is current again
        newest = max(v.serial for v in store.experiments("keyed"))
        store.withdraw_experiment("keyed", "temp")
        keyed.reload()
        published = []
        Announcer(keyed, status).turn(lambda *args: published.append(args), 100.0)
        assert published == [(KEYED, keys.sign_experiment(SIGNING, KEYED, b"", newest + 1))]

    @pytest.mark.parametrize("restarted", [False, True])
    def test_by_a_wrong_clock_is_followed_by_a_higher_serial(self, over, keyed, status, restarted):
        announcer, published = over
        withdrawal = published[1][1]
        if restarted:
            announcer = Announcer(keyed, status)
        assert announcer.turn(
            lambda *args: published.append(args), 104.0, {KEYED: withdrawal} if restarted else {}
        )
        assert announcer.turn(lambda *args: published.append(args), 106.1, {KEYED: withdrawal})
        assert serial(published[2][1]) > serial(withdrawal)
        assert published[2:] == [published[2]] * 2  # a replayed old withdrawal renews nothing

    def test_by_another_aggregator_is_not_renewed_in_a_loop(self, keyed, status):
        announcer, published = Announcer(keyed, status), []
        assert announcer.turn(lambda *args: published.append(args), 100.0)
        withdrawal = withdrawal_of(published[0][1])
        for now in (103.0, 106.0):
            assert announcer.turn(lambda *args: published.append(args), now, {KEYED: withdrawal})
        assert published == [published[0]] * 3

    def test_experiment_is_published_even_without_a_new_serial(self, over, store, status, monkeypatch):
        def denied(_version):
            raise StoreError("permission denied for table experiment")

        monkeypatch.setattr(store, "renew_serial", denied)
        announcer, published = over
        assert announcer.turn(lambda *args: published.append(args), 104.0)
        assert published[2] == published[0]
        assert "permission denied" in status.text
        assert not announcer.failing


COUNTING = without_signing(FLEET_KEYS)


def signatures_of(exp, serial_, signing=SIGNING):
    return keys.sign_version(signing, KEYED, payload_of(exp), serial_)


class TestWithoutSigningKey:
    """An aggregator that counts and publishes only experiments that were signed elsewhere."""

    @pytest.fixture
    def counting(self, store, status):
        store.add_fleet("keyed", keyed=True)
        fleets = KnownFleets(store, status, COUNTING, ["keyed"])
        fleets.load()
        return fleets

    @pytest.fixture
    def add(self, store):
        def add(exp, ahead=0, signing=SIGNING, **options):
            """Add a version signed `ahead` seconds ahead; None leaves it unsigned."""
            signatures = None if ahead is None else signatures_of(exp, int(time.time()) + ahead, signing)
            store.add_experiment("keyed", payload_of(exp), signatures=signatures, **options)
            return signatures

        return add

    @pytest.fixture
    def turns(self, counting, status):
        """Return a function that returns the publications of a turn, or of a new announcer's first turn."""
        state = {"announcer": None, "now": 100.0, "days": 0}

        def today():
            return clock.now() + datetime.timedelta(state["days"])

        def turn(others=None, restart=False, days_ahead=0):
            state["days"] = days_ahead
            if restart or state["announcer"] is None:
                state["announcer"] = Announcer(counting, status, today)
            state["now"] += 2.1
            published = []
            assert state["announcer"].turn(lambda *args: published.append(args), state["now"], others)
            return published, state["announcer"]

        return turn

    def test_publishes_nothing_unsigned_and_explains_how_to_sign(self, add, turns, status):
        add(experiment(), None)
        published, announcer = turns()
        assert published == []
        assert (announcer.experiments, announcer.unsigned) == (0, 1)
        assert status.text == (
            "temp of fleet keyed is not published because nobody has signed it: run "
            "`hushmote experiment sign FILE` on the machine with the signing key, then `hushmote experiment "
            "add FILE.signed.json` here"
        )
        signatures = add(experiment(), 60)
        published, announcer = turns()
        assert published == [(KEYED, payload_of(experiment()) + b"\0" + signed_tail(signatures))]
        assert announcer.unsigned == 0

    def test_publishes_the_presigned_withdrawal(self, add, turns, store):
        signatures = add(experiment())
        turns()
        store.withdraw_experiment("keyed", "temp")
        withdrawal = keys.sign_experiment(SIGNING, KEYED, b"", signatures.serial + 1)
        assert turns()[0] == [(KEYED, withdrawal)]
        assert turns(restart=True)[0] == [(KEYED, withdrawal)]

    def test_never_renews_a_serial_after_a_withdrawal(self, add, turns, store, status):
        signatures = add(experiment(), expires=datetime.date.today() + datetime.timedelta(9))
        turns()
        ((_, withdrawal),) = turns(days_ahead=30)[0]
        assert turns()[0] == []
        assert "devices have its withdrawal: run" in status.text
        assert turns({KEYED: withdrawal}, restart=True)[0] == [(KEYED, withdrawal)]
        assert "devices have its withdrawal: run" in status.text
        assert store.experiments("keyed")[0].serial == signatures.serial
        readded = add(experiment(), 60)
        ((_, announced),) = turns()[0]
        assert serial(announced) == readded.serial

    def test_publishes_nothing_signed_with_another_key(self, add, turns, status):
        add(experiment(), signing=MASTER)
        assert turns()[0] == []
        assert "is not published because it was signed with another key" in status.text

    def test_unsigned_version_ends_the_earlier_signed_version(self, add, turns, status):
        signatures = add(experiment())
        turns()
        add(experiment(epsilon=500_000), None)
        assert turns()[0] == [(KEYED, keys.sign_experiment(SIGNING, KEYED, b"", signatures.serial + 1))]
        assert "because nobody has signed it" in status.text

    def test_reports_that_a_withdrawal_is_unsigned(self, add, turns, store, status):
        add(experiment(), None)
        store.withdraw_experiment("keyed", "temp")
        assert turns()[1].unsigned == 0
        retained = keys.sign_experiment(SIGNING, KEYED, payload_of(experiment()), 5)
        published, announcer = turns({KEYED: retained})
        assert (published, announcer.unsigned) == ([], 1)
        assert "temp of fleet keyed has expired, but nobody has signed its withdrawal" in status.text

    def test_makes_the_same_bytes_as_with_the_key(self, add, turns, store, status):
        add(experiment())
        published, _ = turns()
        fleets = KnownFleets(store, status, FLEET_KEYS, ["keyed"])
        fleets.load()
        own_messages = []
        Announcer(fleets, status).turn(lambda *args: own_messages.append(args), 100.0)
        assert own_messages == published


def signed_tail(signatures):
    return signatures.serial.to_bytes(4, "big") + signatures.announcement


class TestTurn:
    def test_publishes_changes_every_two_seconds(self, store, status, fleets):
        announcer, published = Announcer(fleets, status), []
        assert announcer.turn(lambda *args: published.append(args), 100.0)
        assert published == [(TEMP, payload_of(experiment()))]
        store.withdraw_experiment("open", "temp")
        assert announcer.experiments == 1
        assert not announcer.turn(lambda *args: published.append(args), 101.9)
        assert announcer.turn(lambda *args: published.append(args), 102.0)
        assert announcer.turn(lambda *args: published.append(args), 104.0)
        assert published[1:] == [(TEMP, b"")]
        assert announcer.experiments == 0
        announcer.begin()
        assert announcer.turn(lambda *args: published.append(args), 104.1)
        assert published[2:] == [(TEMP, b"")]

    def test_restores_messages_changed_by_others(self, keyed, status):
        announcer, published = Announcer(keyed, status), []

        def publish(*args):
            published.append(args)

        assert announcer.turn(publish, 100.0)
        ((topic, first),) = published
        assert topic == KEYED
        others = {KEYED: b""}
        assert not announcer.turn(publish, 101.9, others)  # it may be older than the last publication
        assert announcer.turn(publish, 102.0, others)
        assert others == {}
        assert published[1:] == [(KEYED, first)]
        assert "another client changed hushmote/v1/keyed/experiment/temp" in status.text
        assert not announcer.turn(publish, 103.0, {KEYED: first})
        assert not announcer.turn(publish, 103.0, {"hushmote/v1/keyed/experiment/strange": b"{}"})
        assert announcer.turn(publish, 104.0)
        assert announcer.turn(publish, 105.0, {KEYED: b"{}"})  # immediately, without a publication in between
        assert published[1:] == [(KEYED, first)] * 2

    def test_failing_store_publishes_nothing_until_it_works(self, status, fleets, failing, caplog):
        caplog.set_level(logging.INFO, "hushmote")
        announcer, published = Announcer(fleets, status), []
        failing(True)
        for now in (100.0, 102.0, 104.0):
            assert not announcer.turn(lambda *args: published.append(args), now)
        assert announcer.failing
        assert published == []
        failing(False)
        assert announcer.turn(lambda *args: published.append(args), 106.0)
        assert not announcer.failing
        assert len(published) == 1
        assert [r.getMessage() for r in caplog.records] == ["the disk is full", "the store can be read again"]


class TestKnownFleets:
    def test_unsaved_master_check_does_not_stop_counting(self, keyed, status, store, monkeypatch):
        def denied(*_):
            raise StoreError("permission denied for table fleet")

        monkeypatch.setattr(store, "set_master_check", denied)
        committer, exp = Committer(store, keyed, status), experiment()
        key = keys.device_key(MASTER, "keyed", "a")
        for number in (1, 2):
            sent = topics.report_topic("keyed", "a"), report.encode(exp, number, 0, "a", key)
            assert committer.commit([sent])
        assert committer.counters.accepted == 2
        assert "the check value of fleet keyed's master key: permission denied" in status.text

    def test_new_keyed_fleet_without_key_does_not_block_others(self, store, status, fleets):
        store.add_fleet("keyed", keyed=True)
        store.add_fleet("later", keyed=False)
        store.revoke_devices("open", ["a"])
        store.withdraw_experiment("open", "temp")
        store.add_experiment("open", payload_of(experiment(name="door")))
        fleets.reload()
        assert set(fleets.rules) == {"open", "later"}
        assert fleets.rules["open"].revoked == {"a"}
        assert [v.experiment.name for v in fleets.rules["open"].versions.values() if v.current] == ["door"]
        assert "fleet keyed is keyed" in status.text
        with pytest.raises(keys.MasterKeyError):
            KnownFleets(store, status).load()
        with pytest.raises(StoreError, match="no fleet away"):
            KnownFleets(store, status, FLEET_KEYS, ["away"]).load()

    def test_report_to_a_brand_new_experiment_is_counted(self, store, status, fleets):
        new = store.add_experiment("open", payload_of(experiment(name="door")))
        committer = Committer(store, fleets, status)
        assert committer.commit([message(1, new)])
        assert committer.counters.accepted == 1

    def test_failed_batch_is_not_acknowledged_and_counts_once(self, store, status, fleets, failing):
        commits = []
        committer = Committer(store, fleets, status, on_commit=lambda *args: commits.append(args[0]))
        batch = [message(1), message(2), message(2)]
        failing(True)
        assert not committer.commit(batch)
        first = committer.not_before
        assert not committer.commit(batch)
        assert committer.not_before > first
        assert committer.failing
        assert committer.committed_at is None
        assert status.text == "the disk is full; reports wait at the broker"
        failing(False)
        assert committer.commit(batch)
        assert not committer.failing
        assert commits == [3]
        counters = committer.counters
        assert (counters.accepted, counters.batches, counters.failures) == (2, 1, 2)
        assert counters.rejected == {"duplicate": 1}
        assert store.histogram("open", experiment().digest).sum() == 2
