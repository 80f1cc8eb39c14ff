"""A witness's memory survives a kill at every step of a write, a full disk and a second process."""

import dataclasses
import errno
import json
import os
import subprocess
import sys

import pytest
from kills import kill_at
from public_log import KEY, LOG, NOW, version
from refusals import fails

from hushmote.fleet.witness.rule import Record
from hushmote.fleet.witness.state import Refusal, State, StateError, StateFile
from hushmote.server.log.note import COSIGNATURE, ED25519, SecretKey
from hushmote.server.log.tree import Edge, leaf_hash

KEYS = (str(LOG.public(ED25519)), str(KEY.public(COSIGNATURE)))
STEPS = ("open", "write", "fsync", "stat", "chown", "chmod", "replace", "unlink")


def state_of(size, **fields):
    edge = Edge()
    for number in range(size):
        edge.append(leaf_hash(version(a=number)))
    records = {("home", "temp"): Record('{"ä":"\U0001f600"}'.encode(), True, 3, (NOW,), (NOW, NOW + 1), 7)}
    refusals = (Refusal(NOW, size + 1, "why", "note"),)
    given = {"records": records, "refusals": refusals, "checkpoint": "a\n—", "time": NOW} | fields
    return State(*KEYS, 0, size, tuple(edge.hashes), **given)


@pytest.fixture
def file(tmp_path):
    with StateFile(tmp_path / "state.json") as file:
        yield file


class TestFile:
    @pytest.mark.parametrize("size", [0, 1, 7, 8, 300])
    def test_reads_what_it_wrote(self, file, size):
        file.save(state_of(size))
        assert file.load(*KEYS) == state_of(size)
        assert file.path.stat().st_mode & 0o777 == 0o600

    def test_missing_state_names_the_option_and_its_meaning(self, file):
        with fails("no state .*: create it with --new-state .* a second history", StateError):
            file.load(*KEYS)

    def test_refuses_every_damage(self, file):
        file.save(state_of(3))
        good = file.path.read_bytes()
        values = json.loads(good)
        damaged = [b"", b"{}", b"[]", b"null", b"\xff", good[:-20], good[1:], good.replace(b"true", b"false")]
        damaged += [good.replace(b'"versions": 3', b'"versions": 2'), b"[" * 100_000]
        damaged += [json.dumps(values | {name: None}).encode() for name in values]
        for data in damaged:
            file.path.write_bytes(data)
            with fails("is damaged: move it away, and begin again with --new-state", StateError):
                file.load(*KEYS)

    @pytest.mark.parametrize("at", [0, 1])
    def test_refuses_the_state_of_another(self, file, at):
        file.save(state_of(3))
        other = SecretKey("other", b"\5" * 32, b"\6" * 32).public((ED25519, COSIGNATURE)[at])
        keys = [str(other) if at == number else key for number, key in enumerate(KEYS)]
        with fails(f"is of the {('log', 'witness')[at]} .*, not other", StateError):
            file.load(*keys)


class TestWrites:
    @pytest.mark.slow
    def test_killed_at_every_step_it_is_old_or_new(self, file, monkeypatch):
        old, new = state_of(3), state_of(200)
        file.save(old)

        def save(count):
            for name in STEPS:
                call = getattr(os, name)

                def counted(*arguments, call=call, **options):
                    count()
                    result = call(*arguments, **options)
                    count()
                    return result

                setattr(os, name, counted)
            file.save(new)

        step, seen = 0, []
        while kill_at(step, save):
            seen.append(file.load(*KEYS).size)
            file.save(old)
            step += 1
        assert step >= 12
        assert seen == sorted(seen)
        assert {3, 200} == set(seen)
        assert file.load(*KEYS) == new

    @pytest.mark.parametrize("call", ["fsync", "replace", "open"])
    def test_full_disk_leaves_the_old_state(self, file, monkeypatch, call):
        file.save(state_of(3))

        def fail(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(OSError, match="No space"):
                file.save(state_of(4))
        assert file.load(*KEYS) == state_of(3)
        file.save(state_of(4))
        assert file.load(*KEYS).size == 4


class TestLock:
    def test_only_one_process_uses_a_state(self, file, tmp_path):
        file.save(state_of(3))
        code = (
            "from hushmote.fleet.witness.state import *; import sys; StateFile(Path(sys.argv[1])).__enter__()"
        )
        link = tmp_path / "folder"
        link.symlink_to(tmp_path, target_is_directory=True)
        for path in (file.path, link / "state.json"):
            run = subprocess.run(
                [sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=60
            )
            assert "another witness uses" in run.stderr
            assert run.returncode
        file.__exit__()
        with StateFile(file.path) as again:
            assert again.load(*KEYS).size == 3

    def test_lock_survives_a_replaced_file(self, file):
        file.save(state_of(3))
        file.save(dataclasses.replace(state_of(4)))
        with fails("another witness uses", StateError), StateFile(file.path):
            pass

    def test_folder_that_is_missing(self, tmp_path):
        with fails("cannot use .*: No such file", StateError), StateFile(tmp_path / "none" / "state.json"):
            pass
