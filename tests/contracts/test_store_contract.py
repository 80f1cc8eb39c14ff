"""The contract of every store, whatever its database: counting once, merging, refusing and reading.

tests/server/store/ tests each part separately, with its faults. A store in a new kind of database must pass
this contract first, as another parameter of the fixture `store_url`.
"""

import datetime

import pytest
from boards import ask_fleet, experiment, experiment_payload, payload_of
from filled_store import rows
from traffic import crowd, histogram

from hushmote.server.ingest.pipeline import fleets, ingest
from hushmote.server.store import Store, StoreError, VersionRefused
from hushmote.server.store.merge import MergeRefused, merge
from hushmote.server.store.store import Participation
from hushmote.server.store.transaction import IngestTransaction

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
TEMP = experiment()


def open_store(url: str) -> Store:
    """Return a store with an open fleet and a temperature experiment."""
    store = Store(url)
    ask_fleet(store, "open", TEMP)
    return store


def take(store: Store, messages) -> tuple[int, dict[str, int]]:
    """Count a batch; return the number of accepted reports, and the rejected ones by reason."""
    tally = ingest(store, messages, fleets(store), NOW)
    return tally.accepted, {reason: count for (_, reason), count in tally.rejected.items()}


class TestEveryStore:
    @pytest.fixture
    def store(self, store_url: str):
        with open_store(store_url) as store:
            yield store

    @pytest.fixture
    def site(self, tmp_path):
        """Provide another site's store."""
        with open_store(f"sqlite:///{tmp_path / 'site.sqlite'}") as site:
            yield site

    def test_commit_stores_reports(self, store: Store, store_url: str):
        messages, counts = crowd(60)
        assert take(store, messages) == (60, {})
        with Store(store_url, create=False) as reopened:
            assert list(reopened.histogram("open", TEMP.digest)) == counts
            assert reopened.windows("open", TEMP.digest) == ("2026-11-21",)
            assert reopened.participation("open") == {"temp": Participation(devices=60, reports=60, most=1)}

    def test_counts_report_once_within_and_across_batches(self, store: Store):
        messages, counts = crowd(40)
        assert take(store, messages[:30] + messages[:10]) == (30, {"duplicate": 10})
        assert take(store, messages) == (10, {"duplicate": 30})
        assert list(store.histogram("open", TEMP.digest)) == counts
        assert store.rejects() == {"open": {"duplicate": 40}}

    def test_counts_batch_wholly_or_not_at_all(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        messages, counts = crowd(30)
        before = rows(store)
        write = IngestTransaction.write

        def write_and_fail(transaction, *arguments):
            write(transaction, *arguments)
            raise RuntimeError

        monkeypatch.setattr(IngestTransaction, "write", write_and_fail)
        with pytest.raises(RuntimeError):
            take(store, messages)
        monkeypatch.undo()
        assert rows(store) == before
        assert take(store, messages) == (30, {})
        assert list(store.histogram("open", TEMP.digest)) == counts

    def test_merging_adds_counts_and_repeats_no_report(self, store: Store, site: Store):
        messages, counts = crowd(80)
        take(store, messages[:50])
        take(site, messages[50:])
        merge(store, [site])
        assert list(store.histogram("open", TEMP.digest)) == counts
        assert list(site.histogram("open", TEMP.digest)) == histogram(messages[50:])
        before = rows(store)
        with pytest.raises(MergeRefused, match=r"^[^\n]*counted[^\n]*$"):
            merge(store, [site])
        assert rows(store) == before
        assert take(store, messages) == (0, {"duplicate": 80})

    def test_refusal_is_one_line_and_changes_nothing(self, store: Store):
        before = rows(store)
        with pytest.raises(VersionRefused, match=r"^[^\n]+$"):
            store.add_experiment("open", experiment_payload(budget={"rule": "sum", "cap": 5_000_000}))
        with pytest.raises(StoreError, match=r"^[^\n]+$"):
            store.add_fleet("open", keyed=True)
        with pytest.raises(StoreError, match=r"^[^\n]+$"):
            store.add_experiment("away", payload_of(TEMP))
        assert rows(store) == before

    def test_reading_changes_and_creates_nothing(self, store: Store, store_url: str, tmp_path):
        take(store, crowd(10)[0])
        before = rows(store)
        with Store(store_url, create=False) as reader:
            assert reader.fleets() == {"open": False}
            assert [v.experiment.digest for v in reader.experiments()] == [TEMP.digest]
            assert reader.histogram("open", TEMP.digest).sum() == 10
            assert len(list(reader.accepted_numbers("open"))) == 10
            assert reader.rejects() == {}
        assert rows(store) == before
        with pytest.raises(StoreError):
            Store(f"sqlite:///{tmp_path / 'none.sqlite'}", create=False)
