"""The values for the tables on products: volumes, limits, versions in use and known vulnerabilities."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from ...device import ldp_client
from ...server.budgets.policy import NETWORK_START_NOTE, notes
from ...server.epsilon import MICRO, nats
from ...server.wire.report import TAG_BYTES
from ...server.words.numbers import counted
from .fleet_facts import FleetFacts, FleetQuestion
from .versions_in_use import GroupShares
from .volume import volume_of


def volume_values(facts: FleetFacts, q: FleetQuestion) -> dict[str, str]:
    """Return the values on the volume and the end of a question."""
    volume, expires = volume_of(facts, q), q.version.expires
    return {
        "report_bytes": counted(volume.report_bytes, "byte"),
        "size": volume.size,
        "frequency": volume.frequency,
        "and_group": f", {group}" if (group := q.version.experiment.group) else "",
        "end": "no longer asked" if not q.is_asked else f"last day {expires}" if expires else "no last day",
    }


def fleet_values(facts: FleetFacts) -> dict[str, str]:
    """Return the values on the whole fleet."""
    p, volumes = facts.policy, [volume_of(facts, q) for q in facts.current_questions]
    version = f"Firmware {facts.firmware_version}." if facts.firmware_version else ""
    squares = f" or Σε² is at most {Decimal(p.squares) / MICRO**2:f}" if p.squares else ""
    network = "The network can only withdraw it."
    return {
        "limits": (
            f"A device makes reports while Σε of its lifetime is at most {nats(p.sum)}{squares}, each with ε "
            f"of at most {nats(p.epsilon)}."
        ),
        "allowed": ", ".join(p.experiments),
        "rules": ", ".join(p.rules),
        "groups": ", ".join(p.groups) or "none",
        "network": NETWORK_START_NOTE if facts.consent.network else network,
        "unsent": str(vars(ldp_client)["_MAX_UNSENT"]),
        "policy_file": facts.policy_file,
        "firmware_version": version or "[For the maker: the version of the firmware]",
        "all_reports": f"{sum(volume.lifetime_reports for volume in volumes):,}",
        "all_bytes": f"{sum(volume.lifetime_bytes for volume in volumes):,}",
        "devices": "\n".join(f"{q.name}: {q.devices:,}" for q in facts.questions),
        "days_behind": facts.in_use.days_behind or "Not asked.",
        "device_numbers": "\n".join(map(_device_numbers, facts.in_use.groups))
        or f"Not stated. {_DEVICES_MARK}",
        "vulnerable": ", ".join(facts.in_use.vulnerable) or "None was named.",
        "repository": _REPOSITORY,
        "support_period": _SUPPORT_PERIOD,
        "tag_bits": str(8 * TAG_BYTES),
        "status_bytes": str(_STATUS_BYTES),
        "micropython": _micropython(facts),
        "test_runs": "\n".join(run.words for run in facts.evidence.tests) or _NO_TESTS,
        **_KEYED[facts.keyed],
        **_NOTIFICATION[facts.consent.each],
        **_log_values(facts),
    }


_REPOSITORY = "https://github.com/hushmote/hushmote"  # `make release` puts the configured address here
_SUPPORT_PERIOD = (
    "Fixes go into the newest release. It is supported until the next one, and for at least two years after "
    "its date"
)
"""A quotation from SECURITY.md."""
_STATUS_BYTES = 400
"""The longest status message that docs/wire-format.md allows."""
_NO_TESTS = "[For the maker: the results of the tests, with --tests: date, commit and number of tests]"
_MOSQUITTO = "tests/fleet/provisioning/test_mosquitto.py::TestAdmission::"


def _log_values(facts: FleetFacts) -> dict[str, str]:
    """Return who may ask under a policy with a log, in place of the keyed fleet's words."""
    policy = facts.policy
    if policy.log is None:
        return {}
    return {"who_asks": f"{_KEYED[facts.keyed]['who_asks']} {notes(policy)[-1]}"}


