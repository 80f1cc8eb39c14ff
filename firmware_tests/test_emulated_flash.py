"""Test `hushmote flash` twice through the emulated Pico's USB port with mpremote, and the resulting board."""

import json
import tempfile
from pathlib import Path

import on_device
from emulation.pico import board

from hushmote.fleet.provisioning.flash import MODULES, OPTIONAL, Load, flash
from hushmote.fleet.provisioning.settings import Network, provision_device
from hushmote.fleet.provisioning.usb import FlashError
from hushmote.server.wire.keys import FleetKeys

NEEDS = ("pico", "compiled")
HOST = True

SCRIPT = """
import json, main, ldp_client
from on_device import DOOR
main.POLICY["experiments"] = ("door",)
settings = main.load_settings()
settings["announce_key"] = None
client = main.make_client(settings)
client.enroll(DOOR.encode())
silent = client.report("door", True) is None and not client.outbox()  # nobody has opted in
client.consent = True
done = [settings["device_id"], silent, len(client.report("door", True)), client.status()["sum"]]
try: ldp_client.provision("/ldp", consent=True)
except ldp_client.LedgerExists: print(json.dumps(done))
"""


def test_flashes_board_twice():
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        settings = folder / "board-1.settings.json"
        keys = FleetKeys((bytes(range(32)),), bytes(range(32)))
        wifi = {"wifi_ssid": "home", "wifi_password": "correct horse", "mqtt_host": "192.0.2.1"}
        provision_device(keys, "garden", "board-1", Network(**wifi), path=settings)
        image = folder / "flash.img"
        board.make_image(image, Path.cwd(), ["on_device.mpy"])
        application = folder / "application.py"  # flash refuses the example because the firmware has no Wi-Fi
        application.write_bytes((board.DEVICE / "main.py").read_bytes())
        options = {"reset": False, "timeout_s": 200}
        with board.usb_port(folder, image) as port:
            refused = on_device.raises(FlashError, lambda: flash(port, settings, **options))
            assert "this firmware has no Wi-Fi" in refused, refused
            first = flash(port, settings, Load(main=application), **options)
        with board.usb_port(folder, image) as port:
            second = flash(port, settings, Load(main=application), **options)
        assert first.board == "Raspberry Pi Pico with RP2040", first
        assert first.firmware == "1.25.0"
        assert (first.ledger, second.ledger) == ("made", "kept")
        modules = {f"/lib/{m}.mpy" for m in MODULES if m not in OPTIONAL}
        assert set(first.copied) == modules | {"/settings.json", "/main.py"}, first.copied
        assert second.copied == ()
        (folder / "script.py").write_text(SCRIPT)
        after = board.run(folder / "script.py", image)
        assert not after.error, after.error
        assert json.loads(after.output.splitlines()[-1]) == ["board-1", True, 18, 1000000], after.output


on_device.run(globals())
