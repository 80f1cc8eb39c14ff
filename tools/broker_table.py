"""The brokers in the table in docs/survives.md: how to start each, and how to write its column."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_facts import ROWS, facts
from broker_groups import GroupByPull, GroupByShare
from paho.mqtt.enums import MQTTProtocolVersion
from rabbitmq import RabbitMq, find_rabbitmq

from hushmote.simulator.broker import Broker, MosquittoBroker, find_mosquitto, free_port
from hushmote.simulator.nats_servers import NatsServers, find_nats_server

PAGE = Path(__file__).parents[1] / "docs" / "survives.md"
_BEGIN, _END = re.compile("<!-- table: tools/.*\\.py -->\n"), "<!-- end of the table -->"
_EMBEDDED = """
import signal, sys
from hushmote.simulator.broker import EmbeddedBroker

EmbeddedBroker(int(sys.argv[1])).start()
print("up", flush=True)
signal.pause()
"""


class EmbeddedProcess(Broker):
    """The embedded broker in its own process, which can be killed."""

    name = "amqtt"
    protocol = "3.1.1"

    def __init__(self) -> None:
        super().__init__("127.0.0.1", free_port())
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", _EMBEDDED, str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "up\n"

    def terminate(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.communicate()
            self._process = None


@dataclass(frozen=True)
class Column:
    """A broker in the table.

    Attributes:
        title: The column's title.
        make: Returns a new broker.
        group: Returns a new consumer group.
        missing: Returns what to install, or "".
    """

    title: str
    make: Callable[[], Any]
    group: Callable[[], Any]
    missing: Callable[[], str]

    def facts(self) -> dict[str, str]:
        """Start the broker, run every test on it, and return the results."""
        with self.make() as broker:
            ports = [node.mqtt for node in getattr(broker, "nodes", ())]
            return facts(broker, self.group(), ports)


def _missing_nats() -> str:
    return "" if find_nats_server() else "nats-server is not installed: pip install 'hushmote[nats]'"


COLUMNS = (
    Column(
        "amqtt, embedded", EmbeddedProcess, lambda: GroupByShare(MQTTProtocolVersion.MQTTv311), lambda: ""
    ),
    Column(
        "mosquitto 2.0",
        MosquittoBroker,
        lambda: GroupByShare(MQTTProtocolVersion.MQTTv5),
        lambda: "" if find_mosquitto() else "mosquitto is not installed",
    ),
    Column("NATS, 1 server", lambda: NatsServers(1), GroupByPull, _missing_nats),
    Column("NATS, 3 servers", NatsServers, GroupByPull, _missing_nats),
    Column(
        "RabbitMQ 3.10",
        RabbitMq,
        lambda: GroupByShare(MQTTProtocolVersion.MQTTv311),
        lambda: "" if find_rabbitmq() else "rabbitmq-server is not installed: apt install rabbitmq-server",
    ),
)


def columns_of_page(page: Path = PAGE, rows: Mapping[str, str] = ROWS) -> dict[str, dict[str, str]]:
    """Return the cells of a page's table by column title and row, whose texts are in `rows`."""
    lines = _split(page)[1].strip().splitlines()
    if not lines:
        return {}
    titles, cells = _cells(lines[0])[1:], [_cells(line) for line in lines[2:]]
    keys = {text: key for key, text in rows.items()}
    return {title: {keys[row[0]]: row[1 + i] for row in cells} for i, title in enumerate(titles)}


def write_page(
    columns: Mapping[str, Mapping[str, str]], page: Path = PAGE, rows: Mapping[str, str] = ROWS
) -> None:
    """Write the columns to the page's table."""
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [f"| {text} | {' | '.join(c[key] for c in columns.values())} |" for key, text in rows.items()]
    before, _, rest = _split(page)
    page.write_text(before + "\n" + "\n".join(lines) + "\n\n" + rest)


def _split(page: Path) -> tuple[str, str, str]:
    """Return the page up to its table, the table, and the rest."""
    text = page.read_text()
    begin = _BEGIN.search(text)
    if begin is None:
        raise ValueError(f"{page} has no table of brokers")
    end = text.index(_END, begin.end())
    return text[: begin.end()], text[begin.end() : end], text[end:]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|\n").split("|")]
