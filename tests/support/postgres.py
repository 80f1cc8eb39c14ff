"""A real PostgreSQL for tests, with a cluster in a temporary folder and on a free port of 127.0.0.1.

Debian's packages install the executables outside PATH. PostgreSQL refuses to run as root, so root runs
everything as the package's user `postgres`.
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
    """Return the folder with the newest PostgreSQL's executables, or None."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    path = shutil.which("postgres")
    return folders[-1].parent if folders else Path(path).parent if path else None


def needs_postgres() -> Path:
    """Return the folder with PostgreSQL's executables; if there is none, skip the test, or fail it in CI."""
    folder = find_postgres()
    if folder is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PostgreSQL is not installed")
    return folder


def needs_pgbouncer() -> str:
    """Return the pgbouncer executable; if there is none, skip the test, or fail it in CI."""
    # Debian's package installs it in a folder that is only in root's PATH.
    path = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("pgbouncer is not installed")
    return path


def is_part(table: str | None) -> bool:
    """Return whether a store's table is a partition of the dedupe table."""
    return table is not None and table.startswith("dedupe_")


class Cluster:
    """A PostgreSQL server with its own folder, as a context manager.

    durable: keep committed data through a power cut, as a production server does; otherwise fsync is off,
    which is ten times as fast and still survives SIGKILL. settings: additional or overriding PostgreSQL
    settings.
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
        """Run a PostgreSQL executable as the test's own user; prefix: a command that switches users."""
        command = [*prefix, str(self._programs / program), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder)
        assert result.returncode == 0, result.stderr

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": ""}
        settings |= {"max_connections": 40, "shared_buffers": "16MB", "fsync": ("off", "on")[self._durable]}
        options = [f"--{name}={value}" for name, value in (settings | self._settings).items()]
        # Run the server itself rather than pg_ctl, to know its process id for any user.
        command = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), *options]
        user = _SUPERUSER if self._as else None
        self._alive, other_end = os.pipe()  # each of its processes holds the other end
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
                pass_fds=(other_end,),
            )
        os.close(other_end)
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
        """Return the server's process id, or None if it is not running."""
        return None if self._process is None else self._process.pid

    @property
    def folder(self) -> Path:
        """Return its data folder."""
        return self._folder / "data"

    def kill(self) -> None:
        """Kill the server with SIGKILL, and wait until its children have exited as well."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it cleanly, closing all connections."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        """Kill it and restart it on the same port, so that it recovers from its transaction log."""
        self.kill()
        self.start()

    def hold_at_the_start(self) -> None:
        """Keep the next start() in recovery until promote(), refusing connections with SQLSTATE 57P03."""
        (self._folder / "data" / "standby.signal").touch()
        self._settings["hot_standby"] = "off"

    def refuses_for_now(self) -> bool:
        """Return whether it is running but still refuses connections."""
        return PGconn.ping(self.dsn("postgres").encode()) == Ping.REJECT

    def promote(self) -> None:
        """End the recovery that hold_at_the_start() began."""
        self.run("pg_ctl", "promote", f"--pgdata={self._folder / 'data'}", prefix=self._as)

    def ask_for_passwords(self, user: str) -> None:
        """Require a password from a user."""
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.execute("SELECT pg_reload_conf()")

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(_START_S)
        self._process = None
        # No other server can start while a killed server's child still uses its shared memory.
        assert select.select([self._alive], [], [], _START_S)[0], "a PostgreSQL process did not exit"
        os.close(self._alive)

    def dsn(self, database: str, user: str = _SUPERUSER) -> str:
        """Return a database's address in psycopg's format."""
        return f"host=127.0.0.1 port={self.port} dbname={database} user={user}"

    def url(self, database: str, user: str = _SUPERUSER, port: int | None = None) -> str:
        """Return a database's URL for a Store; port: the port of a proxy in front of the server."""
        return f"postgresql+psycopg://{user}@127.0.0.1:{port or self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple]:
        """Run one statement as the superuser, outside a transaction, and return its rows, if any."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template1") -> str:
        """Create a database as a copy of another and return its name."""
        self._databases += 1
        name = f"store{self._databases}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY wal_log")
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop(self, name: str) -> None:
        """Drop a database even if clients are connected to it."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


class Pgbouncer:
    """A pgbouncer in transaction mode in front of a cluster, as a context manager.

    It can be killed and restarted on its port. sessions: the size of the server connection pool.
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
            "server_round_robin": 1,  # consecutive transactions use different sessions
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
        """Start it and wait until it accepts connections."""
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
        """Kill it with SIGKILL; its open transactions are rolled back."""
        self._process.kill()
        self._process.wait(_START_S)

    def url(self, database: str, user: str = _SUPERUSER, port: int | None = None) -> str:
        """Return a database's URL through pgbouncer; port: the port of a proxy in front of it."""
        return self._cluster.url(database, user, port or self.port)


# Restores the state of a new database.
_EMPTY = """
DROP SCHEMA public CASCADE;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""


@contextmanager
def fresh_database(cluster: Cluster) -> Iterator[str]:
    """Provide the URL of an empty database that nothing else uses."""
    # Reuse emptied databases, since a new one costs a 7 MB copy.
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
    """Provide the session's PostgreSQL, with fsync off; skip if it is not installed, or fail in CI."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def pgbouncer(postgres: Cluster) -> Iterator[Pgbouncer]:
    """Provide a pgbouncer for the session's PostgreSQL; skip if it is not installed, or fail in CI."""
    with Pgbouncer(postgres) as bouncer:
        yield bouncer


@pytest.fixture
def postgres_url(postgres: Cluster) -> Iterator[str]:
    """Provide the URL of an empty database, postgresql+psycopg://..., dropped after the test."""
    with fresh_database(postgres) as url:
        yield url
