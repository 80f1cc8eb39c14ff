"""Simulations divided among workers: equal results, lost workers and errors."""

import contextlib
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
import worker_parts
from command_line import hushmote
from dask import config
from distributed import Client, Security
from experiments import ROOM, experiment_json
from running_aggregator import WAIT_S, until

from hushmote.device.ldp_client import ExperimentRefused
from hushmote.planning.devices import MICRO, Plan, best_design
from hushmote.planning.expected_error import Question
from hushmote.simulator import dask_workers, faithful_parts
from hushmote.simulator.broker import free_port
from hushmote.simulator.faithful import Faults
from hushmote.simulator.faithful_parts import RealClients
from hushmote.simulator.population import parse
from hushmote.simulator.worker_pool import THIS_PROCESS, Workers, WorkersError
from hushmote.simulator.workers import workers
from hushmote.studies import lifetime, plan_check
from hushmote.studies.frame import RunContext
from hushmote.studies.lifetime import LifetimeParameters
from hushmote.studies.ranges_run import QUICK, cells, default_series, run_cell

SUPPORT = Path(worker_parts.__file__).parent


@pytest.fixture(scope="module")
def pool() -> Iterator[Workers]:
    """Provide two worker processes, of which a part of the work may kill at most one."""
    with config.set({"distributed.scheduler.allowed-failures": 1}), workers(2) as two:
        yield two


def fleet(pool: Workers, advance: Callable[[float], object] = lambda more: None) -> list[object]:
    """Simulate 240 real clients in 6 parts, with all faults."""
    faults = Faults(offline=0.2, duplicate=0.1, late=0.1, reboot=0.1)
    clients = RealClients(experiment_json(every=2), parse("weights:7:3"), faults, 3, repeatable=True)
    reporting, reports = faithful_parts.run(clients, 240, 5, True, pool, advance, part_devices=40)
    return [reports.codes.tolist(), reports.readings.tolist(), reporting]


def years(pool: Workers) -> object:
    two = {way: lifetime.WAYS[way] for way in ("once, 31 days", "basic")}
    less: dict[str, Any] = {"LIFETIMES": (8,), "WAYS": two, "SPLIT_DOMAINS": (16,)}
    with mock.patch.multiple(lifetime, **less):
        return lifetime.run(
            LifetimeParameters(devices=(10_000,), quick=True), RunContext(3, pool)
        ).figure_data


def check(pool: Workers) -> object:
    question = Question("range")
    row = plan_check.plan_row(
        Plan(question, 2_000, best_design(16, MICRO, question), "error", None), fleets=60
    )
    assert isinstance(row, plan_check.CheckRow)
    return plan_check.measure(row, np.random.SeedSequence(4), pool)


def children() -> list[psutil.Process]:
    """Return this process's worker processes."""
    ours = psutil.Process().children(recursive=True)
    # process_iter() skips a process that ends in the meantime.
    processes = psutil.process_iter(["cmdline"])
    return [p for p in processes if p in ours and "spawn_main" in " ".join(p.info["cmdline"] or ())]


class TestLostWorker:
    @pytest.mark.slow
    @pytest.mark.long
    def test_changes_no_number(self, pool: Workers):
        before = {p.pid for p in children()}
        killed: list[int] = []

        def kill(part: int) -> None:
            if not killed:
                killed.append(min(before))
                os.kill(killed[0], signal.SIGKILL)

        results = pool.map(worker_parts.product, range(30), 7, 0.1, advance=kill)
        assert list(results) == [7 * part for part in range(30)]
        assert killed
        until(lambda: len({p.pid for p in children()} - before) == 1, "a replacement worker")
        assert fleet(pool) == fleet(THIS_PROCESS)

    @pytest.mark.slow
    @pytest.mark.long
    def test_repeatedly_ended_by_one_part_is_one_line(self, pool: Workers):
        with pytest.raises(
            WorkersError, match="one part of the work killed every worker that ran it: it needs"
        ):
            list(pool.map(worker_parts.deadly, range(6), 3))
        assert list(pool.map(worker_parts.deadly, range(6), 9)) == list(range(6))

    @pytest.mark.slow
    @pytest.mark.long
    def test_raises_a_parts_error(self, pool: Workers):
        beyond = experiment_json(epsilon=5_000_000, budget={"rule": "sum", "cap": 5_000_000})
        clients = RealClients(beyond, parse("weights:7:3"), Faults(), 1, repeatable=True)
        with pytest.raises(ExperimentRefused, match="epsilon is above the policy's 4000000"):
            faithful_parts.run(clients, 40, 1, True, pool, lambda more: None)


# --- The command line ----------------------------------------------------------------------------------


