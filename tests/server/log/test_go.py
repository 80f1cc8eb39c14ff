"""Go's own implementation of transparency logs (golang.org/x/mod/sumdb) reads an export."""

import shutil
import subprocess
from pathlib import Path

import pytest
from log_witness import LOG, TestWitness

from hushmote.server.log.entry import experiment_entry
from hushmote.server.log.note import ED25519
from hushmote.server.store.log import StoredLog
from hushmote.server.store.log_export import export

SOURCE = Path("rigs/tlog")
GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")


@pytest.fixture(scope="module")
def tlog(tmp_path_factory):
    """Return a function that runs the program and returns its exit status and output."""
    if GO is None:
        pytest.skip("Go is not installed")
    program = tmp_path_factory.mktemp("tlog") / "tlog"
    built = subprocess.run([GO, "build", "-o", program, "."], cwd=SOURCE, capture_output=True, text=True)
    if built.returncode and "dial tcp" in built.stderr + built.stdout:
        pytest.skip("golang.org/x/mod cannot be downloaded")
    assert built.returncode == 0, built.stderr

    def run(folder, key=LOG):
        command = [program, folder, str(key.public(ED25519))]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, (done.stdout + done.stderr).strip()

    return run


@pytest.fixture
def exported(store, tmp_path):
    """Return a function that adds entries to a log and returns its export."""
    log, folder = StoredLog(store), tmp_path / "export"

    def add(size):
        since = log.tree.size
        entries = [experiment_entry("home", f"e{n}", b"x" * (n % 300)) for n in range(since, size)]
        log.append(LOG, lambda _: entries, 100)
        export(log, folder)
        return folder

    return add


@pytest.mark.slow
class TestGo:
    def test_accepts_an_export_of_any_size(self, tlog, exported):
        for size in (1, 2, 3, 7, 8, 255, 256, 257, 511, 512, 513, 70_000):
            assert tlog(exported(size)) == (0, f"example.org/questions {size}")

    def test_accepts_a_cosigned_checkpoint(self, tlog, store, tmp_path):
        log = StoredLog(store)
        log.append(LOG, lambda _: [experiment_entry("home", "e", b"{}")], 100)
        log.add_signatures(1, TestWitness().secret.cosign(log.checkpoints[1].text, 1_800_000_000), 100)
        export(log, tmp_path / "export")
        assert tlog(tmp_path / "export") == (0, "example.org/questions 1")

    def test_refuses_what_we_refuse(self, tlog, exported):
        folder = exported(300)
        bundle = folder / "tile/entries/001.p/44"
        data = bundle.read_bytes()
        bundle.write_bytes(data[:-1] + b"y")
        assert tlog(folder)[0] == 1
        bundle.write_bytes(data)
        assert tlog(folder, TestWitness("example.org/questions").secret)[0] == 1
