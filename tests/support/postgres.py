"""A real PostgreSQL for tests: a cluster in a temporary folder, on a free port of 127.0.0.1.

Debian's packages put its programs where no PATH looks. PostgreSQL refuses to run as root: then everything is
done as the user `postgres` that the package made.
"""

from __future__ import annotations

import getpass
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import PGconn, Ping

from hushmote.simulator.broker import free_port

_START_S = 60.0
_SUPERUSER = "postgres"


def find_postgres() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest of several, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    path = shutil.which("postgres")
    return found[-1].parent if found else Path(path).parent if path else None


def needs_postgres() -> Path:
    """Return the folder of PostgreSQL's programs; skips the test where there are none, fails it in CI."""
    folder = find_postgres()
    if folder is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PostgreSQL is not installed")
    return folder


def needs_pgbouncer() -> str:
    """Return the program of pgbouncer; skips the test where there is none, fails it in CI."""
    # Debian's package puts it where only root's PATH looks.
    path = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("pgbouncer is not installed")
    return path


def is_part(table: str | None) -> bool:
    """Whether a table of a store is one of those that the dedupe table is divided into."""
    return table is not None and table.startswith("dedupe_")


class Cluster:
    """A PostgreSQL server with a folder of its own, as a context manager.

    durable: keep what was committed through a power cut, as a server in production does; without it fsync is
    off, which a kill of its processes does not notice and which makes databases ten times as fast. settings:
    more of PostgreSQL's, or others.
    """

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self._programs = needs_postgres()
        self._durable = durable
        self._settings = dict(settings or {})
        self._as = ["runuser", "-u", _SUPERUSER, "--"] if getpass.getuser() == "root" else []
        self._databases = 0
        self.free: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def __enter__(self) -> Cluster:
        self._folder = Path(tempfile.mkdtemp(prefix="hushmote-postgres-"))
        if self._as:
            shutil.chown(self._folder, _SUPERUSER)
        options = ["--auth=trust", "--encoding=UTF8", "--no-sync"]
        where = f"--pgdata={self._folder / 'data'}"
        self.run("initdb", where, f"--username={_SUPERUSER}", *options, prefix=self._as)
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, program: str, *arguments: str, prefix: Sequence[str] = ()) -> None:
        """Run one of PostgreSQL's programs to its end, as the test's own user; prefix: as someone else."""
        command = [*prefix, str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Return once it accepts connections."""
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": ""}
        settings |= {"max_connections": 40, "shared_buffers": "16MB", "fsync": ("off", "on")[self._durable]}
        options = [f"--{name}={value}" for name, value in (settings | self._settings).items()]
        # The server itself, not pg_ctl: its process id is then known, whoever it runs as.
        command = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), *options]
        user = _SUPERUSER if self._as else None
        self._alive, held = os.pipe()  # each of its processes has the other end
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                user=user,
                group=user,
                extra_groups=[] if user else None,
                pass_fds=(held,),
            )
        os.close(held)
        end = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                running = self._process.poll() is None and time.monotonic() < end
                assert running, (self._folder / "log").read_text(errors="replace")
                time.sleep(0.05)

    @property
    def pid(self) -> int | None:
        """The server's process id, None where it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def folder(self) -> Path:
        """The folder of its data."""
        return self._folder / "data"

    def kill(self) -> None:
        """SIGKILL the server, and return once its children, which notice, are gone as well."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in good order; connections are cut."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        """kill() and start() again on the same port: recovery from its log of transactions."""
        self.kill()
        self.start()

    def hold_at_the_start(self) -> None:
        """Make the next start() last until promote(): connections are refused with SQLSTATE 57P03."""
        (self._folder / "data" / "standby.signal").touch()
        self._settings["hot_standby"] = "off"

    def refuses_for_now(self) -> bool:
        """Whether it is there and takes no connections yet."""
        return PGconn.ping(self.dsn("postgres").encode()) == Ping.REJECT

    def promote(self) -> None:
        """End what hold_at_the_start() began."""
        self.run("pg_ctl", "promote", f"--pgdata={self._folder / 'data'}", prefix=self._as)

    def ask_for_passwords(self, user: str) -> None:
        """Let a user in with a password only."""
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.execute("SELECT pg_reload_conf()")

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(_START_S)
        self._process = None
        # While a child of a killed server still works, no other server starts: its memory is in use.
        assert select.select([self._alive], [], [], _START_S)[0], "a process of PostgreSQL does not end"
        os.close(self._alive)

    def dsn(self, database: str, user: str = _SUPERUSER) -> str:
        """Return the address of a database as psycopg takes it."""
        return f"host=127.0.0.1 port={self.port} dbname={database} user={user}"

    def url(self, database: str, user: str = _SUPERUSER, port: int | None = None) -> str:
        """Return the URL of a database as a Store takes it; port: of a proxy before the server."""
        return f"postgresql+psycopg://{user}@127.0.0.1:{port or self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple]:
        """Run one statement as the superuser, outside of a transaction; returns its rows, if it has any."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template1") -> str:
        """Make a fresh database as a copy of another; returns its name."""
        self._databases += 1
        name = f"store{self._databases}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log")
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