def _micropython(facts: FleetFacts) -> str:
    version = facts.evidence.micropython
    missing = "[For the maker: the version of MicroPython, with --micropython]"
    return f"MicroPython {version}." if version else missing


def transport_values(facts: FleetFacts) -> Mapping[str, str]:
    """Return how reports travel, and the tests of it; the maker has to say it for another broker."""
    if not facts.hosts:
        return {
            "transport": "[For the maker: the broker, and whether it uses TLS]",
            "transport_test": "not ours",
            "access_test": "not ours",
            "with_hosts": "If `hushmote provision` configured the broker: ",
        }
    identification = "which identifies each device by its certificate or password"
    return {
        "transport": f"MQTT over TLS 1.2 or later to {', '.join(facts.hosts)}, {identification}.",
        "transport_test": f"{_MOSQUITTO}test_refuses_tls_below_1_2_despite_system_policy",
        "access_test": f"{_MOSQUITTO}test_requires_certificate_on_both_ports",
        "with_hosts": "",
    }


_NOTIFICATION = {
    True: {
        "asks_again": "The device asks again if a question changes or reveals more.",
        "disables_asking": "New firmware with another POLICY.",
        "notification": "UNM, on the device.",
        "notification_test": "tests/device/test_consent.py::TestQuestion::test_change_asks_again",
    },
    False: {
        "asks_again": "[For the maker: how users learn of changed questions]",
        "disables_asking": "",
        "notification": "[For the maker: UNM]",
        "notification_test": "not ours",
    },
}
_DEVICES_MARK = "[For the maker: the number of devices with each version, for example from the update server]"


def _device_numbers(group: GroupShares) -> str:
    """Say whether the reports to an experiment show numbers of devices."""
    stated = f"Not stated: {group.reason}. {_DEVICES_MARK}" if group.reason else "see below."
    return f"{group.experiment}: {stated}"


_KEYED = {
    True: {
        "keyed_only": "",
        "and_tag": ", tag",
        "changed": "Changed reports are rejected.",
        "who_asks": "Whoever has the fleet's signing key, within POLICY.",
        "report_mechanism": "SCM: a tag by the device's key. For TLS, see (2)(e) of the controls.",
        "report_test": "tests/server/wire/test_report.py::TestVerify::"
        "test_rejects_wrong_device_key_experiment_and_flipped_bits",
        "question_mechanism": "A question signed with another key is rejected.",
        "question_test": "tests/device/test_client.py::TestSignature::test_rejects_another_key",
    },
    False: {
        "keyed_only": "Not in this fleet, which is open. In a keyed fleet: ",
        "and_tag": "",
        "changed": "Anyone can invent reports in this open fleet.",
        "who_asks": "Anyone who may publish at the broker, within POLICY.",
        "report_mechanism": "None on the report itself. For TLS, see (2)(e) of the controls.",
        "report_test": "tests/server/wire/test_report.py::TestDecode::test_open_report_has_no_tag",
        "question_mechanism": "None: the fleet is open. A question's first report pins its cap.",
        "question_test": "tests/device/test_client.py::TestCap::"
        "test_total_cost_of_versions_never_exceeds_pinned_cap",
    },
}


def evidence_values(facts: FleetFacts) -> Mapping[str, Sequence[Mapping[str, str]]]:
    """Return the items of the tables on versions in use and on vulnerabilities, by the name of the item."""
    versions = [
        {
            "in_use": row.title,
            "in_use_reports": "–" if row.reports is None else f"{row.reports:,}",
            "in_use_share": row.words(group),
            "in_use_experiment": group.experiment,
            "in_use_days": f"{group.first} to {group.last}",
        }
        for group in facts.in_use.groups
        for row in group.rows
    ]
    vex = [
        {
            "vulnerability": statement.vulnerability,
            "vex_status": statement.status,
            "vex_reasons": statement.reasons or "none stated",
            "vex_source": statement.source,
        }
        for statement in facts.evidence.vex
    ]
    return {"versions": versions, "vex": vex}
