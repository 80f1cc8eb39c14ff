"""`hushmote provision fleet`, `device` and `upgrade`: a fleet's folder, and its boards' settings."""

from __future__ import annotations

import dataclasses
import enum
import os
from pathlib import Path
from typing import Annotated

import typer

from ...server.answers import tables as show
from ...server.errors import ProvisionError, UsageError
from ...server.provisioning import authority, fleet_folder, rotation, upgrade
from ...server.provisioning import settings as provision
from ...server.provisioning.fleet_folder import DEVICES, now_utc
from ...server.provisioning.fleet_spec import MOSQUITTO, NATS, FleetSpec, aggregator_name
from ...server.provisioning.master_key import load_keys
from ...server.wire import keys
from ...server.wire.topics import check_device
from ..options import AsJson, print_json
from .first_steps import first_steps, put_connections
from .keys import keys_command
from .options import (
    MQTT_PASSWORD,
    PASSPHRASE,
    WIFI_PASSWORD,
    Days,
    FleetOf,
    Folder,
    MasterKey,
    Network,
    ask_passphrase,
    fleet_name,
    open_folder,
)
from .roster import allow_command, list_command, revoke_command
from .rotate import aggregator_command, rotate_command, say, say_next


class BrokerProgram(enum.StrEnum):
    """What --broker takes."""

    MOSQUITTO = MOSQUITTO
    NATS = NATS


provision_app = typer.Typer(
    help="Who is who: a fleet's authority, broker and keys, and its boards.", no_args_is_help=True
)


@provision_app.command("fleet")
def fleet_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to make.")],
    host: Annotated[
        list[str],
        typer.Option(
            help="A name or address by which boards and aggregators reach the broker; of each NATS server.",
        ),
    ],
    fleet: Annotated[str, typer.Option(help="Name of the fleet.")] = "home",
    broker: Annotated[
        BrokerProgram,
        typer.Option(help="One mosquitto, or one or three NATS servers."),
    ] = BrokerProgram.MOSQUITTO,
    port: Annotated[
        int,
        typer.Option(help="Port for TLS with client certificates.", min=1, max=65535),
    ] = 8883,
    password_port: Annotated[
        int | None,
        typer.Option(
            help="A second port for TLS with passwords, for boards without certificates.",
            min=1,
            max=65535,
        ),
    ] = None,
    aggregator_port: Annotated[
        int | None,
        typer.Option(
            help="A port of the aggregators' own, for the firewall; with NATS 4222 where none is given.",
            min=1,
            max=65535,
        ),
    ] = None,
    cluster_port: Annotated[
        int,
        typer.Option(
            help="With NATS: the port of the servers among themselves.",
            min=1,
            max=65535,
        ),
    ] = 6222,
    monitor_port: Annotated[
        int,
        typer.Option(
            help="With NATS: the port on which a server tells its own machine how it is.",
            min=1,
            max=65535,
        ),
    ] = 8222,
    board_host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="With NATS: one more name, for boards, which DNS gives the addresses of all servers.",
        ),
    ] = "",
    aggregators: Annotated[
        int, typer.Option(help="Number of aggregators that will share the reports.", min=1, max=64)
    ] = 1,
    broker_folder: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Where broker/ will lie on the broker's machine; else in the folder itself.",
        ),
    ] = "",
    broker_user: Annotated[
        str,
        typer.Option(help="User that mosquitto becomes when root starts it."),
    ] = "mosquitto",
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help=f"Encrypt the authority's key with a passphrase that is asked for, or {PASSPHRASE}.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a fleet: authority, broker's certificate and configuration, master key."""
    spec = FleetSpec(
        fleet,
        tuple(dict.fromkeys(host)),
        port,
        password_port,
        broker_folder,
        broker_user,
        tuple(aggregator_name(i + 1) for i in range(aggregators)),
        aggregator_port,
        broker.value,
        cluster_port,
        monitor_port,
        board_host,
    )
    _check_ports(spec)
    in_environment = keys.ENVIRONMENT_VARIABLE in os.environ
    if in_environment:
        load_keys()  # it must hold them
    made = fleet_folder.make(
        folder,
        spec,
        passphrase=ask_passphrase(new=True) if passphrase else None,
        write_master=not in_environment,
    )
    put_connections(made)
    until = {
        "ca": made.certificate("broker/ca.pem").not_valid_after_utc,
        "broker": made.broker_certificates()[0].not_valid_after_utc,
        "aggregator": made.certificate(f"aggregator/{aggregator_name(1)}.pem").not_valid_after_utc,
    }
    if as_json:
        values = dataclasses.asdict(made.fleet) | {"folder": str(folder), "master_key": not in_environment}
        print_json(values | {"until": {name: when.isoformat() for name, when in until.items()}})
        return
    ends = ", ".join(f"{name} {when:%Y-%m-%d}" for name, when in until.items())
    where = "stay in HUSHMOTE_MASTER_KEY" if in_environment else "are there"
    for line in (
        f"{folder}: fleet {made.fleet.fleet}; its certificates end:",
        f"  {ends}",
        "  authority/   keep it offline, and a backup: its key says who is who",
        "  broker/      for the broker's machine" + ("s, each its own" if broker == NATS else ""),
        f"  aggregator/  for the aggregators' machines; master and signing key {where}",
        "  devices/     boards' settings",
        *first_steps(made, in_environment),
    ):
        show.out.print(line, soft_wrap=True)


