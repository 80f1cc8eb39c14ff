"""Dask workers: processes on this machine, or those of a remote scheduler.

Dask reruns a part whose worker died, and replaces the worker. Importing this module requires the extra
`dask`.
"""

import gc
import logging
import re
import signal
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker
from typing import Any, cast

import cloudpickle
from dask import config
from distributed import Client, Future, KilledWorker, LocalCluster, Security, WorkerPlugin, as_completed

from ..server.wire.experiments import FOLDERS
from .worker_pool import Workers, WorkersError

_ADDRESS = re.compile(r"(tcp|tls)://([^\s/:\[\]]+|\[[0-9a-f:]+\]):[0-9]{1,5}")
CONNECT_S = 5
_MAX_GREETING = 1 << 20  # bytes
WORKERS_S = 10
START_S = 300  # maximum time for processes to start on a busy machine
# A local cluster's web servers cannot be turned off, so they are left without pages. By default, Dask gives
# up a worker that takes 15 s to restart, as on a busy machine, and the work would stop with the last worker.
# Measurements for a dashboard are made rarely or not at all because they took a tenth of the time by
# interrupting the work 50 times a second. Results are small, so nothing needs to be spilled from memory.
_LOCAL = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.deploy.lost-worker-timeout": f"{START_S} s",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.tick.cycle": "10 s",
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.monitor-interval": "1 s",
}
# Packages that determine the results, and the number of version components that must match.
_SAME = {"hushmote": 9, "numpy": 2, "python": 2}


class _GcFreeze(WorkerPlugin):
    """Plugin that stops the garbage collector from repeatedly scanning all objects that Dask has loaded."""

    def setup(self, worker: object) -> None:
        gc.freeze()


def _workers(client: Client, where: str) -> Workers:
    """Return a client's workers; `where` names the scheduler in error messages."""

    def run(
        function: Callable[..., Any], parts: Sequence[Any], common: tuple[Any, ...]
    ) -> Iterator[tuple[int, Any]]:
        # As a task, the data common to all parts is sent once to each worker, including replacements. It is
        # sent as bytes, which the scheduler does not interpret.
        on_workers = client.submit(cloudpickle.loads, cloudpickle.dumps(common), pure=False)
        futures: dict[Future, int] = {}
        for number, part in enumerate(parts):
            work = cloudpickle.dumps((function, part, tuple(FOLDERS)))
            futures[client.submit(_call, work, on_workers, pure=False, priority=-number)] = number
        try:
            for future, result in as_completed(list(futures), with_results=True, loop=client.loop):
                if future.cancelled():
                    raise WorkersError(f"{where} is gone, and its results are lost")
                yield futures.pop(future), result
        except KilledWorker:
            raise WorkersError(
                "one part of the work killed every worker that ran it: it needs more memory than a worker "
                "has, or something else kills them"
            ) from None

    return Workers(run)


def _call(work: bytes, common: tuple[Any, ...]) -> Any:
    """Run a part, with the folders that are searched for custom mechanisms."""
    function, part, FOLDERS[:] = cloudpickle.loads(work)
    return function(part, *common)


@contextmanager
def local(count: int) -> Iterator[Workers]:
    """Yield worker processes on this machine that other users cannot reach."""
    with (
        _silence(),
        tempfile.TemporaryDirectory(prefix="hushmote-") as folder,
        config.set(_LOCAL),
        closing(_start_scheduler(folder)) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(_GcFreeze())
        cluster.scale(count)
        try:
            client.wait_for_workers(1, timeout=START_S)
        except TimeoutError:
            raise WorkersError(f"no worker process has started within {START_S} s") from None
        yield _workers(client, "the Dask scheduler in this process")


def _start_scheduler(folder: str) -> LocalCluster:
    """Start a scheduler in this process, without workers, and shield it from Ctrl-C in the terminal.

    The thread that starts workers inherits this thread's signal mask and passes it on to them. If it also
    had to start Python's resource tracker, it would lose the mask.
    """
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return LocalCluster(
            n_workers=0,
            processes=True,
            threads_per_worker=1,
            host="127.0.0.1",
            security=True,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            local_directory=folder,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def remote(address: str) -> Iterator[Workers]:
    """Yield the workers of the scheduler at an address; tls:// uses the certificates in Dask's configuration.

    Raises:
        WorkersError: If the scheduler does not answer within seconds, has no workers, or they run another
            version of Hushmote.
    """
    if not _ADDRESS.fullmatch(address) or not 0 < int(address.rpartition(":")[2]) < 65_536:
        raise WorkersError(
            f"{address!r} is neither a number of processes nor a Dask scheduler's address; write "
            "tcp://10.0.0.5:8786, or tls://"
        )
    if address.startswith("tls") and Security().get_connection_args("client")["ssl_context"] is None:
        raise WorkersError(
            "tls:// needs certificates; set their paths in Dask's configuration, distributed.comm.tls"
        )
    where = f"the Dask scheduler at {address}"
    if address.startswith("tcp") and not _may_be_dask(address):
        raise WorkersError(f"{address} is not a Dask scheduler; give a scheduler's port")
    with _silence():
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except OSError as e:
            raise WorkersError(f"{where} does not answer: {_reason(e)}") from None
        with client:
            try:
                client.wait_for_workers(1, timeout=WORKERS_S)
            except TimeoutError:
                raise WorkersError(
                    f"{where} has no workers; start some with `dask worker {address}`"
                ) from None
            _check(cast("Mapping[str, Any]", client.get_versions(packages=["hushmote"])))
            yield _workers(client, where)


def _may_be_dask(address: str) -> bool:
    """Return False if the server at the address does not begin with the size of a small frame.

    Dask's client accepts any bytes as a size, and cannot be stopped once it waits for that many.
    """
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as connection:
            connection.settimeout(CONNECT_S)
            size = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return True  # the client reports the error
    return len(size) == 8 and int.from_bytes(size, "little") < _MAX_GREETING


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _check(versions: Mapping[str, Any]) -> None:
    """Raise WorkersError if a worker would fail or compute different numbers."""
    client_packages = versions["client"]["packages"]
    workers = {f"the worker {address}": host for address, host in versions["workers"].items()}
    for name, host in (("Dask's scheduler", versions["scheduler"]), *workers.items()):
        for package, parts in _SAME.items():
            expected = ".".join(client_packages[package].split(".")[:parts])
            version = ".".join((host["packages"].get(package) or "").split(".")[:parts])
            if not version:
                raise WorkersError(f"{name} has no {package}; install {package} {expected} there")
            if version != expected:
                raise WorkersError(f"{name} has {package} {version}, not {expected}; numbers would differ")


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Dask's log and warnings out of the user's terminal; errors that matter are raised."""
    dask_names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    loggers = {logging.getLogger(name) for name in dask_names}
    before = {logger: logger.level for logger in loggers}
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(dask|distributed)\b")
            yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
