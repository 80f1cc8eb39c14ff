"""Experiments signed elsewhere: which ones a store accepts, and how boards react to replays."""

import time

import pytest
from boards import FLEET_KEYS, KEY, MASTER, SIGNING, MemoryStorage, ask_fleet, experiment, payload_of
from enumeration import POLICY

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client, ExperimentRefused
from hushmote.server.store import Store
from hushmote.server.store.merge import merge
from hushmote.server.store.versions import VersionRefused
from hushmote.server.wire import keys, topics

TOPIC = topics.experiment_topic("keyed", "temp")
NOW = int(time.time())


def sign(serial, exp=None, topic=TOPIC):
    return keys.sign_version(SIGNING, topic, payload_of(exp or experiment()), serial)


@pytest.fixture
def keyed(store):
    store.add_fleet("keyed", keyed=True)
    return store


class TestAdd:
    def test_keeps_signatures_under_their_own_serial(self, keyed):
        signatures = sign(NOW - 1000)
        keyed.add_experiment("keyed", payload_of(experiment()), signatures=signatures)
        (version,) = keyed.experiments("keyed")
        assert (version.serial, version.first_serial, version.signatures) == (
            signatures.serial,
            signatures.serial,
            signatures,
        )

    def test_other_names_versions_may_arrive_in_any_order(self, keyed):
        keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW))
        door = experiment(name="door")
        signatures = keys.sign_version(
            SIGNING, topics.experiment_topic("keyed", "door"), payload_of(door), NOW - 9
        )
        keyed.add_experiment("keyed", payload_of(door), signatures=signatures)
        # What an aggregator with the signing key adds next is above all of them.
        new = experiment(name="lamp")
        keyed.add_experiment("keyed", payload_of(new))
        assert max(v.serial for v in keyed.experiments("keyed")) > NOW + 1

    @pytest.mark.parametrize("behind", [0, 1, 1000])
    def test_rejects_signatures_older_than_those_on_devices(self, keyed, behind):
        keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW))
        new = experiment(epsilon=500_000)
        with pytest.raises(VersionRefused, match=f"sign it again, with --after {NOW + 1} if"):
            keyed.add_experiment("keyed", payload_of(new), signatures=sign(NOW + 1 - behind, new))
        keyed.withdraw_experiment("keyed", "temp")
        with pytest.raises(VersionRefused, match="was signed before the version that devices have"):
            keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW))
        keyed.add_experiment("keyed", payload_of(new), signatures=sign(NOW + 2, new))

    def test_current_version_may_be_added_again(self, keyed):
        for _ in range(2):
            keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW))
        keyed.renew_serial(keyed.experiments("keyed")[0])
        with pytest.raises(VersionRefused, match="was signed before the version that devices have"):
            keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW))

    def test_rejects_a_serial_that_exhausts_the_others(self, keyed):
        with pytest.raises(VersionRefused, match=r"it was signed on 2106-01-0. by the clock of that machine"):
            keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(4_291_747_200))
        keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW + 86_400))

    def test_rejects_signatures_for_an_open_fleet(self, store):
        store.add_fleet("loose", keyed=False)
        with pytest.raises(VersionRefused, match="fleet loose is open, so nothing is signed in it"):
            store.add_experiment("loose", payload_of(experiment()), signatures=sign(NOW))

    def test_signatures_end_with_a_renewed_serial_and_a_new_version(self, keyed):
        keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW))
        keyed.renew_serial(keyed.experiments("keyed")[0])
        (renewed,) = keyed.experiments("keyed")
        announce_key = FLEET_KEYS.announce_key
        assert keys.signed_messages(announce_key, TOPIC, renewed.payload, renewed.signatures) is None
        keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(renewed.serial + 900))
        keyed.add_experiment("keyed", payload_of(experiment()))
        assert keyed.experiments("keyed")[0].signatures is None


class TestMerge:
    def test_keeps_the_signatures_of_the_newest_serial(self, keyed, tmp_path):
        keyed.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW))
        with Store(f"sqlite:///{tmp_path / 'other.sqlite'}") as other:
            other.add_fleet("keyed", keyed=True)
            other.add_experiment("keyed", payload_of(experiment()), signatures=sign(NOW + 9))
            merge(keyed, [other])
        (version,) = keyed.experiments("keyed")
        assert version.signatures == sign(NOW + 9)
        assert version.serial == NOW + 9


class TestBoard:
    """The most that an aggregator without the signing key can make a real board do."""

    @pytest.fixture
    def board(self):
        storage = MemoryStorage()
        ldp_client.provision(storage, consent=True)
        policy = POLICY | {"experiments": ("temp", "door")}
        return Client(policy, storage, "k3f9", KEY, FLEET_KEYS.announce_key, "keyed")

    @staticmethod
    def messages(serial, exp=None):
        both = keys.signed_messages(
            FLEET_KEYS.announce_key, TOPIC, payload_of(exp or experiment()), sign(serial, exp)
        )
        assert both is not None
        return both

    def test_accepts_the_signed_pair_and_rejects_replays(self, board):
        old, old_end = self.messages(NOW)
        new, new_end = self.messages(NOW + 100, experiment(epsilon=500_000))
        board.enroll(old)
        board.enroll(new)
        with pytest.raises(ExperimentRefused, match="a newer version was published"):
            board.enroll(old)
        with pytest.raises(ExperimentRefused, match="a newer version was published"):
            board.withdraw("temp", old_end)  # the older version's withdrawal does not end a newer version
        board.withdraw("temp", new_end)
        for replay in (old, new):
            with pytest.raises(ExperimentRefused, match="a newer version was published"):
                board.enroll(replay)
        board.enroll(self.messages(NOW + 200)[0])  # with a new signature

    def test_rejects_a_changed_serial_name_or_body(self, board):
        announcement, withdrawal = self.messages(NOW)
        board.enroll(announcement)
        later = (NOW + 50).to_bytes(4, "big")
        for forged in (
            announcement[:-68] + later + announcement[-64:],
            payload_of(experiment(epsilon=2_000_000)) + announcement[-69:],
            payload_of(experiment(every=1, name="door")) + announcement[-69:],
        ):
            with pytest.raises(ExperimentRefused):
                board.enroll(forged)
        for name, forged in (
            ("temp", withdrawal[:1] + later + withdrawal[5:]),
            ("door", withdrawal),
            ("temp", announcement),
            ("temp", b""),
        ):
            with pytest.raises(ExperimentRefused, match="its signature is missing or wrong"):
                board.withdraw(name, forged)

    def test_board_that_missed_the_withdrawal_continues(self, board):
        announcement, _ = self.messages(NOW)
        board.enroll(announcement)
        board.enroll(announcement)
        assert board.status()["experiments"]["temp"] is not None


class TestUnsigned:
    def test_fleet_announced_as_before_has_no_signatures(self, store):
        ask_fleet(store, "keyed", experiment(), keyed=True)
        (version,) = store.experiments("keyed")
        assert version.signatures is None
        assert MASTER not in (version.payload, FLEET_KEYS.announce_key)
