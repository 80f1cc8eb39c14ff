"""The page over 10 million reports: the first view in Chromium, and what 20 readers cost an aggregator.

    python benchmarks/page.py [--quick]

The store is that of `hushmote simulate`: a number over 1,024 bins (hh, ε = 1), a report or a few of each of
4.1 million boards on 30 days. First view: a new Chromium each time, with nothing in its cache, opens the
experiment with all 1,024 bins; from the start of the navigation to the end of the histogram's drawing, as the
browser's own clock has it. The first of them finds a page that has just started, with nothing worked out.
The same of the page's first view, to the findings of all its tiles, and the CPU seconds that a finding takes
anew after a commit into its newest window. Beside it what Chromium needs for a page of NiceGUI with nothing
on it but a word.

Readers: an aggregator drains a queue of the broker into another experiment of that fleet and store, alone,
then while 20 readers follow the view over WebSockets as browsers do; four rounds, alternating which is first;
each reader's updates are counted, so that readers who see nothing do not pass for cheap ones. Told is the
median ratio of the aggregator's rates. It runs on this machine together with the broker, the page and the
readers, so that with 2 cores they share what the aggregator needs.

Writes benchmarks/results/page.json.
"""

import ast
import asyncio
import contextlib
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import numpy as np
import socketio
from brokers import NO_SAVING, Reports, aggregate, cpu_s, drain, memory_mib, publish
from results_file import Options, run
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from hushmote.server.aggregator import Counting
from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts, Kept, Selection
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

FLEET = "simulated"
READERS = 20
_DRAWN = "return performance.getEntriesByName('chart drawn').map(e => e.startTime)[0]"
_TOLD = """const told = [...document.querySelectorAll('.tile-finding')].map(e => e.textContent.trim())
return told.length && told.every(Boolean) ? performance.now() : 0"""
_IDLE = "return performance.getEntriesByType('navigation')[0].loadEventEnd"


def filled(folder: Path, boards: int) -> str:
    """A store with the reports of so many boards; returns its URL."""
    url, file = f"sqlite:///{folder / 'store.sqlite'}", folder / "room_temp.toml"
    fields = {"name": "room_temp", "purpose": "How warm are bedrooms at night?", "unit": "°C", "bins": 1024}
    fields |= {"owner": "heating@example.org", "type": "number", "low": -14, "high": 50, "epsilon": 1.0}
    lines = [
        f"{key} = {json.dumps(value)}" for key, value in (fields | {"every": 90, "window": "day"}).items()
    ]
    lines += ["expires = 2099-12-31", "[budget]", 'rule = "sum"', "cap = 4.0"]
    file.write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "hushmote", "simulate", str(file), "--to", url]
    subprocess.run([*command, "--devices", str(boards)], check=True, stdout=subprocess.DEVNULL)
    return url


