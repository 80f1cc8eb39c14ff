"""TLS with a real mosquitto: trusted certificates work, and each failure has its own message."""

import contextlib
import datetime
import logging
import socket
import threading

import pytest
from boards import experiment
from certificates import Authority
from cryptography.hazmat.primitives import serialization
from paho.mqtt.client import Client
from refusals import fails
from running_aggregator import until
from serve_process import served
from traffic import counted_reports, crowd, publish

from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import BrokerAddress, BrokerUrlError, parse_broker_url
from hushmote.server.ingest.connection import BrokerConnection
from hushmote.server.ingest.pacing import Backoff, Pace
from hushmote.server.ingest.tls import CertificateError, client_context, explain, first_expiry
from hushmote.simulator.broker import MosquittoBroker, free_port


@contextlib.contextmanager
def tls_broker(ca, pair, *settings):
    """Run mosquitto with a TLS and a plain listener; yield it and the TLS port."""
    port = free_port()
    certificate, key = pair
    lines = (f"listener {port} 127.0.0.1", f"certfile {certificate}", f"keyfile {key}", f"cafile {ca.file}")
    with MosquittoBroker(settings=(*lines, "allow_anonymous true", *settings)) as broker:
        yield broker, port


@contextlib.contextmanager
def trying(store, port, tls, host="127.0.0.1"):
    """Run an aggregator that tries to connect in a thread."""
    aggregator = Aggregator(store, BrokerAddress(host, port), Counting(batch_s=0.1), tls=tls)
    thread = threading.Thread(target=aggregator.run)
    thread.start()
    try:
        yield aggregator
    finally:
        aggregator.stop()
        thread.join()


class TestCounting:
    def test_works_over_tls_with_a_client_certificate(self, store, tmp_path):
        ca = Authority(tmp_path)
        messages, counts = crowd(300)
        certificate, key = ca.sign("aggregator")
        with tls_broker(ca, ca.sign("broker", "localhost"), "require_certificate true") as (broker, port):
            arguments = ("--store", f"sqlite:///{store.where}", "--broker", f"mqtts://localhost:{port}")
            tls = {"CA": ca.file, "CERT": certificate, "CERT_KEY": key}
            environment = {f"HUSHMOTE_BROKER_{name}": str(file) for name, file in tls.items()}
            with served(*arguments, "--batch", "0.1s", environment=environment) as process:
                process.ready()
                publish(broker, messages)
                until(lambda: counted_reports(store) == 300, "all counted")
                assert process.end() == 0
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_resumes_after_the_broker_renews_its_certificate(self, store, tmp_path):
        ca = Authority(tmp_path)
        port, tls = free_port(), client_context(ca.file)
        pair = ca.sign("broker", "127.0.0.1", end=-0.5)
        lines = (
            f"listener {port} 127.0.0.1",
            f"certfile {pair[0]}",
            f"keyfile {pair[1]}",
            "allow_anonymous true",
        )
        with MosquittoBroker(settings=lines) as broker, trying(store, port, tls) as aggregator:
            until(lambda: "has expired" in aggregator.condition.state, lambda: aggregator.condition)
            ca.sign("broker", "127.0.0.1")
            broker.restart()
            until(aggregator.ready.is_set, lambda: aggregator.condition)


