"""Errors in a store's URL are one line without its password, and new files belong to their owner."""

import json
import os
import stat
from pathlib import Path

import pytest
from command_line import DOOR, hushmote
from postgres import Cluster
from serve_process import add_fleet, served, with_setting

from hushmote.server.store import Store, StoreError
from hushmote.server.store.backup import backup

START, TAIL = "sEcReT", "tAiL"
LONELY = "127.0.0.1:1"  # no server listens here

MALFORMED_URLS = [
    f"postgresql://u:{START}@127.0.0.1:port/db",
    f"postgresql://u:{START}@127.0.0.1:99999/db",
    f"postgresql://u:{START}@127.0.0.1:1:1/db",
    f"postgresql://u:{START}@127.0.0.1:²/db",
    f"postgresql://u:{START}@[::1/db",
    f"postgresql://u:{START}",  # without a host
    f"postgresql://u:123{START}/db",
    f"postgresql://u:{START}@{TAIL}@127.0.0.1/db",
    f"postgresql://u:{START}@{TAIL}:x@127.0.0.1/db",
    f"postgresql://u:{START}@k/{TAIL}@127.0.0.1/db",
    f"postgresql://u:{START}@k?{TAIL}@127.0.0.1/db",
    f"postgresql://u:{START}@{LONELY}/db",
    f"postgresql://u@{LONELY}/db?password={START}",
    f"postgresql://u@{LONELY}/db?sslpassword={START}",
    f"postgresql://u:{START}@{LONELY}/db?plugin=x",
    f"postgresql://u:{START}@{LONELY}/db?nonsense=x",
    f"postgresql+asyncpg://u:{START}@{LONELY}/db",
    f"oracle://u:{START}@{LONELY}/db",
    f"u:{START}@{LONELY}/db",
    f"sqlite://u:{START}@{LONELY}/db",
    "sqlite:///x.sqlite?timeout=abc",
]


def is_discreet(line: str) -> bool:
    """Return whether a text is one line without a password or a traceback."""
    return line.strip().count("\n") == 0 and not any(x in line for x in (START, TAIL, "invalid literal"))


class TestPort:
    def test_invalid_port_is_named(self, tmp_path: Path):
        for port in ("port", "99999", "0"):
            with pytest.raises(StoreError, match="port must be 1 to 65535"):
                Store(f"postgresql://u:{START}@127.0.0.1:{port}/db")


class TestPath:
    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
    def test_store_needs_a_file(self, url: str):
        with pytest.raises(StoreError, match="a store needs a file: write sqlite:///path"):
            Store(url)


PASSWORD = "p@ss:w/o\\rd"


