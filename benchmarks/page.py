"""The page over 10 million reports: the first view in Chromium, and the cost of 20 readers.

    python benchmarks/page.py [--quick]

The store is made by `hushmote simulate`: a number over 1,024 bins (hh, ε = 1), with a few reports from each
of 4.1 million boards over 30 days. First view: a new Chromium with an empty cache opens the experiment with
all 1,024 bins, timed by the browser's clock from the start of the navigation until the histogram is drawn.
The first Chromium opens a page that has just started and has computed nothing yet. The same is measured for
the start page, until all its tiles have their findings, together with the CPU seconds that a finding takes
after a commit to its newest window. For comparison, it also measures how long Chromium needs for a NiceGUI
page with a single word.

Readers: an aggregator drains a broker's queue into another experiment in the same fleet and store, first
alone and then while 20 readers follow the view over WebSockets as browsers do. There are four drains, in
alternating order. Each reader's updates are counted, so that readers that receive nothing are not taken for
cheap ones. The result is the ratio of the aggregator's median rates. The broker, the page and the readers run
on the same machine, so that with 2 cores they compete with the aggregator.

Writes benchmarks/results/page.json.
"""

import ast
import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import numpy as np
import socketio
from brokers import NO_SAVING, Reports, aggregate, cpu_s, drain, publish
from browser import Browser
from results_file import ROOT, Options, memory_mib, run

from hushmote.server.aggregator import Counting
from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.answers.result_cache import ResultCache
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

FLEET = "simulated"
READERS = 20
_CHART_DRAWN = "return performance.getEntriesByName('chart drawn').map(e => e.startTime)[0]"
_HAS_FINDINGS = """const all = [...document.querySelectorAll('.tile-lines')].map(e => e.textContent.trim())
return all.length && all.every(Boolean) ? performance.now() : 0"""
_IDLE = "return performance.getEntriesByType('navigation')[0].loadEventEnd"


def filled(folder: Path, boards: int) -> str:
    """Make a store with the reports of this many boards; return its URL."""
    url, file = f"sqlite:///{folder / 'store.sqlite'}", folder / "room_temp.toml"
    file.write_text((ROOT / "examples" / file.name).read_text().replace("bins = 256", "bins = 1024"))
    command = [sys.executable, "-m", "hushmote", "simulate", str(file), "--to", url]
    subprocess.run([*command, "--devices", str(boards)], check=True, stdout=subprocess.DEVNULL)
    return url


