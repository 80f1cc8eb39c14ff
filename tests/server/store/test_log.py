"""A store's log only grows, one process at a time, and what is damaged is refused."""

import os
import threading

import pytest
from boards import ask_fleet, experiment, payload_of
from log_witness import LOG, ORIGIN
from refusals import fails

from hushmote.server.log.entry import Entry, experiment_entry
from hushmote.server.log.note import ECDSA, ED25519, Checkpoint, SecretKey, valid_signatures
from hushmote.server.log.tree import Tree
from hushmote.server.store import Store, log_export
from hushmote.server.store.check import check
from hushmote.server.store.log import StoredLog


def entry(number):
    return experiment_entry("home", f"e{number}", b'{"v":1}')


def log_of(store, *entries, at=100):
    log = StoredLog(store)
    for each in entries:
        log.append(LOG, lambda _log, each=each: [each], at)
    return log


class TestAppend:
    def test_signs_each_tree(self, store_url):
        with Store(store_url) as store:
            log = log_of(store, *map(entry, range(5)))
            tree = Tree(entry(number).leaf for number in range(5))
            for size in range(1, 6):
                checkpoint = log.checkpoints[size]
                assert (checkpoint.origin, checkpoint.root) == (ORIGIN, tree.root(size))
                public = [LOG.public(kind) for kind in (ED25519, ECDSA)]
                assert set(valid_signatures(checkpoint, public)) == set(public)
            again = StoredLog(store)
            again.refresh()
            assert again.checkpoints == log.checkpoints
            assert [each.entry for each in again.entries] == [entry(number) for number in range(5)]

    def test_processes_take_turns(self, store_url):
        def add(first):
            with Store(store_url) as store:
                log = StoredLog(store)
                barrier.wait()
                for number in range(first, first + 20):
                    log.append(LOG, lambda _log, number=number: [entry(number)], 100)

        with Store(store_url) as store:
            barrier = threading.Barrier(3)
            threads = [threading.Thread(target=add, args=(100 * at,)) for at in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            log = StoredLog(store)
            log.refresh()
            assert log.tree.size == 60
            assert {each.entry for each in log.entries} == {
                entry(100 * at + number) for at in range(3) for number in range(20)
            }

    def test_sees_what_others_added_before_it_chooses(self, store):
        first, second = StoredLog(store), StoredLog(store)

        def once(log):
            return [] if any(each.entry == entry(1) for each in log.entries) else [entry(1)]

        assert first.append(LOG, once, 100) == [entry(1)]
        assert second.append(LOG, once, 100) == []
        assert second.tree.size == 1

    def test_refuses_another_key(self, store):
        log = log_of(store, entry(1))
        with fails("the log in .* is example.org/questions, but the key is of other.example"):
            log.append(SecretKey("other.example", LOG.ed25519, LOG.p256), lambda _: [entry(2)], 100)
        with fails("was signed with another key of example.org/questions: give that key"):
            log.append(SecretKey(ORIGIN, bytes([3] * 32), LOG.p256), lambda _: [entry(2)], 100)
        assert log.tree.size == 1

    def test_refuses_an_entry_that_does_not_fit(self, store):
        log = log_of(store, entry(1))
        with fails("an entry of a log has at most 65,535 bytes, and hushmote/release/1 has more"):
            log.append(LOG, lambda _: [Entry("hushmote/release/1", bytes(70_000))], 100)
        assert log.tree.size == 1


class TestRead:
    @pytest.mark.parametrize(
        ("statement", "words"),
        [
            ("UPDATE log_entry SET content = x'7b7d' WHERE number = 1", "is not of its entries"),
            ("DELETE FROM log_entry WHERE number = 0", "entries are missing"),
            ("DELETE FROM log_checkpoint WHERE size = 3", "its last entries are in no checkpoint"),
            ("UPDATE log_checkpoint SET note = 'x'", "a checkpoint has three lines"),
        ],
    )
    def test_refuses_damage(self, store, statement, words):
        log_of(store, *map(entry, range(3)))
        with store.writing() as connection:
            connection.exec_driver_sql(statement)
        with fails(f"the log in .* is damaged: .*{words}"):
            StoredLog(store).refresh()

    def test_notices_that_it_became_shorter(self, store):
        log = log_of(store, *map(entry, range(3)))
        with store.writing() as connection:
            connection.exec_driver_sql("DELETE FROM log_checkpoint WHERE size = 3")
            connection.exec_driver_sql("DELETE FROM log_entry WHERE number = 2")
        with fails("is shorter than a moment ago"):
            log.refresh()


class TestSignatures:
    def test_first_line_of_a_key_stays(self, store):
        witness = SecretKey("w1.example", bytes([5] * 32), bytes([6] * 32))
        log = log_of(store, entry(1))
        text = log.checkpoints[1].text
        log.add_signatures(1, witness.cosign(text, 1000), 1000)
        log.add_signatures(1, witness.cosign(text, 2000), 2000)
        lines = log.checkpoints[1].signatures
        assert len(lines) == 4
        other = StoredLog(store)
        other.refresh()
        assert other.checkpoints == log.checkpoints
        assert {at for _, at in other.cosigned[1]} == {1000}


class TestExtend:
    def checkpoint(self, count):
        tree = Tree(entry(number).leaf for number in range(count))
        return LOG.sign_tree(count, tree.root())

    def test_adds_what_a_backup_lacks(self, store):
        log = log_of(store, *map(entry, range(3)))
        assert log.extend([entry(n) for n in range(5)], self.checkpoint(5), 200) == 2
        assert log.checkpoint == self.checkpoint(5)
        assert log.extend([entry(n) for n in range(5)], self.checkpoint(5), 200) == 0

    def test_refuses_what_does_not_continue_it(self, store):
        log = log_of(store, *map(entry, range(3)))
        with fails("it has 2 entries and the store has 3: nothing is missing here"):
            log.extend([entry(0), entry(1)], self.checkpoint(2), 200)
        with fails("its entries are not those of its checkpoint"):
            log.extend([entry(n) for n in range(4)], self.checkpoint(5), 200)
        log.append(LOG, lambda _: [entry(99)], 100)
        with fails("it does not continue the store's log"):
            log.extend([entry(n) for n in range(5)], self.checkpoint(5), 200)


def test_new_version_has_a_higher_serial_than_the_log(store):
    ask_fleet(store, "home", payload_of(experiment()), keyed=True)
    others = [
        experiment_entry(fleet, "temp", b"{}\0\xee" + bytes(67)) for fleet in ("home_", "homes", "h_me")
    ]
    log_of(store, experiment_entry("home", "temp", b"{}\0\xdd" + bytes(67)), *others)
    version = store.add_version("home", payload_of(experiment(epsilon=500_000))).version
    assert version.serial == 0xDD000002


def test_check_reports_a_damaged_log(store):
    log_of(store, *map(entry, range(3)))
    assert check(store).violations == ()
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE log_entry SET content = x'7b7d' WHERE number = 1")
    (violation,) = check(store).violations
    assert "the checkpoint of size 2 is not of its entries" in violation


def test_exports_at_one_time_do_not_share_files(store, tmp_path, monkeypatch):
    log, replace = log_of(store, entry(0)), os.replace

    def replace_after_another_export(*paths):
        monkeypatch.setattr(os, "replace", replace)
        log_export.export(StoredLog(store), tmp_path)
        replace(*paths)

    monkeypatch.setattr(os, "replace", replace_after_another_export)
    assert log_export.export(log, tmp_path) == (0, 1)
    assert log_export.export(log, tmp_path) == (1, 1)
    assert not list(tmp_path.rglob("*.new"))


def test_slow_export_does_not_set_the_folder_back(store_url, tmp_path, monkeypatch):
    with Store(store_url) as store:
        log, write = log_of(store, entry(0)), log_export.files

        def files(*arguments):
            monkeypatch.setattr(log_export, "files", write)
            yield from write(*arguments)
            log_of(store, entry(1))
            assert log_export.export(StoredLog(store), tmp_path) == (0, 2)

        monkeypatch.setattr(log_export, "files", files)
        log_export.export(log, tmp_path)
        assert Checkpoint.parse((tmp_path / "checkpoint").read_text()).size == 2
        assert log_export.export(log, tmp_path) == (2, 2)
