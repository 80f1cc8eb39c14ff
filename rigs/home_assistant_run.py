"""Run Home Assistant's core and its MQTT integration, without the web interface.

Run it with the rig's Python (get_home_assistant.py). Arguments: the broker's port, a free port for its other
services, a folder for its files, and perhaps the broker's user and password. It answers each line of input
with a line of JSON that lists all sensors and events, and stops at the end of the input.
"""

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path

from homeassistant import auth, bootstrap, config_entries, core, loader  # pyright: ignore[reportMissingImports]
from homeassistant.helpers import device_registry, entity_registry  # pyright: ignore[reportMissingImports]
from homeassistant.setup import async_setup_component  # pyright: ignore[reportMissingImports]

MQTT = {"discovery": True, "discovery_prefix": "homeassistant", "broker": "127.0.0.1"}


async def start(port: int, own_port: int, folder: str, *login: str) -> core.HomeAssistant:
    """Return a started Home Assistant that is connected to the broker."""
    (Path(folder) / "configuration.yaml").touch()
    hass = core.HomeAssistant(folder)
    hass.config.skip_pip = True
    loader.async_setup(hass)
    hass.config_entries = config_entries.ConfigEntries(hass, {})
    await bootstrap.async_load_base_functionality(hass)
    hass.auth = await auth.auth_manager_from_config(hass, [], [])
    http = {"server_host": ["127.0.0.1"], "server_port": own_port}
    assert await async_setup_component(hass, "http", {"http": http})
    data = MQTT | {"port": port} | dict(zip(("username", "password"), login, strict=False))
    entry = config_entries.ConfigEntry(
        version=1, minor_version=1, domain="mqtt", title="rig", data=data, source="user"
    )
    await hass.config_entries.async_add(entry)
    await hass.async_start()
    assert entry.state is config_entries.ConfigEntryState.LOADED, entry.reason
    return hass


def states(hass: core.HomeAssistant) -> list[dict]:
    """Return each sensor's and event's state, attributes, unique id and device."""
    entities, devices = entity_registry.async_get(hass), device_registry.async_get(hass)
    sensors = []
    for state in hass.states.async_all(("sensor", "binary_sensor", "event")):
        entity = entities.async_get(state.entity_id)
        device = devices.async_get(entity.device_id) if entity and entity.device_id else None
        sensors.append(
            {
                "entity_id": state.entity_id,
                "state": state.state,
                "attributes": dict(state.attributes),
                "unique_id": entity and entity.unique_id,
                "device": device and device.name,
            }
        )
    return sensors


async def main(port: int, own_port: int, folder: str, *login: str) -> None:
    """Answer each line of input until the input ends."""
    hass = await start(port, own_port, folder, *login)
    print("ready", flush=True)
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        print(json.dumps(states(hass), default=str), flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await hass.async_stop(force=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
