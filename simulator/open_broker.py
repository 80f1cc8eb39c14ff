"""The broker that somebody chose, by a word or by its address."""

from ..server.ingest.broker_url import (
    BrokerAddress,
    BrokerUrlError,
    NatsAddress,
    is_nats,
    parse_broker_url,
    parse_nats_url,
)
from .broker import Broker, BrokerError, EmbeddedBroker, ExternalBroker, MosquittoBroker, find_mosquitto
from .nats_servers import NatsServers

_STARTED = {"embedded": EmbeddedBroker, "mosquitto": MosquittoBroker, "nats": NatsServers}


def open_broker(choice: str | BrokerAddress | NatsAddress = "auto") -> Broker:
    """Return the chosen broker, to be entered as a context manager.

    choice: "embedded", "mosquitto", "nats" (a cluster of three), "auto" (mosquitto where it is installed), or
    one that runs: its address, mqtt://[user:password@]host[:port], or nats://... for servers of a cluster.
    Raises BrokerError for any other.
    """
    if choice == "auto":
        choice = "embedded" if find_mosquitto() is None else "mosquitto"
    if isinstance(choice, str) and choice in _STARTED:
        return _STARTED[choice]()
    try:
        if isinstance(choice, str):
            choice = parse_nats_url(choice) if is_nats(choice) else parse_broker_url(choice)
    except BrokerUrlError as e:
        raise BrokerError(f"{e}, or auto, embedded, mosquitto or nats") from None
    if choice.tls:
        scheme = "nats" if isinstance(choice, NatsAddress) else "mqtt"
        raise BrokerError(f"this speaks no TLS: write the broker as {scheme}://")
    return ExternalBroker(choice)
