"""MQTT topics for reports, experiments and results, and the names allowed in them; pure functions."""

import re

from ..errors import HushmoteError

ROOT = "hushmote/v1"
"""The first levels of all topics; a broker's address may put a prefix before them."""

_FLEET = re.compile(r"[a-z0-9_-]{1,32}", re.ASCII)
_DEVICE = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
_TOPIC = re.compile(rf"{ROOT}/({_FLEET.pattern})/report/({_DEVICE.pattern})", re.ASCII)
_EXPERIMENT = re.compile(rf"{ROOT}/({_FLEET.pattern})/experiment/({_FLEET.pattern})", re.ASCII)

SIMULATED_PREFIX = "sim"
"""The prefix of simulated fleets' names; other fleets must not receive simulated reports."""


class NameRefused(HushmoteError):
    """Raised for a name that a topic cannot contain; the message says what was expected."""


class TopicRefused(ValueError):
    """Raised for a topic that is not a report topic.

    Attributes:
        part: The invalid part: "fleet", "device" or "topic".
    """

    def __init__(self, part: str) -> None:
        super().__init__(f"not a report topic: its {part} is invalid")
        self.part = part


def is_fleet(name: str) -> bool:
    """Return whether a fleet or experiment can have this name."""
    return _FLEET.fullmatch(name) is not None


def is_device(device: str) -> bool:
    """Return whether a device can have this id, which excludes MQTT wildcards."""
    return _DEVICE.fullmatch(device) is not None


def check_fleet(name: str) -> str:
    """Return the name of a fleet or experiment.

    Raises:
        NameRefused: If the name is invalid.
    """
    if not is_fleet(name):
        raise NameRefused(f"name {name!r} must be 1 to 32 of a-z, 0-9, _ and -")
    return name


def check_device(device: str) -> str:
    """Return a device id.

    Raises:
        NameRefused: If the id is invalid.
    """
    if not is_device(device):
        raise NameRefused(f"device id {device!r} must be 1 to 32 of a-z, 0-9 and -")
    return device


def report_topic(fleet: str, device: str) -> str:
    """Return the topic for a device's reports.

    Raises:
        NameRefused: If a name is invalid.
    """
    return f"{ROOT}/{check_fleet(fleet)}/report/{check_device(device)}"


def status_topic(fleet: str, device: str) -> str:
    """Return the topic on which a device's status is retained.

    Raises:
        NameRefused: If a name is invalid.
    """
    return f"{ROOT}/{check_fleet(fleet)}/status/{check_device(device)}"


def experiment_topic(fleet: str, name: str) -> str:
    """Return the topic on which an experiment is retained.

    Raises:
        NameRefused: If a name is invalid.
    """
    return f"{ROOT}/{check_fleet(fleet)}/experiment/{check_fleet(name)}"


def result_topic(fleet: str, name: str) -> str:
    """Return the topic on which an experiment's result is retained.

    Raises:
        NameRefused: If a name is invalid.
    """
    return f"{ROOT}/{check_fleet(fleet)}/result/{check_fleet(name)}"


def alert_topic(fleet: str, part: str) -> str:
    """Return the topic of a fleet's alerts; `part` is "event" for new ones, "active" for those that last.

    Raises:
        NameRefused: If a name is invalid.
    """
    return f"{ROOT}/{check_fleet(fleet)}/alert/{check_fleet(part)}"


def statement_topic(fleet: str) -> str:
    """Return the topic covered by the signature of a fleet's statement; nothing is published on it.

    Raises:
        NameRefused: If the fleet's name is invalid.
    """
    return f"{ROOT}/{check_fleet(fleet)}/statement"


def signed_file_topic(fleet: str) -> str:
    """Return the topic covered by the signatures of a fleet's signed files; nothing is published on it.

    Raises:
        NameRefused: If the fleet's name is invalid.
    """
    return f"{ROOT}/{check_fleet(fleet)}/signed"


def report_filter(fleet: str | None = None, group: str | None = None) -> str:
    """Return the MQTT topic filter for all reports from a fleet, or from all fleets.

    Args:
        fleet: The fleet's name; None for all fleets.
        group: The name of a group whose members share the reports; None to receive all reports.

    Raises:
        NameRefused: If a name is invalid.
    """
    share = "" if group is None else f"$share/{check_fleet(group)}/"
    return f"{share}{ROOT}/{'+' if fleet is None else check_fleet(fleet)}/report/+"


def experiment_filter(fleet: str | None = None) -> str:
    """Return the MQTT topic filter for all experiments of a fleet, or of all fleets.

    Raises:
        NameRefused: If the fleet's name is invalid.
    """
    return f"{ROOT}/{'+' if fleet is None else check_fleet(fleet)}/experiment/+"


def proof_filter(fleet: str | None = None) -> str:
    """Return the MQTT topic filter for all proofs of a fleet's experiments, or of all fleets'.

    Raises:
        NameRefused: If the fleet's name is invalid.
    """
    return f"{ROOT}/{'+' if fleet is None else check_fleet(fleet)}/proof/+"


def is_experiment(topic: str) -> bool:
    """Return whether a topic can hold an experiment."""
    return _kind(topic) == "experiment"


def is_proof(topic: str) -> bool:
    """Return whether a topic can hold an experiment's proof from the log."""
    return _kind(topic) == "proof"


def _kind(topic: str) -> str:
    parts = topic.split("/")
    return parts[3] if len(parts) == 5 else ""


def parse_experiment_topic(topic: str) -> tuple[str, str] | None:
    """Return the fleet and name in an experiment's topic, or None if it is not valid."""
    match = _EXPERIMENT.fullmatch(topic)
    return match and (match[1], match[2])


def parse_topic(topic: str) -> tuple[str, str]:
    """Return the fleet and device in a report topic.

    Raises:
        TopicRefused: If the topic is not a report topic; the error names the invalid part.
    """
    if match := _TOPIC.fullmatch(topic):
        return match[1], match[2]
    parts = topic.split("/")
    if len(parts) != 5 or parts[0] != "hushmote" or parts[1] != "v1" or parts[3] != "report":
        raise TopicRefused("topic")
    if not is_fleet(parts[2]):
        raise TopicRefused("fleet")
    raise TopicRefused("device")
