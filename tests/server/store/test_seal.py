"""Sealing an experiment: counts stay, each device has one interval of numbers, nothing counts twice."""

import json

import pytest
from boards import ask_fleet, experiment, payload_of
from command_line import runner
from filled_store import rows
from pyroaring import BitMap

from hushmote.server.budgets.remaining import read
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.clock import now
from hushmote.server.store import Store, StoreError, VersionRefused
from hushmote.server.store.check import check
from hushmote.server.store.merge import MergeRefused, merge
from hushmote.server.store.number_set import NumberSet
from hushmote.server.store.seal import Sealing, seal
from hushmote.server.store.store import Participation
from hushmote.server.wire import report, topics

TEMP = experiment(budget={"rule": "unlimited"})
# Device "gaps" lost reports 1, 3 and 5 to 7 in transit.
SENT_NUMBERS = {"whole": [1, 2, 3], "gaps": [2, 4, 8, 9], "late": [3], "one": [1]}
SEALED = {
    "whole": NumberSet(3),
    "gaps": NumberSet(9, late=5),
    "late": NumberSet(3, late=2),
    "one": NumberSet(1),
}


def take(store, sent, exp=TEMP):
    """Count reports by devices' numbers; return the number accepted, and the rejects by reason."""
    messages = [
        (topics.report_topic("home", device), report.encode(exp, number, number % exp.code_count))
        for device, numbers in sent.items()
        for number in numbers
    ]
    tally = ingest.ingest(store, messages, ingest.fleets(store), now())
    return tally.accepted, {reason: n for (_, reason), n in tally.rejected.items()}


def numbers(store):
    return {device: numbers for device, _, numbers in store.accepted_numbers("home")}


def filled(url):
    store = Store(url)
    ask_fleet(store, "home", TEMP)
    store.add_experiment("home", payload_of(experiment(name="door", budget={"rule": "unlimited"})))
    assert take(store, SENT_NUMBERS) == (9, {})
    return store


@pytest.fixture
def store(store_url):
    """Create a store with four devices of fleet home, two of which have gaps in their numbers."""
    with filled(store_url) as store:
        yield store


class TestConcurrency:
    def test_concurrent_reports_are_counted_or_rejected(self, store, store_url):
        with Store(store_url) as other:
            open_transaction = store.ingest

            def late_arrival():
                # Happens after the rows were read and before they are locked.
                assert take(other, {"gaps": [1, 12], "whole": [4]}) == (3, {})
                return open_transaction()

            store.ingest = late_arrival
            effect = seal(store, "home", "temp", dry_run=False)
        assert effect.gaps == 4 + 2 + 2  # 3, 5 to 7, 10 and 11 of one; 1 and 2 of the other
        assert numbers(store)["gaps"] == NumberSet(12, late=6)
        assert numbers(store)["whole"] == NumberSet(4)
        assert check(store).violations == ()
        assert check(store).reports == 12

    def test_failure_leaves_each_device_sealed_or_unchanged(self, store, monkeypatch):
        open_transaction = store.ingest
        calls = []

        def fail_at_the_second():
            if calls:
                raise StoreError("gone")
            calls.append(1)
            return open_transaction()

        monkeypatch.setattr(store, "ingest", fail_at_the_second)
        with pytest.raises(StoreError, match="gone"):
            seal(store, "home", "temp", dry_run=False, batch_size=1)
        assert numbers(store) == SEALED | {"late": NumberSet().add(3)}
        assert check(store).violations == ()
        monkeypatch.setattr(store, "ingest", open_transaction)
        seal(store, "home", "temp", dry_run=False)
        assert numbers(store) == SEALED


