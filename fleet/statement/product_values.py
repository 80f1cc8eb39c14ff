"""The values for the tables on products: volumes, limits, versions in use and known vulnerabilities."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from ...device import ldp_client
from ...server.budgets.policy import NETWORK_START_NOTE
from ...server.epsilon import MICRO, nats
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
        "device_numbers": "\n".join(map(_device_numbers, facts.in_use.groups)) or _NO_DEVICES,
        "vulnerable": ", ".join(facts.in_use.vulnerable) or "None was named.",
        **_KEYED[facts.keyed],
    }


_NO_DEVICES = (
    "Not stated. [For the maker: the number of devices with each version, for example from the update server]"
)


def _device_numbers(group: GroupShares) -> str:
    """Say whether the reports to an experiment show numbers of devices."""
    name = group.experiment
    return f"{name}: {_NO_DEVICES.replace('.', f': {group.reason}.', 1) if group.reason else 'see below.'}"


_KEYED = {
    True: {
        "keyed_only": "",
        "and_tag": ", tag",
        "changed": "Changed reports are rejected.",
        "who_asks": "Whoever has the fleet's signing key, within POLICY.",
        "keys": "A secret key for each device, derived from the fleet's master key, and the public key that "
        "verifies questions.",
    },
    False: {
        "keyed_only": "Not in this fleet, which is open. In a keyed fleet: ",
        "and_tag": "",
        "changed": "Anyone can invent reports in this open fleet.",
        "who_asks": "Anyone who may publish at the broker, within POLICY.",
        "keys": "None, because this fleet is open.",
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
        for statement in facts.vex
    ]
    return {"versions": versions, "vex": vex}