class TestErrors:
    @pytest.mark.parametrize(
        ("broker_names", "days", "trusted", "host", "words"),
        [
            (("127.0.0.1",), (-9, -2), True, "127.0.0.1", "its certificate has expired"),
            (("127.0.0.1",), (2, 9), True, "127.0.0.1", "its certificate is not valid yet"),
            (("127.0.0.1",), (-1, 5), False, "127.0.0.1", "CA of its certificate is not trusted"),
            (("10.0.0.1",), (-1, 5), True, "127.0.0.1", "is for another address"),
            (("broker.example",), (-1, 5), True, "localhost", "is for another name"),
        ],
        ids=["expired", "not yet valid", "other CA", "other address", "other name"],
    )
    def test_untrusted_certificate_is_logged_once_and_retried(
        self, store, tmp_path, caplog, monkeypatch, broker_names, days, trusted, host, words
    ):
        waits, next_s = [], Backoff.next_s
        monkeypatch.setattr(Backoff, "next_s", lambda backoff: waits.append(next_s(backoff)) or waits[-1])
        ca, other = Authority(tmp_path), Authority(tmp_path, "other")
        pair = ca.sign("broker", *broker_names, start=days[0], end=days[1])
        with (
            tls_broker(ca, pair) as (_, port),
            trying(store, port, client_context(ca.file if trusted else other.file), host) as aggregator,
        ):
            until(lambda: words in aggregator.condition.state, lambda: aggregator.condition)
            first, tries = len(caplog.records), len(waits)
            until(lambda: len(waits) >= tries + 2, "two more attempts")
            assert len(caplog.records) == first
            assert caplog.records[-1].levelno == logging.ERROR
            assert not aggregator.ready.is_set()

    def test_names_the_setting_that_the_broker_rejects(self, store, tmp_path):
        ca, other = Authority(tmp_path), Authority(tmp_path, "other")
        contexts = {
            "it requires a client certificate": client_context(ca.file),
            "it does not trust the CA of our certificate": client_context(ca.file, *other.sign("stranger")),
        }
        with tls_broker(ca, ca.sign("broker", "127.0.0.1"), "require_certificate true") as (broker, port):
            for words, tls in contexts.items():
                with trying(store, port, tls) as aggregator:
                    until(
                        lambda w=words, a=aggregator: w in a.condition.state, lambda a=aggregator: a.condition
                    )
            with trying(store, broker.port, client_context(ca.file)) as aggregator:  # the plain port
                until(lambda: "does it use TLS" in aggregator.condition.state, lambda: aggregator.condition)

    def test_reads_the_alert_after_the_broker_closed(self, tmp_path, monkeypatch):
        """A broker refuses the certificate in the handshake and closes, often before CONNECT is sent.

        Each of 20 connections sends CONNECT after the broker has closed; almost all of them are reset.
        """
        ca, other = Authority(tmp_path), Authority(tmp_path, "other")
        send = Client._sock_send

        def send_after_the_end(client, buffer):
            until(
                lambda: client._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1, "still open"
            )
            return send(client, buffer)

        monkeypatch.setattr(Client, "_sock_send", send_after_the_end)
        with tls_broker(ca, ca.sign("broker", "127.0.0.1"), "require_certificate true") as (_, port):
            for pair, words in (
                ((), "it requires a client certificate"),
                (other.sign("stranger"), "it does not trust the CA of our certificate"),
            ):
                tls = client_context(ca.file, *pair)
                for _ in range(10):
                    connection = BrokerConnection("5", "me", BrokerAddress("host"), 10, Pace(), tls)
                    connection.connect("127.0.0.1", port)
                    until(lambda c=connection: not c.turn(0.1, 1), "the connection is lost")
                    assert words in str(explain(connection.error)), connection.error

    def test_certificate_is_valid_through_its_last_second(self, tmp_path, monkeypatch):
        ca = Authority(tmp_path)
        pair = ca.sign("me")
        last = first_expiry(pair[0])
        clock = type("Stopped", (datetime.datetime,), {"now": staticmethod(lambda tz: last)})
        monkeypatch.setattr(datetime, "datetime", clock)
        client_context(ca.file, *pair)
        last += datetime.timedelta(seconds=1)
        with fails(r"me.pem expired on \d{4}-\d\d-\d\d: renew it", CertificateError):
            client_context(ca.file, *pair)

    def test_distinguishes_unusable_files(self, tmp_path):
        ca = Authority(tmp_path)
        certificate, key = ca.sign("me")
        other_key = ca.sign("you")[1]
        expired = ca.sign("old", end=-0.5)
        early = ca.sign("early", start=1)
        text = tmp_path / "text"
        text.write_text("nothing")
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        locked = tmp_path / "locked.key"
        locked.write_bytes(
            loaded.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"x"),
            )
        )
        for files, words in [
            ((tmp_path / "none", None, None), "cannot read .*none: No such file"),
            ((tmp_path, None, None), "cannot read .*: Is a directory"),
            ((text, None, None), "text contains no certificate: it must be a PEM file"),
            ((ca.file, certificate, None), "a client certificate needs its key"),
            ((ca.file, text, key), "text contains no certificate"),
            ((ca.file, certificate, text), "text contains no key"),
            ((ca.file, certificate, tmp_path / "none"), "cannot read .*none"),
            ((ca.file, certificate, other_key), "you.key is not the key of .*me.pem"),
            ((ca.file, certificate, locked), "locked.key is encrypted"),
            ((ca.file, *expired), "old.pem expired on"),
            ((ca.file, *early), "early.pem is not valid before"),
        ]:
            with fails(words, CertificateError):
                client_context(*files)
        context = client_context(ca.file, certificate, key)
        assert context.check_hostname
        assert context.minimum_version.name == "TLSv1_2"


class TestUrl:
    def test_selects_tls(self):
        assert parse_broker_url("mqtts://broker.example", tls=True).port == 8883
        assert parse_broker_url("mqtts://broker.example:1", tls=True).tls
        assert str(parse_broker_url("mqtt://[fd00::5]:1884")) == "the broker at [fd00::5]:1884"
        assert not parse_broker_url("mqtt://broker.example", tls=True).tls
        with pytest.raises(BrokerUrlError):
            parse_broker_url("mqtts://broker.example")