class TestSeal:
    def test_dry_run_describes_and_changes_nothing(self, store):
        before = rows(store)
        effect = seal(store, "home", "temp")
        assert rows(store) == before
        assert effect == Sealing(
            "home",
            "temp",
            devices=4,
            folded=2,
            gaps=7,
            late=0,
            bytes_before=len(b"1-3" + b"1-1" + BitMap([2, 4, 8, 9]).serialize() + BitMap([3]).serialize()),
            bytes_after=len("1-3" + "5~1-9" + "2~1-3" + "1-1"),
            over=False,
        )
        assert seal(store, "home", "temp", dry_run=False) == effect
        assert numbers(store) == SEALED

    def test_keeps_counts_and_remaining_budgets(self, store):
        counts = list(store.histogram("home", TEMP.digest))
        profiles = read(store, "home", now().date()).profiles
        seal(store, "home", "temp", dry_run=False)
        assert list(store.histogram("home", TEMP.digest)) == counts
        assert store.participation("home") == {"temp": Participation(devices=4, reports=9, most=4)}
        assert read(store, "home", now().date()).profiles == profiles
        assert profiles
        numbers = check(store)
        assert (numbers.violations, numbers.reports, numbers.devices) == ((), 9, 4)

    def test_closes_gaps_and_counts_new_numbers(self, store):
        seal(store, "home", "temp", dry_run=False)
        assert take(store, SENT_NUMBERS) == (0, {"duplicate": 9})
        assert take(store, {"gaps": [1, 3, 5, 6, 7], "late": [1, 2]}) == (0, {"duplicate": 7})
        assert take(store, {"gaps": [10], "late": [5, 4], "new": [2]}) == (4, {})
        assert numbers(store)["late"] == NumberSet(5, late=2)
        assert check(store).violations == ()
        second = seal(store, "home", "temp", dry_run=False)
        assert (second.folded, second.gaps, second.late) == (1, 1, 7)

    def test_leaves_other_experiments_alone(self, store):
        door = experiment(name="door", budget={"rule": "unlimited"})
        take(store, {"gaps": [2]}, door)
        seal(store, "home", "temp", dry_run=False)
        assert take(store, {"gaps": [1, 2]}, door) == (1, {"duplicate": 1})

    def test_reports_whether_any_version_still_counts(self, store):
        store.add_experiment(
            "home", payload_of(experiment(budget={"rule": "unlimited"}, epsilon=500_000)), grace_days=0
        )
        assert not seal(store, "home", "temp").over  # the version before it is
        store.withdraw_experiment("home", "temp")
        assert not seal(store, "home", "temp").over
        store.withdraw_experiment("home", "temp", grace_days=0)
        assert seal(store, "home", "temp").over
        assert take(store, {"late": [1]}) == (0, {"expired version": 1})

    def test_sealed_store_merges_unless_numbers_may_overlap(self, store, tmp_path):
        with filled(f"sqlite:///{tmp_path / 'other.sqlite'}") as site:
            seal(store, "home", "temp", dry_run=False)
            with pytest.raises(MergeRefused, match="counted the same"):
                merge(store, [site])
        with Store(f"sqlite:///{tmp_path / 'third.sqlite'}") as site:
            ask_fleet(site, "home", TEMP)
            take(site, {"elsewhere": [1, 3], "gaps": [1]})
            with pytest.raises(MergeRefused, match="same 1 report of 1 device"):
                merge(store, [site])
        with Store(f"sqlite:///{tmp_path / 'fourth.sqlite'}") as site:
            ask_fleet(site, "home", TEMP)
            take(site, {"elsewhere": [1, 3]})
            merge(store, [site])
        assert check(store).violations == ()
        assert numbers(store) == SEALED | {"elsewhere": NumberSet().add(1).add(3)}

    def test_rejects_an_unknown_experiment(self, store):
        with pytest.raises(VersionRefused, match=r"^there is no experiment hall in fleet home$"):
            seal(store, "home", "hall", dry_run=False)

    def test_command_describes_first_and_then_acts(self, tmp_path, monkeypatch):
        filled(f"sqlite:///{tmp_path / 's.sqlite'}").close()
        run = runner("store", tmp_path, monkeypatch)
        output = run("seal", "sqlite:///s.sqlite", "temp")
        assert "with gaps in their report numbers: 2 devices, 7 reports" in output
        assert "It is still counted, so sealing can lose 7 reports" in output
        assert "Nothing was changed; add --yes" in output
        assert json.loads(run("seal", "sqlite:///s.sqlite", "temp", "--json"))["gaps"] == 7
        assert "Nothing" not in run("seal", "sqlite:///s.sqlite", "temp", "--yes")
        assert json.loads(run("seal", "sqlite:///s.sqlite", "temp", "--json"))["gaps"] == 0
        assert "There is nothing to seal." in run("seal", "sqlite:///s.sqlite", "temp", "--yes")
        assert "sound" in run("check", "sqlite:///s.sqlite")
        assert "no experiment hall" in run("seal", "sqlite:///s.sqlite", "hall", "--yes", expect=1)
