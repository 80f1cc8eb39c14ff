"""The broker that somebody chose, by a word or by its address."""

from __future__ import annotations

from ..server.ingest.broker_url import (
    BrokerAddress,
    BrokerUrlError,
    NatsAddress,
    is_nats,
    parse_broker_url,
    parse_nats_url,
)
from .broker import (
    Broker,
    BrokerError,
    EmbeddedBroker,
    ExternalBroker,
    ExternalCluster,
    MosquittoBroker,
    find_mosquitto,
)
from .nats_servers import NatsServers


def open_broker(choice: str | BrokerAddress | NatsAddress = "auto") -> Broker:
    """Return the chosen broker, to be entered as a context manager.

    choice: "embedded", "mosquitto", "nats" (a cluster of three), "auto" (mosquitto where it is installed), or
    one that runs: its address, mqtt://[user:password@]host[:port], or nats://... for servers of a cluster.
    Raises BrokerError for any other.
    """
    if choice == "auto":
        return EmbeddedBroker() if find_mosquitto() is None else MosquittoBroker()
    if choice == "embedded":
        return EmbeddedBroker()
    if choice == "mosquitto":
        return MosquittoBroker()
    if choice == "nats":
        return NatsServers()
    try:
        if isinstance(choice, str):
            address = parse_nats_url(choice) if is_nats(choice) else parse_broker_url(choice)
        else:
            address = choice
    except BrokerUrlError as e:
        raise BrokerError(f"{e}, or auto, embedded, mosquitto or nats") from None
    if address.tls:
        scheme = "nats" if isinstance(address, NatsAddress) else "mqtt"
        raise BrokerError(f"this speaks no TLS: write the broker as {scheme}://")
    if isinstance(address, NatsAddress):
        return ExternalCluster(address)
    return ExternalBroker(address.host, address.port, address.username, address.password)
