"""The Debian packages from which MicroPython is built: apt's client with an archive in a folder."""

import functools
import gzip
import hashlib
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "firmware_tests"))

from emulation import debian  # pyright: ignore[reportMissingImports]


class Archive:
    """A signed Debian archive with the source package and the i386 package `thing`."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "archive"
        self.home = folder / "gnupg"
        self.home.mkdir(mode=0o700)
        self._gpg("--quick-generate-key", "archive@example.org", "default", "default", "never")
        self.keyring = folder / "archive.gpg"
        self._gpg("--output", str(self.keyring), "--export")
        pool = self.root / "pool"
        pool.mkdir(parents=True)
        (pool / "thing_1.tar.gz").write_bytes(gzip.compress(b"source"))
        files = self._sums("Checksums-Sha256", pool / "thing_1.tar.gz")
        (pool / "thing_1.dsc").write_text(f"Format: 3.0 (native)\nSource: thing\nVersion: 1\n{files}")
        both = self._sums("Checksums-Sha256", pool / "thing_1.dsc", pool / "thing_1.tar.gz")
        self.sources = f"Package: thing\nFormat: 3.0 (native)\nVersion: 1\nDirectory: pool\n{both}"
        control = folder / "package" / "DEBIAN" / "control"
        control.parent.mkdir(parents=True)
        fields = "Package: thing\nVersion: 1\nArchitecture: i386\nMaintainer: nobody\nDescription: a thing\n"
        control.write_text(fields)
        built = pool / "thing_1_i386.deb"
        command = ["dpkg-deb", "--build", str(control.parents[1]), str(built)]
        subprocess.run(command, check=True, capture_output=True)
        entry = f"Filename: pool/{built.name}\nSize: {built.stat().st_size}\nSHA256: {_sha256(built)}\n"
        self.binaries = fields + entry
        self.publish()

    def publish(self, between: str = "") -> None:
        """Write both indexes; between: text appended after signing, as in the middle of a mirror's sync."""
        suite = self.root / "dists" / debian.SUITE
        texts = {"main/source/Sources": self.sources, "main/binary-i386/Packages": self.binaries}
        for name, text in texts.items():
            (suite / name).parent.mkdir(parents=True, exist_ok=True)
            (suite / name).write_text(text)
        sums = "".join(f" {_sha256(suite / name)} {(suite / name).stat().st_size} {name}\n" for name in texts)
        head = f"Suite: {debian.SUITE}\nCodename: {debian.SUITE}\nArchitectures: i386\nComponents: main\n"
        (suite / "Release").write_text(f"{head}Date: Sat, 01 Nov 2025 00:00:00 UTC\nSHA256:\n{sums}")
        self._gpg("--clearsign", "--output", str(suite / "InRelease"), str(suite / "Release"))
        if between:
            (suite / between).write_text(texts[between] + "\nPackage: newer\n")

    def _gpg(self, *arguments: str) -> None:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--passphrase", "", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def _sums(self, field: str, *paths: Path) -> str:
        return f"{field}:\n" + "".join(f" {_sha256(p)} {p.stat().st_size} {p.name}\n" for p in paths)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    if missing := [tool for tool in ("gpg", "apt-get", "dpkg-deb") if shutil.which(tool) is None]:
        pytest.skip("no " + ", ".join(missing))
    debian_archive = Archive(tmp_path)
    handler = functools.partial(_Quiet, directory=str(debian_archive.root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(debian, "mirror", lambda: f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(debian, "KEYRING", debian_archive.keyring)
        monkeypatch.setattr(debian, "time", SimpleNamespace(sleep=lambda _: None))  # in this module only
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield debian_archive
        server.shutdown()
        thread.join()
    subprocess.run(["gpgconf", "--homedir", str(debian_archive.home), "--kill", "all"], check=False)


@pytest.mark.slow
def test_missing_index_does_not_block_sources(archive: Archive):
    archive.publish(between="main/binary-i386/Packages")
    assert {path.suffix for path in debian.packages("source", "thing").iterdir()} == {".dsc", ".gz"}
    with pytest.raises(debian.CannotInstall, match="unexpected size"):
        debian.packages("i386", "thing:i386")


@pytest.mark.slow
def test_retries_until_mirror_has_synced(archive: Archive, monkeypatch: pytest.MonkeyPatch):
    archive.publish(between="main/binary-i386/Packages")
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            archive.publish()

    monkeypatch.setattr(debian, "time", SimpleNamespace(sleep=pause))  # other threads sleep as well
    packages = debian.packages("i386", "thing:i386")
    assert [path.name for path in packages.iterdir()] == ["thing_1_i386.deb"]
    assert len(pauses) == 2


def test_caches_downloads(archive: Archive):
    first = debian.packages("source", "thing")
    shutil.rmtree(archive.root)
    assert debian.packages("source", "thing") == first
    assert (first / "thing_1.dsc").exists()