@contextlib.contextmanager
def paged(url: str) -> Iterator[tuple[str, int]]:
    """A process of `hushmote page`: its URL and process id."""
    command = [sys.executable, "-m", "hushmote", "page", "--store", url, "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().split()[-1].rstrip("/"), process.pid
        process.terminate()


def first_view(url: str, done: str) -> float:
    """Seconds that a Chromium with an empty cache takes until a script returns a number, ms."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1440,900"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver")) as driver:
        driver.get("about:blank")
        driver.get(url)
        return WebDriverWait(driver, 60, 0.05).until(lambda d: d.execute_script(done)) / 1000


def finding_cpu_s(url: str, commits: int) -> list[float]:
    """CPU seconds of the finding at first, and after each commit."""
    kept, selection, rows = Kept(), Selection("room_temp", FLEET), list[float]()
    with Store(url) as store:
        (version,) = (v for v in store.experiments(FLEET) if v.experiment.name == "room_temp")
        for _ in range(1 + commits):
            before = time.process_time()
            facts = Facts(store, kept=kept)
            find(facts, selection)
            rows.append(time.process_time() - before)
            newest = max(facts.reports(FLEET)[version.id])
            with store.ingest() as transaction:
                transaction.write({}, {(version.id, newest, code): 1 for code in range(10)}, {})
    return rows


async def _reader(base: str, path: str, stop: asyncio.Event, ready: asyncio.Semaphore) -> int:
    """One reader: loads the view, follows it over a WebSocket; the number of updates that came."""
    updates = 0
    async with aiohttp.ClientSession(headers={"accept": "text/html"}) as session:
        async with session.get(base + path) as answer:
            found = re.search(r"query: (\{.*?\})", (await answer.text()).replace("\n", " "))
        assert found, "NiceGUI has another page"
        known = ast.literal_eval(found[1])
        client = socketio.AsyncClient(http_session=session, reconnection=False)

        async def count(message: dict) -> None:
            nonlocal updates
            updates += 1
            seen = {"client_id": known["client_id"], "next_message_id": message.get("_id", 0) + 1}
            await client.emit("ack", seen)

        client.on("update", count)
        query = known | {"tab_id": known["client_id"], "implicit_handshake": "true", "document_id": "bench"}
        where = {"transports": ["websocket"], "socketio_path": "/_nicegui_ws/socket.io"}
        await client.connect(f"{base}?{urlencode(query)}", **where)
        ready.release()
        await stop.wait()
        await client.disconnect()
    return updates


async def _readers(base: str, path: str, talk: Connection) -> None:
    stop, ready = asyncio.Event(), asyncio.Semaphore(0)
    tasks = [asyncio.create_task(_reader(base, path, stop, ready)) for _ in range(READERS)]
    for _ in tasks:
        await ready.acquire()
    await asyncio.sleep(3)
    talk.send(None)
    await asyncio.to_thread(talk.recv)
    stop.set()
    talk.send(await asyncio.gather(*tasks))


def readers(base: str, path: str, talk: Connection) -> None:
    """A process of READERS readers: says when they are there, stays until told, sends their updates."""
    asyncio.run(_readers(base, path, talk))


def drains(url: str, base: str, messages: int, rounds: int) -> list[dict]:
    """The aggregator's rates, without readers and with, in turn."""
    rows, reports = [], Reports(messages, fleet=FLEET, keyed=False)
    with Store(url) as store:
        store.add_experiment(FLEET, reports.payload)
    context = multiprocessing.get_context("spawn")
    path = f"/experiment/{FLEET}/bench"
    with MosquittoBroker(settings=NO_SAVING) as broker:
        drain(_open, broker.port, 0, url)
        for number in range(1, 2 * rounds + 1):
            with_readers = number % 4 in (2, 3)
            publish(broker.port, reports.messages(np.arange(messages), number))
            here, there = context.Pipe()
            watching = context.Process(target=readers, args=(base, path, there))
            if with_readers:
                watching.start()
                there.close()  # so that its end is seen
                here.recv()
            drained = drain(_open, broker.port, messages, url)
            row = {"readers": READERS if with_readers else 0, "per_s": messages / drained["seconds"]}
            row["cpu_s"] = drained["cpu_s"]
            if with_readers:
                here.send(None)
                updates = here.recv()
                watching.join(30)
                row |= {"updates_of_each_reader": float(np.median(updates))}
                assert min(updates) > 1, "a reader saw nothing of it"
            rows.append(row)
    return rows


def _open(port: int, out: Connection, number: int, url: str) -> None:
    aggregate(port, out, number, url, counting=Counting(fleets=[FLEET]))  # the simulated fleet is open


def measured(options: Options) -> dict:
    boards, messages, rounds, views = (4_100_000, 30_000, 2, 5)
    if options.quick:
        boards, messages, rounds, views = (100_000, 5_000, 1, 1)
    with tempfile.TemporaryDirectory() as name:
        url = filled(Path(name), boards)
        with paged(url) as (base, pid):
            tiles: dict = {"just_started_s": first_view(base, _TOLD)}
            tiles["after_that_s"] = [first_view(base, _TOLD) for _ in range(views)]
        tiles["finding_cpu_s"] = finding_cpu_s(url, views)
        with paged(url) as (base, pid):
            view = f"{base}/experiment/{FLEET}/room_temp?rows=1024"
            first: dict = {"just_started_s": first_view(view, _DRAWN)}
            first["after_that_s"] = [first_view(view, _DRAWN) for _ in range(views)]
            nothing = f"{base}/experiment/{FLEET}/nothing"
            first["a_word_s"] = [first_view(nothing, _IDLE) for _ in range(views)]
            page = {"mib": memory_mib(pid)}
            before = cpu_s(pid)
            rows = drains(url, base, messages, rounds)
            page |= {"mib_with_readers": memory_mib(pid), "cpu_s_during_drains": cpu_s(pid) - before}
    alone, beside = (np.median([r["per_s"] for r in rows if bool(r["readers"]) == x]) for x in (False, True))
    about = {"boards": boards, "messages": messages, "tiles": tiles, "first_view": first, "drains": rows}
    return about | {"ratio": float(beside / alone), "page": page}


if __name__ == "__main__":
    run(__doc__, "page.json", {"": measured})
