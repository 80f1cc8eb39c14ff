"""`hushmote provision fleet`, `device`, `upgrade` and `keys`: a fleet's folder and its boards' settings."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError

from ...fleet.provisioning import batch, firmware, fleet_folder, rotation
from ...fleet.provisioning import settings as provision
from ...fleet.provisioning.fleet_folder import DEVICES, SIGNING, FleetFolder, now_utc
from ...fleet.provisioning.fleet_spec import NATS, FleetSpec, aggregator_name, describe_error
from ...fleet.provisioning.master_key import create_keys, load_keys
from ...fleet.provisioning.settings import Network
from ...server.answers import tables as show
from ...server.errors import ProvisionError, UsageError
from ...server.wire import keys
from ...server.wire.topics import check_device
from ...server.words.numbers import counted
from ..options import AsJson, Folder, FolderFleet, MasterKey, print_json
from ..progress import progress
from .first_steps import first_steps
from .forget import forget_command
from .options import (
    MQTT_PASSWORD,
    PASSPHRASE,
    WIFI_PASSWORD,
    ask_passphrase,
    ask_wifi_password,
    fleet_name,
    open_folder,
    print_done,
    print_next,
)
from .roster import list_command, open_store, revoke_command
from .rotate import rotate_command

provision_app = typer.Typer()
ASKS_FIRST = "each device stays silent until someone at the device agrees"
CONSENT_GIVEN = "given elsewhere: {}"
_FIRMWARE = {
    firmware.Firmware.C: "for firmware in C",
    firmware.Firmware.ESPHOME: "for firmware in ESPHome",
    firmware.Firmware.PAGE: "as a page of flash",
    firmware.Firmware.NVS: "for nvs_partition_gen",
}
_HOST_AND_PORT = re.compile(r"(?:\[([^]]+)\]|([^:,]+)):([0-9]+)")  # a single host with its port
# Fields of FleetSpec that `--set` accepts because they have no separate option.
FIELDS = (
    "port, password_port, aggregator_port, cluster_port, monitor_port, board_host, broker_user, device_days"
)

OpenFleet = Annotated[
    bool,
    typer.Option("--open", help="The fleet is open; its reports carry no tags, so anyone can forge them."),
]
Login = Annotated[
    bool,
    typer.Option("--password", help="With --folder: issue a broker login instead of a certificate."),
]
WifiSsid = Annotated[
    str,
    typer.Option(
        help=f"Name of the Wi-Fi network. You are asked for its password, or set {WIFI_PASSWORD}. If the "
        "chip needs a country, set HUSHMOTE_WIFI_COUNTRY, such as DE."
    ),
]
Broker = Annotated[
    str,
    typer.Option(
        help="Broker URL for the board: mqtt://[user@]host[:1883], or mqtts:// with --ca; for a cluster "
        "host,host,...; with ?prefix=tenants/acme for a topic prefix; set "
        f"{MQTT_PASSWORD} to the user's password. With --folder: one of the broker's names; default: the "
        "first.",
        metavar="URL",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        help="PEM file with the CAs that the board trusts to sign the broker's certificate, such as the "
        "old and the new one; makes the board use TLS."
    ),
]


def fleet_command(  # noqa: PLR0913 - one for each option
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to create.")],
    host: Annotated[
        list[str],
        typer.Option(
            help="Name or address at which boards and aggregators reach the broker; one per NATS server."
        ),
    ],
    fleet: Annotated[str, typer.Option(help="Name of the fleet.")] = "home",
    broker: Annotated[
        Literal["mosquitto", "nats"], typer.Option(help="One mosquitto, or one or three NATS servers.")
    ] = "mosquitto",
    aggregators: Annotated[
        int, typer.Option(help="Number of aggregators that will share the reports.", min=1, max=64)
    ] = 1,
    broker_folder: Annotated[
        str, typer.Option(help="Path of broker/ on the broker's machine; default: its path in FOLDER.")
    ] = "",
    consent: Annotated[
        str,
        typer.Option(
            help="Where people have opted in, such as signed forms; devices then do not ask, and the "
            "statement shows it.",
            metavar="WHERE",
        ),
    ] = "",
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=f"Override a setting, such as port=8884; fields: {FIELDS}. May be repeated.",
            metavar="FIELD=VALUE",
        ),
    ] = None,
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help=f"Encrypt the authority's key with a passphrase, from a prompt or {PASSPHRASE}.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a fleet: authority, broker certificate and configuration, master key."""
    in_environment = keys.ENVIRONMENT_VARIABLE in os.environ
    spec = _spec(
        fields or (),
        fleet=fleet,
        hosts=tuple(dict.fromkeys(host)),
        broker=broker,
        broker_folder=broker_folder,
        aggregators=tuple(aggregator_name(i + 1) for i in range(aggregators)),
        consent=consent.strip(),
    )
    if in_environment:
        load_keys()  # fail early if it does not contain keys
    new_folder = fleet_folder.make(
        folder,
        spec,
        passphrase=ask_passphrase(new=True) if passphrase else None,
        write_master=not in_environment,
    )
    until = {
        "ca": new_folder.certificate("broker/ca.pem").not_valid_after_utc,
        "broker": new_folder.broker_certificates()[0].not_valid_after_utc,
        "aggregator": new_folder.certificate(f"aggregator/{aggregator_name(1)}.pem").not_valid_after_utc,
    }
    if as_json:
        values = {"folder": str(folder), "master_key": not in_environment}
        ends = {name: when.isoformat() for name, when in until.items()}
        print_json(dataclasses.asdict(new_folder.fleet) | values | {"until": ends})
        return
    ends = ", ".join(f"{name} {when:%Y-%m-%d}" for name, when in until.items())
    key_location = "keys remain in HUSHMOTE_MASTER_KEY" if in_environment else "master key is there"
    for line in (
        f"{folder}: fleet {new_folder.fleet.fleet}; its certificates end:",
        f"  {ends}",
        "  authority/   keep it offline, with a backup: its keys sign certificates and experiments",
        "  broker/      for the broker's machine" + ("s, one folder each" if spec.broker == NATS else ""),
        f"  aggregator/  for the aggregators' machines; the {key_location}",
        "  devices/     devices' settings",
        f"  consent      {CONSENT_GIVEN.format(spec.consent) if spec.consent else ASKS_FIRST}",
        *first_steps(new_folder, in_environment),
    ):
        show.out.print(line, soft_wrap=True)


