"""`hushmote witness` as people run it: keys, the first start, a log that asks, acceptance and mistakes."""

import contextlib
import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest
from command_line import hushmote
from public_log import KEY, LOG, RULE_FILE, PublicLog, post, version
from refusals import Refusal, refusals
from running_aggregator import WAIT_S

from hushmote.fleet.witness.state import StateFile
from hushmote.server.log.note import (
    COSIGNATURE,
    ECDSA,
    ED25519,
    Checkpoint,
    PublicKey,
    SecretKey,
    parse_signatures,
)
from hushmote.simulator.broker import free_port

OPTIONS = ("--log", "log", "--key", "w.json", "--rule", "rule.toml", "--state", "state.json")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a log, a key and a rule."""
    (tmp_path / "rule.toml").write_text(RULE_FILE)
    (tmp_path / "w.json").write_text(str(KEY))
    (tmp_path / "w.json").chmod(0o600)
    PublicLog(tmp_path / "log", [version(), version("door")])
    return tmp_path


def continued(folder, *entries):
    """Append to the folder's log, which is read again, and return it."""
    log = PublicLog(folder / "log", [version(), version("door")])
    for entry in entries:
        log.append(entry)
    return log


@contextlib.contextmanager
def running(folder, *arguments):
    """Run the command as a process, and kill it at the end if it is still running."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "hushmote", "witness", *OPTIONS, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean,
    )
    killer = threading.Timer(WAIT_S, process.kill)
    killer.start()
    try:
        yield process
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


class TestKey:
    def test_creates_a_key_that_only_its_owner_reads(self, tmp_path):
        text = hushmote("witness", "--create-key", "home.example/w", "--key", "w.json", cwd=tmp_path)
        file = tmp_path / "w.json"
        key = SecretKey.parse(file.read_text())
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert key.name == "home.example/w"
        for public in (str(key.public(COSIGNATURE)), str(key.public(ECDSA)), key.public(ECDSA).value.hex()):
            assert public in text
        assert key.ed25519.hex() not in text + key.p256.hex()

    def test_as_json(self, tmp_path):
        text = hushmote("witness", "--create-key", "w", "--key", "w.json", "--json", cwd=tmp_path)
        keys = [PublicKey.parse(line) for line in json.loads(text)["for_logs"]]
        assert [key.kind for key in keys] == [COSIGNATURE, ECDSA]
        assert json.loads(text)["for_boards"] == keys[1].value.hex()

    def test_never_replaces_a_key(self, folder):
        text = hushmote("witness", "--create-key", "w", "--key", "w.json", cwd=folder, expect=1)
        assert "w.json already exists" in text


class TestServe:
    def test_signs_for_a_log_and_stops(self, folder):
        text = hushmote("witness", *OPTIONS, "--new-state", cwd=folder)
        assert text == ("state.json is written. The rule applies to all entries of the log.\n")
        log, port = continued(folder, version("window")), free_port()
        with running(folder, "--http", f"127.0.0.1:{port}") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            status, lines = post(port, log.request(0))
            assert status == 200
            assert KEY.public(ECDSA).verify(log.checkpoint().text, parse_signatures(lines)[1])
            log.append(version("window", a=1))
            assert post(port, log.request(3))[0] == 503
            other = Refusal(" ".join(("witness", *OPTIONS)), "another witness uses")
            other.check(folder)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
            out, error = process.communicate()
        assert out == ""
        assert [line.split(maxsplit=3)[3] for line in error.splitlines()] == [
            "signed size 3",
            "not signed: home/window changes again within 24 hours: at most 1 a day",
        ]

    def test_survives_sigkill_between_signatures(self, folder):
        hushmote("witness", *OPTIONS, "--new-state", cwd=folder)
        log, size = continued(folder), 0
        for number in range(2):
            port = free_port()
            with running(folder, "--http", f"127.0.0.1:{port}") as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                log.append(version(f"q{number}"))
                assert post(port, log.request(size))[0] == 200
                process.kill()
            size = log.tree.size


class TestWatch:
    def test_prints_what_it_signs(self, folder):
        hushmote("witness", *OPTIONS, "--new-state", cwd=folder)
        with running(folder, "--every", "1s") as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.endswith("size 2: signed\n")
            lines = process.stdout.readline() + process.stdout.readline()
            signed = Checkpoint.parse((folder / "log" / "checkpoint").read_text())
            assert KEY.public(COSIGNATURE).verify(signed.text, parse_signatures(lines)[0])
            assert process.stdout.readline().endswith("size 2: nothing new\n")
            continued(folder, version("temp", a=1))
            refused = next(line for line in process.stdout if "nothing new" not in line)
            assert "size 2: NOT SIGNED: home/temp changes again within 24 hours: at most 1 a day" in refused
            (folder / "log" / "checkpoint").unlink()
            refused = next(line for line in process.stdout if "cannot be read" in line)
            assert "NOT SIGNED: log/checkpoint cannot be read: No such file" in refused
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0

    def test_as_json(self, folder):
        hushmote("witness", *OPTIONS, "--new-state", cwd=folder)
        with running(folder, "--json") as process:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
        assert (line["size"], line["refused"], len(line["signatures"])) == (2, None, 2)


class TestAccept:
    def test_accepts_what_a_person_has_read(self, folder):
        hushmote("witness", *OPTIONS, "--new-state", cwd=folder)
        log = continued(folder, *(version("door", a=number) for number in range(3)))
        text = hushmote("witness", *OPTIONS, "--accept", "2", cwd=folder)
        assert text == (
            "home/door: 1 version, 1 of them accepted now\n"
            "home/temp: 1 version, 1 of them accepted now\n"
            "accepted the log up to size 2; the rule applies to every later entry\n"
        )
        text = hushmote("witness", *OPTIONS, "--accept", "5", "--json", cwd=folder)
        questions = {"home/door": {"versions": 4, "new": 3}}
        expected = {"size": log.tree.size, "questions": questions, "time_was_ahead": None}
        assert json.loads(text) == expected

    def test_says_that_a_time_was_ahead(self, folder):
        hushmote("witness", *OPTIONS, "--new-state", cwd=folder)
        with StateFile(folder / "state.json") as file:
            state = file.load(str(LOG.public(ED25519)), str(KEY.public(COSIGNATURE)))
            file.save(dataclasses.replace(state, time=2_650_000_000))
        text = hushmote("witness", *OPTIONS, "--accept", "2", cwd=folder)
        assert text.startswith("the last signature was at 2053-12-22 07:06 UTC, ahead of this clock: ")
        assert "ahead" not in hushmote("witness", *OPTIONS, "--accept", "2", cwd=folder)


class TestRefusals:
    @refusals(
        ("", "--log, --key, --rule, --state are missing"),
        ("--log l --key k --rule r", "--state is missing"),
        ("--create-key w", "--create-key goes with --key FILE alone"),
        ("--create-key w --key k --log l", "--create-key goes with --key FILE alone"),
        ("--create-key a+b --key k", "name is printable ASCII without spaces and +, not 'a+b'"),
        ("--log l --key k --rule r --state s --http 1:1 --accept 4", "exclude each other"),
        ("--log l --key k --rule r --state s --every soon", "a duration must be like 10min"),
        ("--log l --key k --rule r --state s", "cannot read k: No such file"),
        ("--log l --key k --rule r --state s", "key file is JSON with name, ed25519", {"k": "{}"}),
        ("--log l --key k --rule r --state s", "cannot read the rule r", {"k": str(KEY)}),
        ("--log l --key k --rule r --state s", "r: origin is missing", {"k": str(KEY), "r": ""}),
        (
            "--log l --key k --rule r --state none/s",
            "cannot use none/s",
            {"k": str(KEY), "r": RULE_FILE},
        ),
        command="witness",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path):
        refusal.check(tmp_path)

    def test_missing_state_is_never_a_new_one(self, folder):
        text = hushmote("witness", *OPTIONS, cwd=folder, expect=1, writes=True)
        assert "create it with --new-state if the witness is new. If it was lost, begin again" in text

    def test_key_that_others_can_read(self, folder):
        (folder / "w.json").chmod(0o644)
        Refusal(
            " ".join(("witness", *OPTIONS)),
            "w.json can be read by other users, who could sign with it: chmod 600 w.json",
        ).check(folder)

    def test_log_of_another_key(self, folder):
        stranger = SecretKey(LOG.name, b"\7" * 32, b"\2" * 32)
        log = continued(folder)
        log.write("checkpoint", str(log.checkpoint(secret=stranger)).encode())
        hushmote("witness", *OPTIONS, "--new-state", cwd=folder)
        text = hushmote("witness", *OPTIONS, "--accept", "2", cwd=folder, expect=1, writes=True)
        assert "it is not signed by example.org/questions+" in text
