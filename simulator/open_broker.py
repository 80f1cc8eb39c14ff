"""Open a broker by keyword or address."""

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

_LOCAL_BROKERS = {"embedded": EmbeddedBroker, "mosquitto": MosquittoBroker, "nats": NatsServers}


def open_broker(choice: str | BrokerAddress | NatsAddress = "auto") -> Broker:
    """Return the chosen broker, to be entered as a context manager.

    Args:
        choice: "embedded", "mosquitto", "nats" (a cluster of three), "auto" (mosquitto if it is installed),
            or the address of a running one: mqtt://[user:password@]host[:port], or nats://... for a cluster's
            servers.

    Raises:
        BrokerError: If the choice is anything else, or an address with TLS.
    """
    if choice == "auto":
        choice = "embedded" if find_mosquitto() is None else "mosquitto"
    if isinstance(choice, str) and choice in _LOCAL_BROKERS:
        return _LOCAL_BROKERS[choice]()
    try:
        if isinstance(choice, str):
            choice = parse_nats_url(choice) if is_nats(choice) else parse_broker_url(choice)
    except BrokerUrlError as e:
        raise BrokerError(f"{e}, or auto, embedded, mosquitto or nats") from None
    if choice.tls:
        article, scheme = ("a", "nats") if isinstance(choice, NatsAddress) else ("an", "mqtt")
        raise BrokerError(f"TLS is not supported here; use {article} {scheme}:// address")
    return ExternalBroker(choice)
