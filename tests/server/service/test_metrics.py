"""/metrics and /healthz of a running aggregator, compared with the store."""

import re
import sqlite3
import time
from contextlib import contextmanager

from boards import experiment
from certificates import Authority
from prometheus_client.parser import text_string_to_metric_families
from running_aggregator import until
from serve_process import add_fleet, get, health, served, with_setting
from traffic import crowd, publish

from hushmote.server.ingest.pipeline import REASONS
from hushmote.server.service import metrics as module
from hushmote.server.service.metrics import CertificateEnds
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker, free_port


@contextmanager
def running(tmp_path, broker, *more, script=None):
    """Run a served process on a new store; yield the store, the process and its URL."""
    port = free_port()
    url = f"sqlite:///{tmp_path}/store.sqlite"
    with Store(url) as store:
        add_fleet(store)
        arguments = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}", "--batch", "0.1s")
        with served(*arguments, "--http", f"127.0.0.1:{port}", *more, script=script) as process:
            yield store, process, f"http://127.0.0.1:{port}"


def scrape(url):
    """Return samples by name, or by (name, label) if they have a label."""
    status, text = get(url + "/metrics")
    assert status == 200
    assert not re.search(r"\bd\d", text)  # one of the crowd's devices
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[(sample.name, *sample.labels.values()) if sample.labels else sample.name] = sample.value
    return samples


class TestMetrics:
    def test_agree_with_the_store(self, tmp_path):
        messages, counts = crowd(300)
        rubbish = [("hushmote/v1/open/report/d1", b"x")] * 3 + [("hushmote/v1/away/report/d1", b"x")] * 2
        broker = MosquittoBroker(port=free_port())
        with running(tmp_path, broker) as (store, process, url):
            until(lambda: "no broker at" in process.log(), process.log)
            assert health(url) == (503, "not connected to the broker")
            with broker:
                process.ready()
                before = scrape(url)
                assert before["hushmote_reports_accepted_total"] == 0
                assert "hushmote_since_commit_seconds" not in before
                assert {key[1] for key in before if key[0] == "hushmote_reports_rejected_total"} == set(
                    REASONS
                )
                publish(broker, messages + messages[:50] + rubbish)
                until(lambda: scrape(url)["hushmote_uncommitted_messages"] == 0, "an empty queue")
                until(lambda: scrape(url)["hushmote_batch_reports_sum"] == 355, lambda: scrape(url))
                samples = scrape(url)
                assert (
                    samples["hushmote_reports_accepted_total"]
                    == store.histogram("open", experiment().digest).sum()
                )
                rejected = {r: samples["hushmote_reports_rejected_total", r] for r in REASONS}
                assert {r: n for r, n in rejected.items() if n} == {
                    **store.rejects()["open"],
                    **store.rejects()[""],
                }
                assert samples["hushmote_batches_total"] == samples["hushmote_commit_seconds_count"] > 0
                assert samples["hushmote_batches_total"] == samples["hushmote_batch_reports_count"]
                assert 0 < samples["hushmote_commit_seconds_sum"] < 60
                assert samples["hushmote_experiments_published"] == 1
                assert samples["hushmote_connected"] == samples["hushmote_subscribed"] == 1
                assert samples["hushmote_commit_failures_total"] == samples["hushmote_store_failing"] == 0
                assert samples["process_resident_memory_bytes"] > 1 << 20
                assert get(url + "/other")[0] == 404
                assert health(url) == (200, None)
                broker.terminate()
                until(lambda: health(url) == (503, "not connected to the broker"), lambda: health(url))
                assert scrape(url)["hushmote_connected"] == 0
                broker.start()
                until(lambda: health(url) == (200, None), lambda: health(url))
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_are_answered_while_a_commit_hangs(self, tmp_path):
        messages, counts = crowd(15)
        soon = with_setting("store.database", "BUSY_TIMEOUT_S", 4)
        more = ("--batch", "1000s", "--batch", "15")  # the commit begins once all have arrived
        with (
            MosquittoBroker() as broker,
            running(tmp_path, broker, *more, script=soon) as (store, process, url),
        ):
            process.ready()
            # Another program holds the write lock, so the commit waits for it and then fails.
            other = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            publish(broker, messages)
            samples = {}
            until(lambda: samples.update(scrape(url)) or samples["hushmote_since_turn_seconds"] > 1, samples)
            assert samples["hushmote_uncommitted_messages"] == 15
            assert samples["hushmote_oldest_uncommitted_seconds"] > 1
            assert samples["hushmote_commit_failures_total"] == 0  # it hangs
            until(lambda: health(url)[0] == 503, lambda: health(url))
            assert "the store failed" in health(url)[1]
            assert scrape(url)["hushmote_commit_failures_total"] >= 1
            assert scrape(url)["hushmote_store_failing"] == 1
            other.execute("ROLLBACK")
            other.close()
            until(lambda: health(url) == (200, None), lambda: health(url))
            until(lambda: scrape(url)["hushmote_reports_accepted_total"] == 15, lambda: scrape(url))
            assert process.end() == 0
        assert list(store.histogram("open", experiment().digest)) == counts
        log = process.log()
        assert log.count("another program holds its write lock") == 1
        assert log.count("reports are counted again") == 1


class TestHealth:
    def test_follows_the_database(self, postgres, postgres_url):
        messages, counts = crowd(50)
        port = free_port()
        with Store(postgres_url) as store:
            add_fleet(store)
        with MosquittoBroker() as broker:
            options = ("--store", postgres_url, "--broker", f"mqtt://127.0.0.1:{broker.port}")
            with served(*options, "--http", f"127.0.0.1:{port}", "--batch", "0.1s") as process:
                process.ready()
                url = f"http://127.0.0.1:{port}"
                until(lambda: health(url) == (200, None), lambda: health(url))
                postgres.kill()
                # Even without a report, it cannot read new experiments.
                until(lambda: health(url)[0] == 503, lambda: health(url))
                assert "the store failed" in health(url)[1]
                publish(broker, messages)
                assert scrape(url)["hushmote_reports_accepted_total"] == 0
                postgres.start()
                until(lambda: health(url) == (200, None), lambda: health(url))
                until(lambda: scrape(url)["hushmote_reports_accepted_total"] == 50, process.log)
                assert process.end() == 0
        with Store(postgres_url) as store:
            assert list(store.histogram("open", experiment().digest)) == counts


class TestCertificateEnds:
    def test_are_read_again_after_an_hour(self, tmp_path, monkeypatch, caplog):
        seconds = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: seconds)
        authority = Authority(tmp_path)
        certificate, _ = authority.sign("server", end=5)
        collector = CertificateEnds({"cert": certificate, "ca": None})

        def days_left():
            (family,) = collector.collect()
            (sample,) = family.samples
            return round((sample.value - time.time()) / 86_400)

        assert days_left() == 5
        authority.sign("server", end=8)
        seconds = 3_599.0
        assert days_left() == 5
        seconds = 3_600.0
        assert days_left() == 8
        certificate.write_text("")
        seconds = 7_200.0
        assert (days_left(), len(caplog.records)) == (8, 1)
        authority.sign("server", end=9)
        seconds = 10_800.0
        assert days_left() == 9
