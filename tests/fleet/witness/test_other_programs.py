"""Our log and witness with programs by other people: litewitness, Tessera and torchwood.

`make log-programs` installs them; without them, the tests are skipped.
"""

import base64
import contextlib
import subprocess
import threading
import time

import log_programs
import pytest
from public_log import DAY_S, KEY, LOG, ORIGIN, PublicLog, begin, body, post, serving, version, withdrawal
from running_aggregator import WAIT_S, until

from hushmote.fleet.witness.app import WitnessApp
from hushmote.fleet.witness.state import StateFile
from hushmote.server.log.note import (
    COSIGNATURE,
    ECDSA,
    ED25519,
    Checkpoint,
    PublicKey,
    parse_signatures,
    valid_signatures,
)
from hushmote.server.service.bounded_http import BoundedServer
from hushmote.simulator.broker import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(log_programs.missing()), reason=log_programs.missing()),
]


def program(*arguments, **options):
    return subprocess.Popen(
        [log_programs.FOLDER / "log_programs", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


class TestLitewitness:
    """A public witness, which only checks that the log never changes."""

    def test_signs_our_log(self, tmp_path):
        log = PublicLog(tmp_path / "log", [version()])
        port = free_port()
        with log_programs.litewitness(port, ORIGIN, str(LOG.public(ED25519))) as text:
            key = PublicKey.parse(text)
            assert key.kind == COSIGNATURE
            old = 0
            for size in (1, 2, 3, 255, 256, 257, 600):
                log.append(*(withdrawal(f"q{number}") for number in range(old, size - (old == 0))))
                status, lines = post(port, log.request(old))
                assert status == 200
                head = log.checkpoint()
                signed = Checkpoint(head.origin, head.size, head.root, parse_signatures(lines))
                assert valid_signatures(signed, [key]).keys() == {key}
                old = log.tree.size

    def test_refuses_what_ours_refuses(self, tmp_path):
        log = PublicLog(tmp_path / "log", [version()])
        fork = PublicLog(tmp_path / "fork", [version(a=1)])
        port = free_port()
        with log_programs.litewitness(port, ORIGIN, str(LOG.public(ED25519))):
            assert post(port, log.request(0))[0] == 200
            for each in (log, fork):
                each.append(version("door"))
            assert post(port, log.request(0)) == (409, "1\n")
            assert post(port, fork.request(1))[0] == 422
            assert post(port, body(1, [], log.checkpoint()))[0] == 422
            assert post(port, body(3, [], log.checkpoint()))[0] == 400
            assert post(port, log.request(1))[0] == 200


class TestReader:
    """Go's own note package, torchwood's client and Google's verifier of cosignatures."""

    @pytest.mark.parametrize("size", [1, 255, 256, 257, 700])
    def test_reads_our_log_and_our_cosignature(self, tmp_path, size):
        entries = [version("temp"), *(withdrawal(f"q{number}") for number in range(1, size))]
        log = PublicLog(tmp_path / "log", entries)
        with StateFile(tmp_path / "state.json") as file:
            witness = begin(log, file, time.time)
            witness.add_checkpoint(log.request(size))
        log.write("checkpoint", witness.state.checkpoint.encode())
        with serving(log.folder) as url:
            reader = program("read", url, LOG.public(ED25519), KEY.public(COSIGNATURE))
            out, error = reader.communicate(timeout=WAIT_S)
        assert reader.returncode == 0, error
        assert list(map(bytes.fromhex, out.split())) == entries


@contextlib.contextmanager
def tessera(folder, port):
    """Run a Tessera log in a folder, which the witness at this port must sign."""
    seed = base64.b64encode(bytes([ED25519]) + LOG.ed25519).decode()
    secret = f"PRIVATE+KEY+{ORIGIN}+{LOG.public(ED25519).key_id.hex()}+{seed}"
    address = f"http://127.0.0.1:{port}"
    log = program("tessera", folder, secret, address, KEY.public(COSIGNATURE), stdin=subprocess.PIPE)
    killer = threading.Timer(WAIT_S, log.kill)
    killer.start()
    try:
        yield log
    finally:
        killer.cancel()
        log.kill()
        log.communicate()


class TestTessera:
    """Google's log, whose own client asks our witness."""

    def test_our_witness_signs_its_log(self, tmp_path):
        (tmp_path / "log").mkdir()
        log = PublicLog(tmp_path / "ours")
        log.folder = tmp_path / "log"
        clock = Ahead()
        entries = [version("temp"), version("door"), *(withdrawal(f"q{number}") for number in range(260))]
        with StateFile(tmp_path / "state.json") as file:
            witness = begin(log, file, clock)
            with (
                BoundedServer("127.0.0.1", 0, WitnessApp(witness)) as server,
                tessera(log.folder, server.port) as process,
            ):
                assert process.stdin is not None
                assert process.stdout is not None
                for part in (entries[:2], entries[2:255], entries[255:]):
                    print(*(entry.hex() for entry in part), "", sep="\n", file=process.stdin, flush=True)
                    assert process.stdout.readline(), process.communicate()[1]
                until(lambda: witness.state.size == len(entries), "it signs every entry")
                head = Checkpoint.parse(witness.state.checkpoint)
                keys = LOG.public(ED25519), KEY.public(COSIGNATURE), KEY.public(ECDSA)
                assert valid_signatures(head, keys).keys() == set(keys)
                # A second version on the same day: Tessera cannot publish it.
                print(version("door", a=1).hex(), file=process.stdin, flush=True)
                until(lambda: witness.state.refusals, "it refuses the second version")
                assert "home/door changes again within 24 hours" in witness.state.refusals[-1].reason
                clock.ahead_s = DAY_S
                until(lambda: witness.state.size == len(entries) + 1, "it signs a day later")


class Ahead:
    """A clock that a test sets ahead."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s