class TestOption:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("command", "line"),
        [
            (("simulate", "room.toml", "--workers", "2"), "only real clients (--faithful) are divided"),
            (("simulate", "room.toml", "--faithful", "--workers", "room"), "'room' is neither a number of"),
            (("simulate", "room.toml", "--faithful", "--workers", "-3"), "workers must be 1 or more, not -3"),
            (("study", "lifetime", "--quick", "--workers", "tls://127.0.0.1:1"), "tls:// needs certificates"),
            (("study", "lifetime", "--quick", "--workers", "tcp://127.0.0.1:99999"), "is neither"),
            (("study", "lifetime", "--quick", "--workers", "99999"), "each worker is a process"),
        ],
    )
    def test_rejects_unusable_workers(self, tmp_path: Path, command: tuple[str, ...], line: str):
        (tmp_path / "room.toml").write_text(ROOM, encoding="utf-8")
        assert line in hushmote(*command, cwd=tmp_path, expect=1)


class TestCluster:
    @pytest.mark.slow
    @pytest.mark.long
    def test_is_not_reachable_from_outside(self, pool: Workers):
        surroundings = list(pool.map(worker_parts.surroundings, range(8)))
        assert {threads for _, threads in surroundings} == {"1"}
        processes = [psutil.Process(), *children()]
        assert {pid for pid, _ in surroundings} <= {p.pid for p in processes}
        listening = [c for p in processes for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert len(listening) >= 3
        assert {c.laddr.ip for c in listening} == {"127.0.0.1"}
        clients: list[Any] = [c for c in Client._instances if c.status == "running"]
        (address,) = {c.scheduler.address for c in clients}
        with pytest.raises(OSError, match="TLS certificate does not match"):
            Client(address, security=Security.temporary(), timeout=60, set_as_default=False)

    def test_is_one_process_without_dask(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        for alone in (workers(), workers(1), workers(cores=True)):
            with alone as single:
                assert [pid for pid, _ in single.map(worker_parts.surroundings, [1])] == [os.getpid()]

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
    def test_ends_with_its_command(self, tmp_path: Path, ending: signal.Signals):
        (tmp_path / "room.toml").write_text(ROOM, encoding="utf-8")
        command = ("simulate", "room.toml", "--faithful", "--devices", "1000000", "--workers", "2")
        run = subprocess.Popen(
            [sys.executable, "-m", "hushmote", *command],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C goes to its whole process group
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        ours = psutil.Process(run.pid)
        # Two workers and Python's resource tracker.
        until(lambda: len(ours.children(recursive=True)) == 3, "the workers")
        children = ours.children(recursive=True)
        os.killpg(run.pid, ending) if ending == signal.SIGINT else run.kill()
        error = run.communicate(timeout=WAIT_S)[1]
        if ending == signal.SIGINT:
            assert (run.returncode, error) == (130, "hushmote: stopped by Ctrl-C\n")
        ended, alive = psutil.wait_procs(children, timeout=WAIT_S)
        assert (len(ended), alive) == (3, [])


# --- A scheduler elsewhere -----------------------------------------------------------------------------


@contextlib.contextmanager
def dask_process(*arguments: str, path: Path = SUPPORT) -> Iterator[subprocess.Popen[bytes]]:
    """Run `dask scheduler` or `dask worker` as a process."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{arguments[0]}", *arguments[1:], "--no-dashboard"]
    environment = os.environ | {"PYTHONPATH": str(path)}
    quiet = subprocess.DEVNULL
    # Not in a clone, which may have its own metadata.
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment, cwd=path) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def connected(address: str) -> Iterator[Workers]:
    """Provide the workers of a scheduler while both are starting."""
    with contextlib.ExitStack() as stack:
        pools: list[Workers] = []

        def is_connected() -> bool:
            try:
                pools.append(stack.enter_context(workers(address)))
            except WorkersError as e:
                if not re.search("does not answer|has no workers", str(e)):
                    raise
            return bool(pools)

        until(is_connected, "a scheduler with workers")
        yield pools[0]


class TestResults:
    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.parametrize("study", [fleet, years, check])
    def test_are_equal_for_any_number_of_workers(self, pool: Workers, study: Callable[[Workers], object]):
        assert study(pool) == study(THIS_PROCESS)

    @pytest.mark.slow
    @pytest.mark.long
    def test_are_equal_in_a_single_threaded_pool(self, pool: Workers):
        """Least squares on two threads differ in the last digits, so these studies need at least a pool."""
        wanted = [cell for cell in cells(QUICK, default_series, 1) if cell.cost < 1_000][:4]
        assert len(wanted) == 4
        for count in (1, 2):
            with workers(count, cores=True) as pool:
                results = [pickle.dumps(result) for result in pool.map(run_cell, wanted)]
                (process, threads), *_ = pool.map(worker_parts.surroundings, [1, 2])
            assert (process != os.getpid(), threads) == (True, "1")
            assert results == [pickle.dumps(result) for result in pool.map(run_cell, wanted)]

    @pytest.mark.slow
    @pytest.mark.long
    def test_keep_order_and_count_progress_once(self, pool: Workers):
        for engine in (pool, THIS_PROCESS):
            progress: list[int] = []
            results = engine.map(worker_parts.product, range(20), 3, advance=progress.append)
            assert list(results) == [3 * part for part in range(20)]
            assert sorted(progress) == list(range(20))
        shares: list[float] = []
        fleet(pool, shares.append)
        assert sum(shares) == pytest.approx(1)

    @pytest.mark.slow
    def test_are_equal_on_a_schedulers_worker(self):
        port = free_port()
        address = f"tcp://127.0.0.1:{port}"
        worker = ("worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny")
        with (
            dask_process("scheduler", "--host", "127.0.0.1", "--port", str(port)),
            dask_process(*worker),
            connected(address) as pool,
        ):
            assert fleet(pool) == fleet(THIS_PROCESS)


class TestScheduler:
    @pytest.mark.slow
    def test_rejects_another_server_at_its_address(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            greeting = b'INFO {"server_id":"N"}\r\n'  # a NATS server's greeting
            Thread(target=lambda: server.accept()[0].sendall(greeting), daemon=True).start()
            with pytest.raises(WorkersError, match="is not a Dask scheduler"):
                workers(f"tcp://127.0.0.1:{port}").__enter__()

    @pytest.mark.slow
    @pytest.mark.long
    def test_workers_are_checked_used_and_missed(self, tmp_path: Path):
        (tmp_path / "hushmote-9.9.dist-info").mkdir()
        (tmp_path / "hushmote-9.9.dist-info" / "METADATA").write_text("Name: hushmote\nVersion: 9.9\n")
        port = free_port()
        address = f"tcp://127.0.0.1:{port}"
        (tmp_path / "room.toml").write_text(ROOM, encoding="utf-8")
        command = [
            "simulate",
            "room.toml",
            "--faithful",
            "--devices",
            "60",
            "--calls",
            "2",
            "--seed",
            "2",
            "--json",
        ]
        worker = ("worker", address, "--host", "127.0.0.1", "--nthreads", "1")
        with dask_process("scheduler", "--host", "127.0.0.1", "--port", str(port)) as scheduler:
            refused = r"the worker tcp://\S+ has hushmote 9\.9, not \S+; numbers would differ"
            with (
                dask_process(*worker, "--no-nanny", path=tmp_path),
                pytest.raises(WorkersError, match=refused),
                connected(address),
            ):
                pass
            with dask_process(*worker, "--no-nanny"), connected(address) as pool:
                assert fleet(pool) == fleet(THIS_PROCESS)
                alone = hushmote(*command, cwd=tmp_path)
                assert json.loads(alone)["reports"] > 10
                assert hushmote(*command, "--workers", address, cwd=tmp_path) == alone
                with pytest.raises(WorkersError, match=f"the Dask scheduler at {address} is gone"):
                    list(
                        pool.map(
                            worker_parts.product, range(500), 2, 0.1, advance=lambda part: scheduler.kill()
                        )
                    )
        with (
            pytest.raises(WorkersError, match=f"the Dask scheduler at {address} does not answer"),
            workers(address),
        ):
            pass

    @pytest.mark.slow
    def test_rejects_workers_with_other_package_versions(self):
        client = {"packages": {"python": "3.11.7.final.0", "numpy": "2.4.6", "hushmote": "0.1.0"}}

        def checked(**changed: str | None) -> None:
            remote = {"packages": client["packages"] | changed}
            dask_workers._check({"client": client, "scheduler": client, "workers": {"tcp://a:1": remote}})
            dask_workers._check({"client": client, "scheduler": remote, "workers": {}})

        checked()
        checked(python="3.11.9.final.0", numpy="2.4.7")
        for package, has, said in (
            ("hushmote", None, "no hushmote; install hushmote 0.1.0 there"),
            ("hushmote", "0.1.1", "hushmote 0.1.1, not 0.1.0; numbers would differ"),
            ("python", "3.12.7.final.0", "python 3.12, not 3.11; numbers would differ"),
            ("numpy", "2.3.6", "numpy 2.3, not 2.4; numbers would differ"),
        ):
            with pytest.raises(WorkersError, match=re.escape(f"the worker tcp://a:1 has {said}")):
                checked(**{package: has})
        with pytest.raises(WorkersError, match="Dask's scheduler has no hushmote"):
            dask_workers._check({"client": client, "scheduler": {"packages": {}}, "workers": {}})
