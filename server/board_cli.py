"""The commands for a board on the desk: `hushmote provision` and `hushmote flash`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from . import provision, show
from .flash import flash
from .keys import load_master_key
from .options import AsJson, print_json


def provision_command(
    device: Annotated[
        str | None, typer.Argument(help="Device id; random where it is left out. Never a MAC or a chip id.")
    ] = None,
    fleet: Annotated[str, typer.Option(help="Name of the fleet.")] = "home",
    master_key: Annotated[
        Path | None, typer.Option(help="Master key file; or set HUSHMOTE_MASTER_KEY.", show_default=False)
    ] = None,
    open_fleet: Annotated[
        bool, typer.Option("--open", help="The fleet is open: no keys, anyone can forge.")
    ] = False,
    wifi_ssid: Annotated[
        str, typer.Option(help="Name of the Wi-Fi network; its password is asked for.")
    ] = "",
    wifi_password: Annotated[
        str | None, typer.Option(envvar="HUSHMOTE_WIFI_PASSWORD", show_envvar=True, hidden=True)
    ] = None,
    wifi_country: Annotated[str, typer.Option(help="Two letters, where the chip wants them.")] = "",
    mqtt_host: Annotated[str, typer.Option(help="Broker as the board reaches it.")] = "",
    mqtt_port: Annotated[
        int | None, typer.Option(help="1883, or 8883 with --mqtt-ca.", show_default=False)
    ] = None,
    mqtt_user: Annotated[str | None, typer.Option(help="Login at the broker.")] = None,
    mqtt_password: Annotated[
        str | None, typer.Option(envvar="HUSHMOTE_MQTT_PASSWORD", show_envvar=True, hidden=True)
    ] = None,
    mqtt_ca: Annotated[Path | None, typer.Option(help="PEM file with the broker's CA: TLS.")] = None,
    folder: Annotated[Path, typer.Option(help="Where the settings file is written.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Make one board's settings: its id, its keys, its network."""
    master = None if open_fleet else load_master_key(master_key)
    if master is None and not open_fleet:
        raise provision.ProvisionError(
            "give --master-key FILE for a fleet with keys, or --open for an open one"
        )
    if wifi_ssid and wifi_password is None:
        wifi_password = typer.prompt(
            f"password of {wifi_ssid}", hide_input=True, default="", show_default=False
        )
    options = {
        "wifi_ssid": wifi_ssid,
        "wifi_password": wifi_password or "",
        "wifi_country": wifi_country,
        "mqtt_host": mqtt_host,
        "mqtt_port": mqtt_port,
        "mqtt_user": mqtt_user,
        "mqtt_password": mqtt_password,
        "mqtt_ca": mqtt_ca,
    }
    if device is None:
        device = provision.provision_device(master, fleet, **options).device_id
    path = provision.settings_path(device, folder)
    settings = provision.provision_device(master, fleet, device, path=path, **options)
    if as_json:
        print_json({"device_id": device, "fleet": fleet, "settings": str(path)})
    else:
        show.out.print(provision.describe(settings, path), soft_wrap=True)


def flash_command(
    port: Annotated[str, typer.Argument(help="As for mpremote: /dev/ttyACM0, COM3, ...")],
    settings: Annotated[Path, typer.Argument(help="What `hushmote provision` wrote.")],
    source: Annotated[
        bool, typer.Option("--source", help="Copy .py files instead of compiled ones.")
    ] = False,
    provision_again: Annotated[
        bool, typer.Option("--provision-again", help="A new, empty ledger: starts the privacy bound again.")
    ] = False,
    main: Annotated[Path | None, typer.Option(help="An application other than the example.")] = None,
    umqtt: Annotated[
        Path | None, typer.Option(help="A umqtt/simple.py, where the firmware has none.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put Hushmote on a board over USB; a ledger that is there is never overwritten."""
    done = flash(
        port,
        settings,
        source=source,
        provision_again=provision_again,
        main=main,
        umqtt=umqtt,
        say=(lambda _line: None)
        if as_json
        else (lambda line: show.out.print(line, soft_wrap=True, markup=False)),
    )
    if as_json:
        print_json(dataclasses.asdict(done))