def _spec(texts: Sequence[str], **values: Any) -> FleetSpec:
    """Return the fleet specified by the options and FIELD=VALUE texts; raise UsageError if invalid."""
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in values or name not in FIELDS.split(", "):
            raise UsageError(
                f"--set {text}: must be FIELD=VALUE with each field at most once; the fields are {FIELDS}"
            )
        values[name] = value
    try:
        return FleetSpec(**values)
    except ValidationError as e:
        raise UsageError(f"--set: {describe_error(e, FleetSpec)}") from None


def device_command(  # noqa: PLR0913 - one for each option
    device: Annotated[
        str | None,
        typer.Argument(
            help="Device id of a-z, 0-9 and -; random by default. Never use a MAC address or chip id."
        ),
    ] = None,
    folder: Folder = None,
    fleet: FolderFleet = None,
    master_key: MasterKey = None,
    open_fleet: OpenFleet = False,
    login: Login = False,
    wifi_ssid: WifiSsid = "",
    broker: Broker = "",
    ca: Ca = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the settings file; default: devices/ in the fleet's folder, or the "
            "current folder.",
            metavar="FOLDER",
        ),
    ] = None,
    target: Annotated[
        firmware.Firmware | None,
        typer.Option(
            "--for",
            help="Also write DEVICE.h for firmware in C, DEVICE.esphome.yaml, DEVICE.page.bin for a page of "
            "flash, or DEVICE.nvs.csv for ESP-IDF; if the device already has settings, write only "
            "this file.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create one device's settings: its id, keys and network."""
    if target and device and (path := _settings_path(device, folder, out)).exists():
        has_settings = True
        opened, settings = None, provision.load_settings(path)
    else:
        has_settings = False
        opened = None if folder is None else open_folder(folder, signs=not login)
        network = _network(opened, broker, ca, login)
        name = fleet_name(fleet, opened)
        fleet_keys = _fleet_keys(master_key or (opened and opened.master_file()), open_fleet)
        network = _with_wifi(network, wifi_ssid)
        # Check everything before adding the board to the authority and the broker.
        device = provision.provision_device(fleet_keys, name, device, network).device_id
        path = _settings_path(device, folder, out)
        if opened is not None:
            network = _with_credentials(opened, device, network, path, login)
        is_consent_given = bool(opened and opened.fleet.consent)
        settings = provision.provision_device(
            fleet_keys, name, device, network, path=path, consent_given=is_consent_given
        )
    file = firmware.write(settings, path.parent, target) if target else None
    if as_json:
        document = {"device_id": settings.device_id, "fleet": settings.fleet, "settings": str(path)}
        print_json(document | ({"firmware": str(file)} if file else {}))
        return
    if not has_settings:
        show.out.print(provision.describe(settings, path, for_flash=file is None))
    if file and target:
        show.out.print(f"{file}: the same settings {_FIRMWARE[target]}; only you can read it")
    if opened is not None and (login or opened.fleet.broker == NATS):
        print_next([rotation.reload_broker(opened.fleet)])


def devices_command(  # noqa: PLR0913 - one for each option
    count: Annotated[int, typer.Option(help="Number of devices.", min=1, max=batch.MAX_COUNT)],
    target: Annotated[
        Literal["page", "nvs"],
        typer.Option(
            "--for",
            help="page: for each device one page of flash, DEVICE.page.bin. nvs: DEVICE.nvs.csv for "
            "nvs_partition_gen, and two files for mfg_gen.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="New folder for the devices' files and roster.csv.", metavar="FOLDER")
    ],
    first: Annotated[
        str | None,
        typer.Option(
            help="Id of the first device, such as line1-00001; the others count up from it. Default: random "
            "ids.",
            metavar="ID",
        ),
    ] = None,
    folder: Folder = None,
    fleet: FolderFleet = None,
    master_key: MasterKey = None,
    open_fleet: OpenFleet = False,
    login: Login = False,
    wifi_ssid: WifiSsid = "",
    broker: Broker = "",
    ca: Ca = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="SQLAlchemy URL of the store, if only allowed devices count in the fleet: allow these.",
            metavar="URL",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create many devices' settings for a production line, with one firmware image for all.

    If the command was interrupted, run it again: it continues with the same ids.
    """
    opened = None if folder is None else open_folder(folder, signs=not login)
    network = _with_wifi(_network(opened, broker, ca, login), wifi_ssid)
    with contextlib.ExitStack() as stack:
        request = batch.Batch(
            _fleet_keys(master_key or (opened and opened.master_file()), open_fleet),
            fleet_name(fleet, opened),
            network,
            firmware.Firmware(target),
            count,
            first,
            opened,
            login,
            bool(opened and opened.fleet.consent),
            None if store is None else stack.enter_context(open_store(store)),
        )
        advance = stack.enter_context(progress("provisioning", count))
        result = batch.provision_devices(request, out, now_utc(), advance)
    if as_json:
        roster = str(out / batch.ROSTER)
        print_json({"fleet": request.fleet, "roster": roster, "devices": result.devices, "new": result.new})
        return
    show.out.print(
        f"{out}: {counted(result.devices, 'device')} of fleet {request.fleet}, {result.new:,} of them new; "
        "only you can read the files",
        soft_wrap=True,
    )
    show.out.print(f"{out / batch.ROSTER}: their ids, files and SHA-256; no keys", soft_wrap=True)
    parts = {"Wi-Fi (--wifi-ssid)": network.wifi_ssid, "broker (--broker or --folder)": network.mqtt_host}
    missing = " and no ".join(name for name, value in parts.items() if not value)
    if missing and result.new:
        show.out.print(
            f"the files have no {missing}: the firmware must provide what it needs", soft_wrap=True
        )
    if opened is not None and result.new and (login or opened.fleet.broker == NATS):
        print_next([rotation.reload_broker(opened.fleet)])


def _with_wifi(network: Network, ssid: str) -> Network:
    return dataclasses.replace(
        network,
        wifi_ssid=ssid,
        wifi_password=ask_wifi_password(ssid),
        wifi_country=os.environ.get("HUSHMOTE_WIFI_COUNTRY", ""),
    )


def _settings_path(device: str, folder: Path | None, out: Path | None) -> Path:
    """Return a device's settings path: in `out`, devices/ of the fleet's folder, or the current folder."""
    if out or folder is None:
        return provision.settings_path(check_device(device), out or Path())
    return provision.settings_path(check_device(device), open_folder(folder).path / DEVICES)


def _network(opened: FleetFolder | None, broker: str, ca: Path | None, login: bool) -> Network:
    if opened is None and login:
        raise UsageError("--password requires the fleet's folder; give --folder")
    if opened is None:
        return _at_broker(broker, ca)
    if ca:
        raise UsageError("the folder contains the broker's CA; omit --ca")
    return _in_folder(opened, broker, login)


def _fleet_keys(master_key: Path | None, open_fleet: bool) -> keys.FleetKeys | None:
    fleet_keys = None if open_fleet else load_keys(master_key)
    if fleet_keys is None and not open_fleet:
        raise ProvisionError("give --master-key FILE for a keyed fleet, or --open for an open fleet")
    return fleet_keys


def _with_credentials(opened: FleetFolder, device: str, network: Network, path: Path, login: bool) -> Network:
    """Return the network with a new login or certificate, with which the broker admits the device."""
    if path.exists():
        raise ProvisionError(
            f"{path} already exists; to issue new keys for the same board, use `hushmote provision "
            "rotate devices`"
        )
    if login:
        return dataclasses.replace(network, mqtt_user=device, mqtt_password=opened.issue_login(device))
    return dataclasses.replace(network, certificate=opened.issue_device(device, now_utc()))


def _at_broker(broker: str, ca: Path | None) -> Network:
    """Return a board's network settings without a fleet's folder; the host may be empty, to be set later."""
    scheme, _, rest = broker.rpartition("://")
    user, _, address = rest.rpartition("@")
    hosts, _, query = address.partition("?")
    name, _, prefix = query.partition("=")
    if scheme in ("ws", "wss"):
        raise UsageError(
            "these boards speak MQTT over TCP: write mqtt:// or mqtts://; if the network lets only HTTPS "
            "through, send the reports to a `hushmote door`"
        )
    if scheme not in ("", "mqtt", "mqtts") or ":" in user:
        raise UsageError(
            "write a board's broker as mqtt://[user@]host[:port][?prefix=LEVELS], or mqtts:// with --ca; "
            f"set {MQTT_PASSWORD} to the user's password"
        )
    if scheme and (scheme == "mqtts") != (ca is not None):
        raise UsageError("TLS requires both mqtts:// and --ca, the PEM file of the broker's CA")
    if query and name != "prefix":
        raise UsageError(f"a board's broker has no {name}: only ?prefix=LEVELS may follow its address")
    port = None
    if single_host := _HOST_AND_PORT.fullmatch(hosts):
        hosts, port = single_host[1] or single_host[2], int(single_host[3])
    elif "," not in hosts:
        hosts = hosts.strip("[]")
    return Network(
        mqtt_host=hosts,
        mqtt_port=port,
        mqtt_prefix=prefix.removesuffix("/"),
        mqtt_user=user or None,
        mqtt_password=os.environ.get(MQTT_PASSWORD),
        mqtt_ca=ca,
    )


def _in_folder(folder: FleetFolder, broker: str, login: bool) -> Network:
    fleet = folder.fleet
    try:
        names = set(provision.broker_names(broker))
    except ValueError:
        raise UsageError(
            "the folder defines port, CA and login: give --broker one host, or several separated by commas"
        ) from None
    if not names <= set(fleet.board_hosts):
        raise UsageError(
            f"the broker's certificate names {', '.join(fleet.board_hosts)} and not {broker}, so "
            "boards would reject it; change its names with `hushmote provision rotate broker NAME ...`"
        )
    if login:
        folder.check_logins()
    # A single broker may have several names; in a cluster, a board tries the next server if one is down.
    hosts = ",".join(fleet.hosts) if fleet.broker == NATS else fleet.hosts[0]
    return Network(
        mqtt_host=broker or fleet.board_host or hosts,
        mqtt_port=fleet.password_port if login else fleet.port,
        mqtt_ca=folder.path / "broker/ca.pem",
    )


def upgrade_command(
    settings: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SETTINGS", help="Settings files of devices outside the folder."),
    ] = None,
    folder: Folder = None,
    master_key: MasterKey = None,
    as_json: AsJson = False,
) -> None:
    """Give a fleet a separate signing key if it does not have one; safe to run again."""
    opened = None if folder is None and master_key is not None else open_folder(folder)
    paths = list(settings or ())
    if opened is not None:
        paths += sorted((opened.path / DEVICES).glob("*.settings.json"))
    signing = opened.path / SIGNING if opened is not None and master_key is None else None
    print_done(rotation.upgrade(master_key or (opened and opened.master_file()), paths, signing), as_json)


def keys_command(
    file: Annotated[Path, typer.Argument(help="File to write; only its owner may read it (mode 0600).")],
) -> None:
    """Create a server's master key and, next to it in signing.key, the key that signs experiments.

    `hushmote provision fleet` creates both for a fleet with its own authority.
    """
    signing = file.with_name("signing.key")
    if signing == file:
        raise UsageError(f"{file} is the signing key's file name; choose another name for the master key")
    create_keys(file, signing)
    show.out.print(f"{file} contains a new master key, for aggregators; there is no other copy")
    show.out.print(
        f"{signing} contains a new signing key, for people who sign experiments; keep it elsewhere"
    )


provision_app.command("fleet")(fleet_command)
provision_app.command("device")(device_command)
provision_app.command("devices")(devices_command)
provision_app.command("upgrade")(upgrade_command)
provision_app.command("keys")(keys_command)
provision_app.command("list")(list_command)
provision_app.command("revoke")(revoke_command)
provision_app.command("forget")(forget_command)
provision_app.command("rotate")(rotate_command)