def _check_ports(spec: FleetSpec) -> None:
    if spec.broker == NATS:
        taken = [spec.port, spec.nats_port, spec.cluster_port, spec.monitor_port]
        if len(set(taken)) < len(taken):
            raise UsageError("--port, --aggregator-port, --cluster-port and --monitor-port must differ")
        return
    if spec.board_host:
        raise UsageError("--board-host is for --broker nats: give mosquitto's names with --host")
    ports = [p for p in (spec.port, spec.password_port, spec.aggregator_port) if p is not None]
    if len(set(ports)) < len(ports):
        raise UsageError("--port, --password-port and --aggregator-port must differ")


@provision_app.command("device")
def device_command(
    device: Annotated[
        str | None,
        typer.Argument(
            help="Device id, of a-z, 0-9 and -; random where it is left out. Never a MAC or a chip id."
        ),
    ] = None,
    folder: Folder = None,
    fleet: FleetOf = None,
    master_key: MasterKey = None,
    open_fleet: Annotated[
        bool,
        typer.Option(
            "--open",
            help="The fleet is open: reports carry no tags, so anyone can forge them.",
        ),
    ] = False,
    certificate: Annotated[
        bool | None,
        typer.Option(
            "--certificate/--password",
            help="With --folder: a certificate for the broker (default), or a login.",
        ),
    ] = None,
    days: Days = authority.DEVICE_DAYS,
    wifi_ssid: Annotated[
        str,
        typer.Option(
            help=f"Name of the Wi-Fi network. Its password is asked for, or set {WIFI_PASSWORD}.",
        ),
    ] = "",
    wifi_country: Annotated[
        str,
        typer.Option(help="The country's two letters, where the chip wants them: DE."),
    ] = "",
    mqtt_host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="The broker's name or address, as the board reaches it; else the folder's.",
        ),
    ] = "",
    mqtt_port: Annotated[
        int | None,
        typer.Option(
            help="The broker's port; else the folder's, or 1883, or 8883 with --mqtt-ca.",
            show_default=False,
        ),
    ] = None,
    mqtt_user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"The board's login at the broker. Set {MQTT_PASSWORD} to its password.",
            show_default=False,
        ),
    ] = None,
    mqtt_ca: Annotated[
        Path | None,
        typer.Option(
            help="PEM file of the CA that vouches for the broker; with it the board speaks TLS.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the settings file is written; else devices/ of the fleet's folder, or here.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make one board's settings: its id, its keys, its network."""
    # A password is never typed: every user of this machine can read a command line.
    mqtt_password = os.environ.get(MQTT_PASSWORD)
    network = Network(wifi_ssid, None, wifi_country, mqtt_host, mqtt_port, mqtt_user, mqtt_password, mqtt_ca)
    login = certificate is False
    opened = None if folder is None else open_folder(folder, signs=not login)
    if opened is None and certificate is not None:
        raise UsageError("--certificate and --password need the fleet's folder: give --folder")
    if opened is not None and (network.mqtt_port or network.mqtt_user or network.mqtt_ca):
        raise UsageError("the folder says which port, CA and login: leave out --mqtt-port, -user and -ca")
    fleet = fleet_name(fleet, opened)
    fleet_keys = None if open_fleet else load_keys(master_key or (opened and opened.master_file()))
    if fleet_keys is None and not open_fleet:
        raise ProvisionError("give --master-key FILE for a fleet with keys, or --open for an open one")
    network = network.asked()
    if opened is not None:
        network = network.at_broker(opened, login)
    # Everything is checked before the authority or the broker learn of the board.
    device = provision.provision_device(fleet_keys, fleet, device, **vars(network)).device_id
    path = provision.settings_path(check_device(device), out or (opened.path / DEVICES if opened else Path()))
    if opened is not None:
        if path.exists():
            raise ProvisionError(
                f"{path} exists; for new keys of the same board: `hushmote provision rotate boards`"
            )
        if login:
            password = opened.issue_login(device)
            network = dataclasses.replace(network, mqtt_user=device, mqtt_password=password)
        else:
            network = dataclasses.replace(network, certificate=opened.issue_device(device, now_utc(), days))
    settings = provision.provision_device(fleet_keys, fleet, device, path=path, **vars(network))
    if as_json:
        print_json({"device_id": device, "fleet": fleet, "settings": str(path)})
        return
    show.out.print(provision.describe(settings, path))
    if opened is not None and (login or opened.fleet.broker == NATS):
        say_next([rotation.reload_broker(opened.fleet)])


@provision_app.command("upgrade")
def upgrade_command(
    settings: Annotated[
        list[Path] | None, typer.Argument(metavar="SETTINGS", help="Boards' settings outside of the folder.")
    ] = None,
    folder: Folder = None,
    master_key: MasterKey = None,
    as_json: AsJson = False,
) -> None:
    """Give a signing key to a fleet that was made before there were any; may be run again."""
    opened = None if folder is None and master_key is not None else open_folder(folder)
    paths = list(settings or ())
    if opened is not None:
        paths += sorted((opened.path / DEVICES).glob("*.settings.json"))
    say(upgrade.upgrade(master_key or (opened and opened.master_file()), paths), as_json)


provision_app.command("keys")(keys_command)
provision_app.command("allow")(allow_command)
provision_app.command("revoke")(revoke_command)
provision_app.command("list")(list_command)
provision_app.command("aggregator")(aggregator_command)
provision_app.command("rotate")(rotate_command)