class Pgbouncer:
    """A pgbouncer in transaction mode before a cluster, as a context manager: a session a transaction.

    It can be killed and started again on its port. sessions: how many it has with the server.
    """

    def __init__(self, cluster: Cluster, *, sessions: int = 4) -> None:
        self._program = needs_pgbouncer()
        self._cluster = cluster
        self._sessions = sessions
        self.port = free_port()

    def __enter__(self) -> Pgbouncer:
        self._folder = Path(tempfile.mkdtemp(prefix="hushmote-pgbouncer-"))
        self._folder.chmod(0o755)
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": self._sessions,
            "min_pool_size": self._sessions,
            "server_round_robin": 1,  # a transaction gets another session than the one before
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        address = f"* = host=127.0.0.1 port={self._cluster.port} user={_SUPERUSER}"
        (self._folder / "ini").write_text("\n".join(["[databases]", address, "[pgbouncer]", *lines, ""]))
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Return once it accepts connections."""
        user = _SUPERUSER if getpass.getuser() == "root" else None  # it refuses to run as root
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._program, str(self._folder / "ini")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        end = time.monotonic() + _START_S
        while PGconn.ping(f"host=127.0.0.1 port={self.port} dbname=postgres".encode()) != Ping.OK:
            running = self._process.poll() is None and time.monotonic() < end
            assert running, (self._folder / "log").read_text(errors="replace")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL it; transactions that it carried are undone."""
        self._process.kill()
        self._process.wait(_START_S)

    def url(self, database: str, user: str = _SUPERUSER, port: int | None = None) -> str:
        """Return the URL of a database behind it; port: of a proxy before it."""
        return self._cluster.url(database, user, port or self.port)


# As a new database has it.
_EMPTY = """
DROP SCHEMA public CASCADE;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""


@contextmanager
def fresh_database(cluster: Cluster) -> Iterator[str]:
    """Provide the URL of an empty database of its own."""
    # Emptied and lent again: a new database is a copy of 7 MB.
    name = cluster.free.pop() if cluster.free else cluster.create()
    try:
        yield cluster.url(name)
    finally:
        cluster.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        cluster.execute(_EMPTY, name)
        cluster.execute(f"ALTER DATABASE {name} RESET ALL")
        cluster.free.append(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """Provide the session's PostgreSQL, fsync off; skip where there is none, or fail in CI."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def pgbouncer(postgres: Cluster) -> Iterator[Pgbouncer]:
    """Provide a pgbouncer before the session's PostgreSQL; skip where there is none, or fail in CI."""
    with Pgbouncer(postgres) as bouncer:
        yield bouncer


@pytest.fixture
def postgres_url(postgres: Cluster) -> Iterator[str]:
    """Provide the URL of an empty database, postgresql+psycopg://..., dropped after the test."""
    with fresh_database(postgres) as url:
        yield url
