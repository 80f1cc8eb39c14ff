"""Topics and the names that they can contain."""

import pytest
from boards import client, experiment

from hushmote.device import ldp_client
from hushmote.server.wire import topics


class TestNames:
    def test_topics_contain_fleet_device_and_experiment(self):
        assert topics.report_topic("home_1", "k3f9x1") == "hushmote/v1/home_1/report/k3f9x1"
        assert topics.experiment_topic("home_1", "room_temp") == "hushmote/v1/home_1/experiment/room_temp"
        assert topics.report_filter() == "hushmote/v1/+/report/+"
        assert topics.report_filter("home_1") == "hushmote/v1/home_1/report/+"
        assert topics.parse_topic("hushmote/v1/home_1/report/k3f9x1") == ("home_1", "k3f9x1")

    @pytest.mark.parametrize("device", ["", "A", "a_b", "a/b", "+", "#", "a" * 33, "a\n", "é", "\u0661"])
    def test_device_id_rejects_other_characters(self, device):
        with pytest.raises(topics.NameRefused):
            topics.report_topic("home", device)
        with pytest.raises(ldp_client.SettingsError):  # the board agrees
            client(device, experiment())


class TestReportFilter:
    def test_starts_with_the_group(self):
        assert topics.report_filter("home", "count") == "$share/count/hushmote/v1/home/report/+"
        assert topics.report_filter(None, "count") == "$share/count/hushmote/v1/+/report/+"
        for group in ("", "a/b", "a+", "#"):
            with pytest.raises(topics.NameRefused):
                topics.report_filter("home", group)


class TestParse:
    @pytest.mark.parametrize(
        ("topic", "part"),
        [
            ("", "topic"),
            ("hushmote/v1/home/report", "topic"),
            ("hushmote/v1/home/report/a/b", "topic"),
            ("hushmote/v2/home/report/a", "topic"),
            ("hushmote/v1/home/experiment/a", "topic"),
            ("hushmote/v1/Home/report/a", "fleet"),
            ("hushmote/v1//report/a", "fleet"),
            ("hushmote/v1/home/report/", "device"),
            ("hushmote/v1/home/report/A", "device"),
            ("hushmote/v1/home/report/a_b", "device"),
            ("hushmote/v1/home/report/a\n", "device"),
        ],
    )
    def test_error_names_the_invalid_part(self, topic, part):
        with pytest.raises(topics.TopicRefused) as caught:
            topics.parse_topic(topic)
        assert caught.value.part == part

    @pytest.mark.parametrize(
        "topic", ["", "x", "a/b/c", "a/b/c/experiment", "hushmote/v1/home/experiment/a/b"]
    )
    def test_experiment_topic_has_five_levels(self, topic):
        assert topics.is_experiment(topics.experiment_topic("home", "temp"))
        assert not topics.is_experiment(topics.report_topic("home", "a"))
        assert not topics.is_experiment(topic)