@contextlib.contextmanager
def paged(url: str) -> Iterator[tuple[str, int]]:
    """Run `hushmote page`; yield its URL and process id."""
    command = [sys.executable, "-m", "hushmote", "page", "--store", url, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().split()[-1].rstrip("/"), process.pid
        process.terminate()


def first_view(url: str, done: str) -> float:
    """Return the seconds until a script returns its time (in ms), in a Chromium with an empty cache."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Browser(Path(folder))) as browser:
        browser.open(url)
        return browser.until(lambda: browser.script(done), "it is not drawn") / 1000


def finding_cpu_s(url: str, commits: int) -> list[float]:
    """Return the CPU seconds for the first finding, and for a finding after each commit."""
    cache, selection, rows = ResultCache(), Selection("room_temp", FLEET), list[float]()
    with Store(url) as store:
        (version,) = (v for v in store.experiments(FLEET) if v.experiment.name == "room_temp")
        for _ in range(1 + commits):
            before = time.process_time()
            facts = Facts(store, cache=cache)
            find(facts, selection)
            rows.append(time.process_time() - before)
            newest = max(facts.reports(FLEET)[version.id])
            with store.ingest() as transaction:
                transaction.write({}, {(version.id, newest, 0, code): 1 for code in range(10)}, {})
    return rows


async def _reader(base: str, path: str, stop: asyncio.Event, ready: asyncio.Semaphore) -> int:
    """Load the view as one reader, follow it over a WebSocket, and return the number of updates."""
    updates = 0
    async with aiohttp.ClientSession(headers={"accept": "text/html"}) as session:
        async with session.get(base + path) as answer:
            match = re.search(r"query: (\{.*?\})", (await answer.text()).replace("\n", " "))
        assert match, "NiceGUI's page format has changed"
        connection_query = ast.literal_eval(match[1])
        client = socketio.AsyncClient(http_session=session, reconnection=False)

        async def count(message: dict) -> None:
            nonlocal updates
            updates += 1
            acknowledgement = {
                "client_id": connection_query["client_id"],
                "next_message_id": message.get("_id", 0) + 1,
            }
            await client.emit("ack", acknowledgement)

        client.on("update", count)
        query = connection_query | {
            "tab_id": connection_query["client_id"],
            "implicit_handshake": "true",
            "document_id": "bench",
        }
        where = {"transports": ["websocket"], "socketio_path": "/_nicegui_ws/socket.io"}
        await client.connect(f"{base}?{urlencode(query)}", **where)
        ready.release()
        await stop.wait()
        await client.disconnect()
    return updates


@contextlib.contextmanager
def readers(base: str, path: str) -> Iterator[list[int]]:
    """Run READERS readers in a separate thread; once they have left, yield each one's number of updates."""
    loop, stop, ready, updates = asyncio.new_event_loop(), asyncio.Event(), asyncio.Semaphore(0), list[int]()

    async def read() -> None:
        updates.extend(await asyncio.gather(*(_reader(base, path, stop, ready) for _ in range(READERS))))

    thread = threading.Thread(target=loop.run_until_complete, args=(read(),))
    thread.start()
    for _ in range(READERS):
        asyncio.run_coroutine_threadsafe(ready.acquire(), loop).result()
    yield updates
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    assert min(updates) > 1, "a reader received no updates"


def drains(url: str, base: str, messages: int, rounds: int) -> list[dict]:
    """Return the aggregator's rates, without readers and with, in turn."""
    rows, reports = [], Reports(messages, fleet=FLEET, keyed=False)
    with Store(url) as store:
        store.add_experiment(FLEET, reports.payload)
    with MosquittoBroker(settings=NO_SAVING) as broker:
        drain(_open, broker.port, 0, url)
        for number in range(1, 2 * rounds + 1):
            publish(broker.port, reports.messages(np.arange(messages), number))
            path, read = f"/experiment/{FLEET}/bench", number % 4 in (2, 3)
            with readers(base, path) if read else contextlib.nullcontext([]) as updates:
                drained = drain(_open, broker.port, messages, url)
            row = {"readers": len(updates), "per_s": messages / drained["seconds"], "cpu_s": drained["cpu_s"]}
            rows.append(row | ({"updates_of_each_reader": float(np.median(updates))} if read else {}))
    return rows


def _open(port: int, out: Connection, number: int, url: str) -> None:
    aggregate(port, out, number, url, counting=Counting(fleets=[FLEET]))  # the simulated fleet is open


def measured(options: Options) -> dict:
    boards, messages, rounds, views = (4_100_000, 30_000, 2, 5)
    if options.quick:
        boards, messages, rounds, views = (100_000, 5_000, 1, 1)
    with tempfile.TemporaryDirectory() as name:
        url = filled(Path(name), boards)
        view = f"experiment/{FLEET}/room_temp?rows=1024"
        measurements = {}
        for key, where, done in (("tiles", "", _HAS_FINDINGS), ("first_view", view, _CHART_DRAWN)):
            with paged(url) as (base, pid):
                first, *more = (first_view(f"{base}/{where}", done) for _ in range(1 + views))
                measurements[key] = {"just_started_s": first, "after_that_s": more}
        measurements["tiles"]["finding_cpu_s"] = finding_cpu_s(url, views)
        with paged(url) as (base, pid):
            nothing = f"{base}/experiment/{FLEET}/nothing"
            measurements["first_view"]["a_word_s"] = [first_view(nothing, _IDLE) for _ in range(views)]
            page, before = {"mib": memory_mib(pid)}, cpu_s(pid)
            rows = drains(url, base, messages, rounds)
            page |= {"mib_with_readers": memory_mib(pid), "cpu_s_during_drains": cpu_s(pid) - before}
    alone, with_readers = (
        np.median([r["per_s"] for r in rows if bool(r["readers"]) == x]) for x in (False, True)
    )
    about = {"boards": boards, "messages": messages, **measurements, "drains": rows}
    return about | {"ratio": float(with_readers / alone), "page": page}


if __name__ == "__main__":
    run(__doc__, "page.json", {"": measured})
