"""Workers of Dask: processes of this machine, or those of a scheduler elsewhere.

Dask runs a part again whose worker died, and puts another worker in its place. Importing this module needs
the extra `dask`.
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
from .crew import Workers, WorkersError

_ADDRESS = re.compile(r"(tcp|tls)://([^\s/:\[\]]+|\[[0-9a-f:]+\]):[0-9]{1,5}")
CONNECT_S = 5
_MOST_GREETING = 1 << 20  # bytes
WORKERS_S = 10
START_S = 300  # of processes on a machine that is busy
# The servers for pages of a local cluster cannot be left out, but have none. A worker that is started again
# after 15 s, as on a busy machine, would be given up, and with the last one the work would stand still.
# What is measured for a dashboard is measured seldom or not at all: it took a tenth of the time, 50 times a
# second the interpreter from the work. Results are small, so that nothing needs to leave the memory.
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
# What decides which numbers come, and the parts of its version that do.
_SAME = {"hushmote": 9, "numpy": 2, "python": 2}


class _Settled(WorkerPlugin):
    """Keeps the collection of garbage from looking through all that Dask has loaded, again and again."""

    def setup(self, worker: object) -> None:
        gc.freeze()


def _workers(client: Client, where: str) -> Workers:
    """A client's workers. where: what would be gone with them, for an error."""

    def run(
        function: Callable[..., Any], parts: Sequence[Any], given: tuple[Any, ...]
    ) -> Iterator[tuple[int, Any]]:
        # As a task, what is common to all parts goes once to each worker, and to one that replaces it. All
        # goes as bytes, which a scheduler does not read.
        common = client.submit(cloudpickle.loads, cloudpickle.dumps(given), pure=False)
        futures: dict[Future, int] = {}
        for number, part in enumerate(parts):
            work = cloudpickle.dumps((function, part, tuple(FOLDERS)))
            futures[client.submit(_call, work, common, pure=False, priority=-number)] = number
        try:
            for future, result in as_completed(list(futures), with_results=True, loop=client.loop):
                if future.cancelled():
                    raise WorkersError(f"{where} is gone, and the work with it")
                yield futures.pop(future), result
        except KilledWorker:
            raise WorkersError(
                "one part of the work ended every worker that took it: it needs more memory than a worker "
                "has, or somebody ends them"
            ) from None

    return Workers(run)


def _call(work: bytes, given: tuple[Any, ...]) -> Any:
    """Run a part, with the folders that mechanisms of one's own are looked for in."""
    function, part, FOLDERS[:] = cloudpickle.loads(work)
    return function(part, *given)


@contextmanager
def local(count: int) -> Iterator[Workers]:
    """Processes of this machine, which nobody else on it can reach."""
    with (
        _silence(),
        tempfile.TemporaryDirectory(prefix="hushmote-") as folder,
        config.set(_LOCAL),
        closing(_started(folder)) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(_Settled())
        cluster.scale(count)
        try:
            client.wait_for_workers(1, timeout=START_S)
        except TimeoutError:
            raise WorkersError(f"no worker process has started within {START_S} s") from None
        yield _workers(client, "Dask's scheduler in this process")


def _started(folder: str) -> LocalCluster:
    """A scheduler of this process, without workers. Ctrl-C in a terminal is for this process alone.

    The thread that starts workers inherits a mask, and they inherit it from that. Were it to start Python's
    resource tracker with the first of them, it would lose the mask.
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
    """The workers of a scheduler, by its address; certificates of tls:// stand in Dask's configuration.

    Raises WorkersError where none answers within seconds, it has no workers, or theirs is another Hushmote.
    """
    if not _ADDRESS.fullmatch(address) or not 0 < int(address.rpartition(":")[2]) < 65_536:
        raise WorkersError(
            f"{address!r} is neither a number of processes nor a Dask scheduler's address: write "
            "tcp://10.0.0.5:8786, or tls://"
        )
    if address.startswith("tls") and Security().get_connection_args("client")["ssl_context"] is None:
        raise WorkersError(
            "tls:// needs certificates: say where they are in Dask's configuration, distributed.comm.tls"
        )
    where = f"the Dask scheduler at {address}"
    if address.startswith("tcp") and not _may_be_dask(address):
        raise WorkersError(f"what listens at {address} is no Dask scheduler: give a scheduler's port")
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
                    f"{where} has no workers: start some with `dask worker {address}`"
                ) from None
            _check(cast("Mapping[str, Any]", client.get_versions(packages=["hushmote"])))
            yield _workers(client, where)


def _may_be_dask(address: str) -> bool:
    """Whether what listens there, if anything does, begins as a scheduler: with the size of a small frame.

    Dask's client takes anything for a size, and cannot be ended once it waits for so much.
    """
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as there:
            there.settimeout(CONNECT_S)
            begun = there.recv(8, socket.MSG_WAITALL)
    except OSError:
        return True  # the client says what is wrong
    return len(begun) == 8 and int.from_bytes(begun, "little") < _MOST_GREETING


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _check(versions: Mapping[str, Any]) -> None:
    """Raise WorkersError where a worker would draw other numbers, or none."""
    here = versions["client"]["packages"]
    workers = {f"the worker {address}": there for address, there in versions["workers"].items()}
    for name, there in (("Dask's scheduler", versions["scheduler"]), *workers.items()):
        for package, parts in _SAME.items():
            wanted = ".".join(here[package].split(".")[:parts])
            has = ".".join((there["packages"].get(package) or "").split(".")[:parts])
            if not has:
                raise WorkersError(f"{name} has no {package}: install {package} {wanted} there")
            if has != wanted:
                raise WorkersError(f"{name} has {package} {has} and not {wanted}: numbers would differ")


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Dask's log and warnings out of the user's terminal: what matters is raised."""
    named = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    loggers = {logging.getLogger(name) for name in named}
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
