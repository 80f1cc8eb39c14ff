"""NATS subjects for MQTT topics, as NATS servers map them."""

import pytest

from hushmote.server.wire.subjects import report_subject, topic_of
from hushmote.server.wire.topics import NameRefused


class TestSubjects:
    def test_report_topic_survives_the_round_trip(self):
        assert report_subject() == "$MQTT.msgs.hushmote.v1.*.report.*"
        assert report_subject("home") == "$MQTT.msgs.hushmote.v1.home.report.*"
        assert topic_of(b"$MQTT.msgs.hushmote.v1.home.report.dev-1") == "hushmote/v1/home/report/dev-1"
        with pytest.raises(NameRefused):
            report_subject("home.*")

    @pytest.mark.parametrize(
        ("subject", "topic"),
        [  # the table in the NATS documentation, and bytes that are not a topic
            (b"/.foo.bar", "/foo/bar"),
            (b"foo.bar./", "foo/bar/"),
            (b"foo./.bar", "foo//bar"),
            (b"foo//bar", "foo.bar"),
            (b"foo.bar//baz", "foo/bar.baz"),
            (b"foo/", "foo"),
            (b"\xff", ""),
            (b"", ""),
        ],
    )
    def test_odd_topics_survive_the_round_trip(self, subject, topic):
        assert topic_of(b"$MQTT.msgs." + subject) == topic
