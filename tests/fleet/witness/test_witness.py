"""A witness signs one history, and refuses every lie of a log."""

import base64
import contextlib
import errno
import os
import threading
from typing import Any

import numpy as np
import pytest
from public_log import (
    DAY_S,
    HOUR_S,
    KEY,
    LOG,
    NOW,
    PublicLog,
    begin,
    body,
    restart,
    rule,
    version,
    withdrawal,
)
from refusals import fails

from hushmote.fleet.witness.state import MAX_REFUSALS, StateError, StateFile
from hushmote.fleet.witness.witness import AGAIN_S, READ_S, NotSigned, OtherSize, Request, Witness
from hushmote.server.log import tiles
from hushmote.server.log.note import COSIGNATURE, ECDSA, Checkpoint, NoteRefused, SecretKey
from hushmote.server.log.tiles import tile_path
from hushmote.server.log.tree import Edge, Tree


def numbered(count, start=0):
    """Return as many withdrawals, which a rule never limits."""
    return [withdrawal(f"q{start + n}") for n in range(count)]


def refusal(witness, request) -> Any:
    with pytest.raises(NotSigned) as caught:
        witness.add_checkpoint(request)
    assert "\n" not in str(caught.value)
    return caught.value


class TestSigning:
    def test_both_signatures_verify(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        cosignature, p256 = witness.add_checkpoint(log.request(1))
        text = log.checkpoint().text
        assert KEY.public(COSIGNATURE).verify(text, cosignature)
        assert int.from_bytes(cosignature.value[:8], "big") == NOW
        assert KEY.public(ECDSA).verify(text, p256)

    @pytest.mark.parametrize("size", [1, 2, 3, 255, 256, 257, 511, 512, 513, 1024])
    def test_sizes_around_powers_of_two(self, tmp_path, file, clock, size):
        log = PublicLog(tmp_path / "log", numbered(size))
        witness = begin(log, file, clock)
        for more in (1, 1, 255):
            old = log.tree.size
            log.append(*numbered(more, old))
            witness.add_checkpoint(log.request(old))
        assert witness.state.root == log.tree.root()
        assert restart(log, file, clock).state.root == log.tree.root()

    def test_empty_log(self, tmp_path, file, clock):
        log = PublicLog(tmp_path / "log")
        witness = begin(log, file, clock)
        assert witness.state.size == 0
        witness.add_checkpoint(log.request(0))
        log.append(version())
        witness.add_checkpoint(log.request(0))
        wrong = LOG.sign_tree(0, bytes(32))
        assert refusal(restart(log, file, clock), body(0, [], wrong)).status == 409

    def test_size_zero_with_a_root(self, tmp_path, file, clock):
        log = PublicLog(tmp_path / "log")
        witness = begin(log, file, clock)
        assert refusal(witness, body(0, [], LOG.sign_tree(0, bytes(32)))).status == 422

    def test_signs_the_same_size_again_with_a_new_time(self, log, file, clock):
        witness = begin(log, file, clock)
        first = witness.add_checkpoint(log.request(1))
        clock.now += 60
        again = witness.add_checkpoint(log.request(1))
        assert again[0] != first[0]
        assert again[1] == first[1]

    def test_keeps_the_signed_checkpoint(self, log, file, clock):
        witness = begin(log, file, clock)
        lines = witness.add_checkpoint(log.request(1))
        kept = Checkpoint.parse(restart(log, file, clock).state.checkpoint)
        assert set(lines) < set(kept.signatures)
        assert kept.text == log.checkpoint().text

    def test_state_is_on_disk_before_the_answer(self, log, file, clock, monkeypatch):
        witness = begin(log, file, clock)
        log.append(version("door"))
        signed = []
        monkeypatch.setattr(
            SecretKey, "cosign", lambda *a, sign=SecretKey.cosign: signed.append(1) or sign(*a)
        )

        def fail(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            error = refusal(witness, log.request(1))
        assert (error.status, str(error)) == (503, f"cannot write {file.path}: No space left on device")
        assert signed
        assert witness.state.size == 1
        witness.add_checkpoint(log.request(1))
        assert restart(log, file, clock).state.size == 2


class TestProtocol:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\n\n",
            b"old 0\n",
            b"old 00\n\n",
            b"old -1\n\n",
            b"old 1 \n\n",
            b"new 1\n\n",
            b"old 1\nabc\n\n",
            b"old 1\n" + base64.b64encode(bytes(31)) + b"\n\n",
            b"old 1\n" + (base64.b64encode(bytes(32)) + b"\n") * 64 + b"\n",
            b"\xff",
            b"old 1\r\n\r\n",
            b"old 1\n\nexample.org/questions\n1\nAAAA\n\n",
            b"old 1\n\nexample.org/questions\n4294967296\n" + base64.b64encode(bytes(32)) + b"\n\n",
        ],
    )
    def test_malformed_body(self, data):
        with pytest.raises(NotSigned) as caught:
            Request.parse(data)
        assert caught.value.status == 400

    def test_statuses_of_the_specification(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        log.append(version("window"))
        other = SecretKey("example.org/other", b"\1" * 32, b"\2" * 32)
        assert refusal(witness, body(1, [], log.checkpoint(secret=other))).status == 404
        stranger = SecretKey(LOG.name, b"\7" * 32, b"\2" * 32)
        assert refusal(witness, body(1, [], log.checkpoint(secret=stranger))).status == 403
        forged = str(log.checkpoint(2)).replace("\n2\n", "\n3\n")
        assert refusal(witness, body(1, [], forged)).status == 403
        assert refusal(witness, body(3, [], log.checkpoint(2))).status == 400
        assert refusal(witness, body(0, [], log.checkpoint())).size == 1
        assert refusal(witness, body(1, [], log.checkpoint())).status == 422
        assert refusal(witness, body(1, [bytes(32)] * 63, log.checkpoint())).status == 422
        witness.add_checkpoint(log.request(1, 2))
        witness.add_checkpoint(log.request(2, 3))

    def test_replay_of_an_older_tree(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        old = log.request(1)
        witness.add_checkpoint(old)
        log.append(version("window"))
        witness.add_checkpoint(log.request(2))
        error = refusal(witness, old)
        assert isinstance(error, OtherSize)
        assert error.size == 3
        assert witness.state.refusals == ()

    @pytest.mark.slow
    def test_mutants_of_a_request_sign_nothing_else(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        good, rng = log.request(1), np.random.default_rng(5)
        text, signed = log.checkpoint().text, 0
        for _ in range(2000):
            mutant = bytearray(good)
            for _ in range(rng.integers(1, 4)):
                at = int(rng.integers(len(mutant)))
                choice = int(rng.integers(3))
                mutant[at : at + (choice != 0)] = (
                    b"" if choice == 1 else bytes([good[rng.integers(len(good))]])
                )
            with contextlib.suppress(NotSigned):
                lines = witness.add_checkpoint(bytes(mutant))
                assert KEY.public(ECDSA).verify(text, lines[1])
                signed += 1
        assert (witness.state.size, witness.state.root) == (1 + bool(signed), log.tree.root(1 + bool(signed)))
        assert signed < 2

    def test_long_answer_of_a_server_does_not_fill_the_state(self, log, file, clock):
        def fail(path):
            raise NoteRefused("\xff" * 65_000)

        begin(log, file, clock)
        log.append(version("door"))
        witness = restart(log, file, clock, fetch=fail)
        assert refusal(witness, log.request(1)).status == 503
        assert file.path.stat().st_size < 20_000

    def test_largest_size(self, log, file, clock):
        witness = begin(log, file, clock)
        signed = LOG.sign_tree(2**32 - 1, bytes(32))
        assert refusal(witness, body(1, [bytes(32)] * 40, signed)).status == 422
        empty = PublicLog(log.folder.parent / "empty")
        (log.folder.parent / "other").mkdir()
        with StateFile(log.folder.parent / "other" / "state.json") as other:
            error = refusal(begin(empty, other, clock), body(0, [], signed))
        assert error.status == 503
        assert "cannot be read" in str(error)


class TestTwoHistories:
    def fork(self, log, *entries):
        fork = PublicLog(log.folder, log.entries[:1])
        fork.append(*entries)
        return fork

    def test_never_signs_both(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        witness.add_checkpoint(log.request(1))
        fork = self.fork(log, version("door", labels=["yours"]))
        error = refusal(witness, fork.request(2))
        assert error.status == 422
        assert "two histories of size 2" in str(error)
        fork.append(version("window"))
        assert refusal(witness, fork.request(2)).status == 422
        assert refusal(witness, fork.request(1)).status == 409
        with pytest.raises(NotSigned, match="not those of the tree of size 3"):
            witness.check()

    def test_keeps_the_evidence(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        witness.add_checkpoint(log.request(1))
        refusal(witness, self.fork(log, version("door", a=2)).request(2))
        state = restart(log, file, clock).state
        seen = [Checkpoint.parse(note) for note in (state.checkpoint, state.refusals[-1].checkpoint)]
        assert seen[0].size == seen[1].size
        assert seen[0].root != seen[1].root
        public = rule().log
        assert all(any(public.verify(note.text, line) for line in note.signatures) for note in seen)

    def test_log_set_back(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"), version("window"))
        witness.add_checkpoint(log.request(1))
        log.write("checkpoint", str(log.checkpoint(2)).encode())  # from a backup
        (log.folder / "tile/entries/000.p/3").unlink()
        with pytest.raises(NotSigned, match="went back from size 3 to 2"):
            witness.check()
        assert refusal(witness, log.request(2, 2)).size == 3
        clock.now += 2 * DAY_S
        restored = self.fork(log, version("door"))
        restored.append(version("window", a=1))
        assert refusal(witness, restored.request(2)).size == 3
        assert refusal(witness, restored.request(3)).status == 422

    def test_old_copy_of_the_checkpoint_is_no_accusation(self, log, file, clock):
        witness = begin(log, file, clock)
        stale = (log.folder / "checkpoint").read_bytes()
        log.append(version("door"))
        witness.check()
        log.write("checkpoint", stale)
        with pytest.raises(NotSigned, match="the log shows an old copy, of size 1: size 2 is signed"):
            witness.check()
        assert witness.state.refusals == ()

    def test_lost_state_is_noticed_in_the_log(self, log, file, clock):
        witness = begin(log, file, clock)
        backup = file.path.read_bytes()
        log.append(version("door"))
        witness.add_checkpoint(log.request(1))
        log.write("checkpoint", witness.state.checkpoint.encode())
        file.path.write_bytes(backup)
        old = restart(log, file, clock)
        with pytest.raises(NotSigned, match="an old copy"):
            old.accept(2)
        with pytest.raises(
            NotSigned, match="has signed size 2, but its state has 1: the state is an old copy"
        ):
            old.check()
        assert refusal(old, body(1, [], witness.state.checkpoint)).status == 403
        file.path.unlink()
        Witness.begin(KEY, rule(), file)
        new = restart(log, file, clock)
        with pytest.raises(NotSigned, match=r"restore the newest state, or accept .* --accept 2"):
            new.check()
        new.accept(2)
        assert new.check()[0].size == 2


class TestRefusedHeads:
    @pytest.fixture
    def witness(self, log, file, clock):
        """Return a witness that has refused size 3 for two versions of a question."""
        witness = begin(log, file, clock)
        log.append(version("door", a=1), version("door", a=2))
        assert "--accept 3" in str(refusal(witness, log.request(1)))
        return witness

    def other(self, log, *entries):
        """Return the log with another history behind its first entry, in the same folder."""
        return PublicLog(log.folder, [log.entries[0], *entries])

    def test_cannot_be_replaced(self, witness, log, file, clock):
        good = self.other(log, version("window"), version("roof"))
        for each in (witness, restart(log, file, clock)):
            error = refusal(each, good.request(1))
            assert (error.status, "two histories of size 3" in str(error)) == (422, True)
        with pytest.raises(NotSigned, match="two histories of size 3"):
            witness.check()

    def test_larger_tree_must_contain_them(self, witness, log):
        good = self.other(log, version("window"), version("roof"), version("wall"))
        assert "two histories of size 3" in str(refusal(witness, good.request(1)))
        log = self.other(log, *log.entries[1:], version("wall"))
        assert refusal(witness, log.request(1)).status == 403

    def test_both_signed_heads_are_evidence(self, witness, log, file, clock):
        refusal(witness, self.other(log, version("window"), version("roof")).request(1))
        state = restart(log, file, clock).state
        first, second = (Checkpoint.parse(note) for note in (*state.heads, state.refusals[-1].checkpoint))
        assert first.size == second.size
        assert first.root != second.root

    def test_accept_takes_only_what_was_refused(self, witness, log):
        self.other(log, version("door", a=66), version("door", a=67))
        with pytest.raises(NotSigned, match="two histories of size 3"):
            witness.accept(3)
        self.other(log, version("door", a=66), version("door", a=67), version("wall"))
        with pytest.raises(NotSigned, match="two histories of size 3"):
            witness.accept(3)
        again = self.other(log, *log.entries[1:], version("wall"))
        assert witness.accept(3) == {"home/door": 2}
        assert witness.state.heads == ()
        witness.add_checkpoint(again.request(3))

    def test_accept_waits_for_the_files_of_a_larger_one(self, witness, log):
        self.other(log, log.entries[1])
        with pytest.raises(NotSigned, match=r"has shown this witness size 3, but its files end at 2"):
            witness.accept(2)

    def test_unreadable_one_cannot_be_replaced(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        (log.folder / "tile/entries/000.p/2").unlink()
        assert refusal(witness, log.request(1)).status == 503
        assert "two histories" in str(refusal(witness, self.other(log, version("roof")).request(1)))

    def test_are_forgotten_once_signed(self, witness, log, clock):
        log.append(version("wall"))
        witness.accept(3)
        clock.now += DAY_S
        witness.add_checkpoint(log.request(3))
        assert witness.state.heads == ()

    def test_are_bounded_and_still_contained(self, witness, log, monkeypatch):
        monkeypatch.setattr("hushmote.fleet.witness.witness.MAX_HEADS", 2)
        for number in range(4):
            log.append(version("door", a=3 + number))
            refusal(witness, log.request(1))
        assert [Checkpoint.parse(note).size for note in witness.state.heads] == [6, 7]
        other = self.other(log, version("roof"), *log.entries[2:])
        assert "two histories" in str(refusal(witness, other.request(1)))


class TestLies:
    def test_entries_of_another_tree(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        log.write("tile/entries/000.p/2", tiles.encode_bundle([log.entries[0], version("door", a=1)]))
        error = refusal(witness, log.request(1))
        assert error.status == 403
        assert "are not those of the tree of size 2" in str(error)

    @pytest.mark.parametrize("damage", ["missing", "short", "few", "many", "oversized", "empty", "half"])
    def test_withheld_and_damaged_files(self, log, file, clock, damage):
        witness = begin(log, file, clock)
        log.append(version("door"), version("window"))
        path, good = tile_path("entries", 0, 3), tiles.encode_bundle(log.entries)
        damaged = {
            "short": good[:-1],
            "few": tiles.encode_bundle(log.entries[:2]),
            "many": good + tiles.encode_bundle([version()]),
            "oversized": bytes(2**24 + 2**17),
            "empty": b"",
            "half": good[: len(good) // 2],
        }
        if damage == "missing":
            (log.folder / path).unlink()
        else:
            log.write(path, damaged[damage])
        error = refusal(witness, log.request(1))
        assert (error.status, error.retry_after_s) == (503, AGAIN_S)
        assert "the log's files cannot be read" in str(error)
        assert witness.state.size == 1
        log.write(path, good)
        assert refusal(witness, log.request(1)) is error  # it does not read again at once
        clock.now += AGAIN_S
        witness.add_checkpoint(log.request(1))

    def test_gives_up_after_a_time(self, tmp_path, file, clock):
        log = PublicLog(tmp_path / "log", numbered(1))
        begin(log, file, clock)

        def fetch(path):
            clock.now += READ_S / 2 + 1
            return tiles.reader(str(log.folder))(path)

        witness = restart(log, file, clock, fetch=fetch)
        log.append(*numbered(1000, 1))
        error = refusal(witness, log.request(1))
        assert error.status == 503
        assert "25 s or 64 MB" in str(error)

    def test_complete_bundle_replaces_its_part(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        request = log.request(1)
        log.append(*numbered(300, 2))
        (log.folder / "tile/entries/000.p/2").unlink()
        witness.add_checkpoint(request)


class TestRule:
    def test_signs_a_change_a_day_later(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version(a=1))
        error = refusal(witness, log.request(1))
        assert (error.status, error.retry_after_s) == (503, DAY_S)
        clock.now += DAY_S
        witness.add_checkpoint(log.request(1))

    def test_refuses_a_hundred_variants_until_accepted(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(*(version(home=number) for number in range(100)))
        clock.now += DAY_S
        error = refusal(witness, log.request(1))
        assert error.status == 403
        assert "100 versions since the last signature" in str(error)
        assert "--accept 101" in str(error)
        clock.now += DAY_S
        assert refusal(witness, log.request(1)).status == 403
        assert witness.accept(101) == {"home/temp": 100}
        assert refusal(witness, log.request(1)).size == 101
        witness.add_checkpoint(log.request(101))
        log.append(version(a=-1))
        assert refusal(witness, log.request(101)).retry_after_s == DAY_S

    def test_clock_set_back_allows_no_more_changes(self, log, file, clock):
        witness = begin(log, file, clock)
        clock.now += DAY_S
        log.append(version(a=1), version("door"))
        witness.add_checkpoint(log.request(1))
        log.append(version(a=2))
        for now in (NOW, NOW - 300 * DAY_S, NOW + 2 * DAY_S - 1):
            clock.now = now
            assert refusal(restart(log, file, clock), log.request(3)).status == 503
        clock.now = NOW + 2 * DAY_S
        restart(log, file, clock).add_checkpoint(log.request(3))

    def test_clock_ahead_allows_one_change_and_then_none(self, log, file, clock):
        witness = begin(log, file, clock)
        clock.now += 30 * DAY_S
        log.append(version(a=1))
        lines = witness.add_checkpoint(log.request(1))
        assert int.from_bytes(lines[0].value[:8], "big") == NOW + 30 * DAY_S  # everyone can see it
        log.append(version(a=2))
        clock.now = NOW + HOUR_S
        assert refusal(witness, log.request(2)).retry_after_s == DAY_S
        clock.now = NOW + 20 * DAY_S
        assert refusal(restart(log, file, clock), log.request(2)).status == 503
        clock.now = NOW + 31 * DAY_S
        restart(log, file, clock).add_checkpoint(log.request(2))

    def test_person_resets_a_time_in_the_future(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door"))
        clock.now = NOW + 9000 * DAY_S
        witness.add_checkpoint(log.request(1))
        clock.now = NOW + 2 * DAY_S
        assert witness.accept(2) == {}
        assert (witness.state.time, witness.state.begun) == (clock.now, 1)
        log.append(version("door", a=1))
        assert refusal(witness, log.request(2)).retry_after_s == DAY_S
        clock.now += DAY_S
        witness.add_checkpoint(log.request(2))

    @pytest.mark.parametrize("now", [0, 1_700_000_000, 3_000_000_000])
    def test_impossible_clock_signs_nothing(self, log, file, clock, now):
        witness = begin(log, file, clock)
        clock.now = now
        assert "clock is wrong" in str(refusal(witness, log.request(1)))
        with pytest.raises(NotSigned, match="clock is wrong"):
            witness.accept(1)

    def test_withdrawals_pass_beside_nothing_else(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(withdrawal())
        witness.add_checkpoint(log.request(1))
        log.append(version(), withdrawal(), version())
        witness.add_checkpoint(log.request(2))

    def test_unlisted_fleet_needs_another_rule(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version(fleet="office"))
        error = refusal(witness, log.request(1))
        assert (error.status, "--accept" in str(error)) == (403, False)
        with pytest.raises(NotSigned, match="the fleet office is not in the witness's rule"):
            witness.accept(2)
        wider = restart(log, file, clock, rule=rule(("home", "office")))
        wider.add_checkpoint(log.request(1))

    def test_refusals_are_kept_and_bounded(self, log, file, clock):
        witness = begin(log, file, clock)
        for number in range(MAX_REFUSALS + 3):
            log.append(version(a=number))
            refusal(witness, log.request(1))
            refusal(witness, log.request(1))
        kept = restart(log, file, clock).state.refusals
        assert [record.size for record in kept] == list(range(5, 13))


class TestAccept:
    def test_some_of_the_entries(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door", a=1), version("door", a=2), version("window"))
        assert witness.accept(2) == {"home/door": 1}
        assert restart(log, file, clock).state.size == 2
        assert refusal(witness, log.request(2)).status == 503
        assert witness.accept(3) == {"home/door": 1}
        witness.add_checkpoint(log.request(3))

    @pytest.mark.parametrize("size", [0, 5, 2**32])
    def test_sizes_outside(self, log, file, clock, size):
        witness = begin(log, file, clock)
        log.append(version("door"))
        witness.add_checkpoint(log.request(1))
        with pytest.raises(NotSigned, match="the witness is at size 2 and the log at 2"):
            witness.accept(size)

    def test_entries_cannot_change_after(self, log, file, clock):
        witness = begin(log, file, clock)
        log.append(version("door", a=1), version("door", a=2))
        witness.accept(3)
        fork = PublicLog(log.folder, [log.entries[0], version("door", a=9), log.entries[2]])
        assert refusal(witness, fork.request(3)).status == 422


class TestBegin:
    def test_checks_the_history(self, tmp_path, file, clock):
        log = PublicLog(tmp_path / "log", [version(a=number) for number in range(300)])
        Witness.begin(KEY, rule(), file)
        witness = restart(log, file, clock)
        error = refusal(witness, log.request(0))
        assert error.status == 403
        assert "home/temp has 300 versions since the last signature" in str(error)
        assert "--accept 300" in str(error)
        assert witness.accept(300) == {"home/temp": 300}
        assert (witness.state.begun, witness.state.size) == (300, 300)
        log.append(version())
        assert refusal(witness, log.request(300)).retry_after_s == DAY_S

    def test_signs_a_history_of_single_versions(self, log, file, clock):
        log.append(version("door"), withdrawal("door"), version("door"))
        Witness.begin(KEY, rule(), file)
        witness = restart(log, file, clock)
        witness.add_checkpoint(log.request(0))
        assert (witness.state.begun, witness.state.size) == (0, 4)

    def test_begins_only_once(self, log, file, clock):
        begin(log, file, clock)
        with fails("already exists: move it away", StateError):
            begin(log, file, clock)

    def test_needs_no_log(self, file, tmp_path, clock):
        Witness.begin(KEY, rule(), file)
        witness = restart(PublicLog(tmp_path / "log"), file, clock)
        assert (witness.state.size, witness.state.records) == (0, {})
        (tmp_path / "log/checkpoint").unlink()
        with pytest.raises(NoteRefused, match="cannot be read"):
            witness.accept(1)
        assert witness.state.is_new


class TestConcurrency:
    @pytest.mark.slow
    def test_a_hundred_requests_at_once(self, log, file, clock):
        witness = begin(log, file, clock)
        for number in range(100):
            log.append(version(f"q{number}"))
        results, late, start = [], [], threading.Barrier(100)

        def ask(size):
            start.wait()
            try:
                witness.add_checkpoint(log.request(1, size))
                results.append(size)
            except OtherSize:
                late.append(size)

        threads = [threading.Thread(target=ask, args=(size,)) for size in range(2, 102)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [witness.state.size]
        assert len(late) == 99
        assert restart(log, file, clock).state.root == log.tree.root(witness.state.size)


class TestEdge:
    def test_has_the_roots_of_the_tree(self):
        edge, tree = Edge(), Tree()
        for number in range(600):
            assert edge.root == tree.root()
            edge = Edge(edge.size, edge.hashes)
            leaf = number.to_bytes(32, "big")
            edge.append(leaf)
            tree.append(leaf)

    def test_refuses_another_number_of_hashes(self):
        for size, count in ((0, 1), (1, 0), (3, 1), (-1, 0)):
            with pytest.raises(ValueError, match="at its edge"):
                Edge(size, [bytes(32)] * count)


def test_witness_is_of_one_log(log, file, clock):
    begin(log, file, clock)
    with fails("is of the witness", StateError):
        Witness(SecretKey("b", b"\1" * 32, b"\1" * 32), rule(), tiles.reader(str(log.folder)), file)