@pytest.fixture
def guarded(postgres: Cluster, postgres_url: str):
    """Create a database whose owner needs a password; return its URL without one."""
    name = postgres_url.rpartition("/")[2]
    hba = postgres.execute("SHOW hba_file")[0][0]
    before = Path(hba).read_text()
    postgres.execute(f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute(f'ALTER DATABASE "{name}" OWNER TO guarded')
    Path(hba).write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{before}")
    postgres.execute("SELECT pg_reload_conf()")
    try:
        yield postgres_url.replace("postgres@", "guarded@")
    finally:
        Path(hba).write_text(before)
        postgres.execute("SELECT pg_reload_conf()")
        postgres.execute(f'ALTER DATABASE "{name}" OWNER TO postgres')
        postgres.execute("REASSIGN OWNED BY guarded TO postgres", name)
        postgres.execute("DROP OWNED BY guarded", name)
        postgres.execute("DROP ROLE guarded")


class TestPassword:
    @pytest.mark.parametrize("url", MALFORMED_URLS)
    @pytest.mark.parametrize("use", [Store, lambda url: backup(url, Path("copy"))], ids=("open", "backup"))
    def test_malformed_url_is_one_line_without_it(self, url, use, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(StoreError) as error:
            use(url)
        assert is_discreet(str(error.value))
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("command", ["status --store", "store upgrade", "store merge", "serve --store"])
    def test_no_command_prints_it(self, command, tmp_path: Path):
        more = ["copy"] if command.endswith("merge") else []
        assert is_discreet(hushmote(*command.split(), MALFORMED_URLS[7], *more, cwd=tmp_path, expect=1))

    def test_missing_option_name_does_not_print_it(self, tmp_path: Path):
        for command in ("status", "serve"):
            line = hushmote(command, f"postgresql://u:{START}@{TAIL}@h/db", cwd=tmp_path, expect=2)
            assert START not in line
            assert TAIL not in line

    def test_json_log_hides_it(self, tmp_path: Path):
        url = f"postgresql://u:{START}@{LONELY}/db?password={TAIL}"
        impatient = with_setting("store.postgresql", "PATIENCE_S", 0.1)
        options = {"environment": {"HUSHMOTE_STORE": url, "HUSHMOTE_LOG_FORMAT": "json"}, "script": impatient}
        with served(**options) as process:
            assert process.wait() == 1
        waiting, ended = process.log().splitlines()
        assert "waiting for at most 0 s" in json.loads(waiting)["event"]
        assert "Connection refused" in json.loads(ended)["event"]
        for line in (waiting, ended):
            assert START not in line
            assert TAIL not in line

    def test_serve_rejects_password_on_the_command_line(self, tmp_path: Path):
        for url in (f"postgresql://u:x@{LONELY}/db", f"postgresql://u@{LONELY}/db?password=x"):
            line = hushmote("serve", "--store", url, cwd=tmp_path, expect=1)
            assert "every user of this machine can read a command line" in line

    def test_comes_from_a_file_or_the_environment(self, guarded, tmp_path, monkeypatch):
        for name in ("PGPASSFILE", "PGPASSWORD"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        with pytest.raises(StoreError, match="no password supplied"):
            Store(guarded)
        escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
        file = tmp_path / "pgpass"
        file.write_text(f"*:*:*:guarded:{escaped}\n")
        file.chmod(0o600)
        with Store(f"{guarded}?passfile={file}") as store:
            add_fleet(store)
            assert str(file) not in store.where
        monkeypatch.setenv("PGPASSFILE", str(file))
        Store(guarded, create=False).close()
        file.chmod(0o644)  # libpq rejects a file that others can read
        with pytest.raises(StoreError, match="no password supplied"):
            Store(guarded, create=False)
        monkeypatch.delenv("PGPASSFILE")
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        Store(guarded, create=False).close()
        monkeypatch.setenv("PGPASSWORD", START)
        with pytest.raises(StoreError, match="password authentication failed") as error:
            Store(guarded, create=False)
        assert START not in str(error.value)


def modes(folder: Path) -> dict[str, int]:
    return {
        p.name: stat.S_IMODE(p.stat().st_mode)
        for p in folder.rglob("*")
        if ".sqlite" in p.name and p.is_file()
    }


@pytest.fixture
def door(tmp_path: Path) -> Path:
    (tmp_path / "door.toml").write_text(DOOR)
    return tmp_path


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest):
    before = os.umask(request.param)
    yield
    os.umask(before)


class TestFileMode:
    def test_new_files_are_private_whatever_the_umask(self, umask, door: Path):
        path = door / "new.sqlite"
        with Store(f"sqlite:///{path}") as store:
            add_fleet(store)
            assert modes(door) == {"new.sqlite": 0o600, "new.sqlite-wal": 0o600, "new.sqlite-shm": 0o600}
        for name in ("a", "b"):
            add = f"experiment add door.toml --fleet home --keys --store sqlite:///{name}.sqlite"
            hushmote(*add.split(), cwd=door)
        hushmote("store", "backup", "sqlite:///a.sqlite", "copy.sqlite", cwd=door)
        hushmote("store", "merge", "sqlite:///a.sqlite", "sqlite:///b.sqlite", cwd=door)
        assert set(modes(door).values()) == {0o600}
        assert {"a.sqlite", "b.sqlite", "copy.sqlite"} <= set(modes(door))

    def test_existing_file_keeps_its_mode(self, tmp_path: Path):
        path = tmp_path / "s.sqlite"
        Store(f"sqlite:///{path}").close()
        path.chmod(0o640)
        Store(f"sqlite:///{path}").close()
        assert modes(tmp_path) == {"s.sqlite": 0o640}
