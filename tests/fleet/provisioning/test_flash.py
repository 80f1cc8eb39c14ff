"""`hushmote flash` with the real mpremote and real MicroPython on a pty with a real littlefs.

It uses the first MicroPython in firmware_tests/runtimes.py with a board's features. The rig provides Wi-Fi,
the temperature sensor and deep sleep; everything else is what a board would run.
"""

import dataclasses
import hashlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import paho.mqtt.client as paho
import pytest
from experiments import experiment_json, number_json
from flashing import FLEET, MASTER, ROOT, WIFI, Bench, give_up_at_the_cut, on_board
from paho.mqtt.enums import CallbackAPIVersion
from refusals import fails
from running_aggregator import HANGS_S

from hushmote.device import ldp_client
from hushmote.fleet.provisioning import flash as flash_module
from hushmote.fleet.provisioning import umqtt as umqtt_simple
from hushmote.fleet.provisioning.flash import flash
from hushmote.fleet.provisioning.settings import load_settings, mark_ledger
from hushmote.fleet.provisioning.usb import Board, FlashError, architecture, check_board, compile_mpy
from hushmote.server.wire import keys, report, topics
from hushmote.server.wire.board_files import shipped_files
from hushmote.simulator.broker import MosquittoBroker

FINE = Board(
    name="b", version=(1, 24, 0), mpy=0x1306, free_bytes=1, files={}, device_id=None,
    ledger=False, entropy=True, umqtt=True, network=True, fat=False,
)  # fmt: skip


def ledger(files: dict[str, str]) -> dict[str, str]:
    return {path: data for path, data in files.items() if path.startswith("/ldp/")}


class TestFailure:
    def test_names_missing_port(self, bench: Bench):
        with fails("no such port: /dev/ttyNONE", FlashError):
            flash("/dev/ttyNONE", bench.settings)

    def test_names_port_that_does_not_answer(self, bench: Bench):
        host, port = os.openpty()
        try:
            with fails(r"no MicroPython answers at .*reset button", FlashError):
                flash(os.ttyname(port), bench.settings, timeout_s=1)
        finally:
            os.close(host)
            os.close(port)

    def test_missing_settings_leave_the_board_untouched(self, bench: Bench):
        with bench.board() as board:
            line = bench.fails(board, bench.folder / "none.settings.json")
            assert line.endswith("make them with `hushmote provision`")
            assert "wifi_ssid is empty" in bench.fails(board, bench.new_settings("empty", wifi_ssid=""))
            assert b"raw REPL" not in board.output

    def test_detects_flipped_bit(self, used: Bench):
        before = used.contents()
        other = used.folder / "other.py"
        other.write_text("print('\N{SNOWMAN}' * 3)\n" * 20)
        # Only the application's snowmen are sent as \\xNN.
        with used.board(noise=20) as board:
            line = used.fails(board, main=other)
            assert "other.py" not in line
            assert line.startswith("main.py reads back differently")
            assert used.contents() == before
            used.flash(board, main=other)  # the noise is over
            assert bytes.fromhex(used.contents()["/main.py"]) == other.read_bytes()

    def test_power_cut_while_copying_leaves_the_board_unchanged(
        self, used: Bench, monkeypatch: pytest.MonkeyPatch
    ):
        before = used.contents()
        with used.board(brownout_bytes=30_000) as board:
            give_up_at_the_cut(board, monkeypatch)
            line = used.fails(board, source=True)
            assert line.startswith("copying failed")
            assert line.endswith("the board's files are unchanged")
            # The folder for new files may remain if the board was not back in time to remove it. The board
            # uses nothing in it, and the next flash removes it.
            after = used.contents()
            assert {
                name: data for name, data in after.items() if not name.startswith("/hushmote.new/")
            } == before
            used.flash(board, source=True)
            assert "/lib/ldp_client.py" in used.contents()
            assert not any(name.startswith("/hushmote.new/") for name in used.contents())
            assert ledger(used.contents()) == ledger(before)

    def test_power_cut_in_first_flash_makes_no_ledger_and_keeps_id(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ):
        with bench.board(brownout_bytes=20_000) as board:
            give_up_at_the_cut(board, monkeypatch)
            assert bench.fails(board).startswith("copying failed")
            assert ledger(bench.contents()) == {}
            assert not load_settings(bench.settings).ledger_made
            assert bench.flash(board).ledger == "made"

    def test_reports_full_file_system_before_and_while_copying(self, bench: Bench):
        with bench.board(flash_bytes=64 * 1024) as board:
            assert re.search(r"has \d+ KB free, but \d+ KB are needed", bench.fails(board))
            assert bench.contents() == {}
            assert "file system is full" in bench.fails(board, source=True, spare_bytes=-1_000_000)
            assert bench.contents() == {}
        assert not load_settings(bench.settings).ledger_made

    def test_never_installs_application_with_syntax_error(self, bench: Bench):
        broken = bench.folder / "broken.py"
        broken.write_text("def f(:\n")
        with bench.board() as board:
            assert "SyntaxError" in bench.fails(board, main=broken)
            assert bench.contents() == {}

    def test_names_module_that_hides_the_installed_one(self, used: Bench):
        with used.board() as board:
            on_board(board, "import os; os.mkdir('/gap'); open('/gap/__init__.py', 'w').close()")
            line = used.fails(board)
        assert line.startswith("the board loads gap from gap/__init__.py instead of /lib: it is frozen")

    @pytest.mark.parametrize("path", ["/hashlib.py", "/json.mpy", "/lib/time.py", "/os"])
    def test_names_file_that_hides_a_module_of_the_firmware(self, bench: Bench, path: str):
        content = "raise SystemExit" if path.endswith(".py") else ""
        make = f"f = open({path!r}, 'w'); f.write({content!r}); f.close()"
        with bench.board() as board:
            on_board(board, "import os\nos.mkdir('/lib')\n" + ("os.mkdir('/os')" if path == "/os" else make))
            before = bench.contents()
            line = bench.fails(board)
            assert line.startswith(f"the board has {path}, which hides a module of its firmware")
            assert bench.contents() == before

    def test_reports_missing_wifi_firmware_before_copying(self, bench: Bench):
        with bench.board(wifi="") as board:
            line = bench.fails(board)
            assert line.startswith("this firmware has no Wi-Fi, which the example application needs")
            assert bench.contents() == {}
            custom = bench.folder / "own.py"
            custom.write_text("print('over a modem')\n")
            assert bench.flash(board, main=custom).ledger == "made"


class TestUmqtt:
    def test_is_bundled_and_known_by_its_hash(self, tmp_path: Path):
        content = umqtt_simple.bundled()
        assert content.endswith(b"\n__version__ = '1.8.0'\n")
        assert hashlib.sha256(content).hexdigest() == umqtt_simple.SHA256
        licence = umqtt_simple.PATH.with_name("LICENSE").read_text()
        assert licence.startswith(
            "The MIT License (MIT)\n\nCopyright (c) 2013, 2014 micropython-lib contributors\n"
        )
        altered = tmp_path / "simple.py"
        altered.write_bytes(content.replace(b"qos=0", b"qos=1", 1))
        with fails(r"simple\.py is not umqtt.simple 1\.8\.0: install Hushmote again", FlashError):
            umqtt_simple.bundled(altered)
        with fails(r"^cannot read .*none: No such file", FlashError):
            umqtt_simple.bundled(tmp_path / "none")

    def test_is_installed_without_a_network(self, used: Bench, monkeypatch: pytest.MonkeyPatch):
        # Downloads would go through a nonexistent proxy.
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        custom = used.folder / "umqtt" / "simple.py"
        custom.parent.mkdir()
        custom.write_text("class MQTTClient:\n    pass\n")
        version = "import umqtt.simple as u; print(u.__file__, getattr(u, '__version__', None))"
        with used.board() as board:
            # A custom module replaces only it.
            for further, comes in (([str(custom)], "None"), ([], "1.8.0")):
                assert used.flash(board, further=further).copied == ("/lib/umqtt/simple.mpy",)
                assert on_board(board, version) == f"/lib/umqtt/simple.mpy {comes}"


class TestBoard:
    def test_accepts_supported_boards(self):
        check_board(FINE, wifi=True)
        check_board(dataclasses.replace(FINE, network=False), wifi=False)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"version": ()}, "install MicroPython"),
            (
                {"version": (1, 22, 2)},
                "^the board has MicroPython 1.22.2: install 1.24 or later on it, without erasing its files,",
            ),
            (
                {"version": (1, 23, 0)},
                "^the board has MicroPython 1.23.0, which CVE-2024-8948 affects: install 1.24 or later on "
                "it, without erasing its files, so that it keeps its ledger$",
            ),
            ({"free_bytes": None}, "no file system"),
            ({"entropy": False}, "os.urandom"),
            ({"network": False}, "no Wi-Fi.*Pico W, not Pico.*--main"),
        ],
        ids=[
            "no MicroPython",
            "old MicroPython",
            "flawed MicroPython",
            "no file system",
            "no entropy",
            "no network",
        ],
    )
    def test_refuses_other_boards(self, change: dict, words: str):
        with fails(words, FlashError):
            check_board(dataclasses.replace(FINE, **change), wifi=True)


class TestLedger:
    def test_settings_make_only_one_ledger(self, used: Bench):
        (used.folder / "board.img").unlink()
        with used.board() as blank:
            assert "a ledger was already created with the settings of" in used.fails(blank)
            assert used.contents() == {}

    def test_damaged_ledger_is_kept_and_lost_not_replaced(self, used: Bench):
        with used.board() as board:
            on_board(board, "for n in '01': open('/ldp/ledger' + n, 'wb').close()")
            damaged = ledger(used.contents())
            assert used.flash(board).ledger == "kept"
            assert ledger(used.contents()) == damaged
            on_board(board, "import os\nfor n in os.listdir('/ldp'): os.remove('/ldp/' + n)")
            assert "its ledger is gone" in used.fails(board)
            assert ledger(used.contents()) == {}
            assert "its ledger is gone" in used.fails(board, used.new_settings("board2"))

    def test_board_refuses_to_overwrite_it(self, used: Bench, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(flash_module, "check_ledger", lambda *args: True)
        before = ledger(used.contents())
        mark_ledger(used.settings, load_settings(used.settings), False)
        with used.board() as board:
            assert "could not create its ledger (LedgerExists" in used.fails(board)
        assert ledger(used.contents()) == before
        assert not load_settings(
            used.settings
        ).ledger_made  # the settings have not made a ledger and can still be used

    def test_interrupted_first_write_counts_as_none(self, bench: Bench):
        with bench.board() as board:
            on_board(board, "import os\nos.mkdir('/ldp')\nopen('/ldp/ledger0', 'w').close()")
            assert bench.flash(board).ledger == "made"
        assert all(len(data) == 80 for data in ledger(bench.contents()).values())  # 40 bytes in hex

    def test_is_kept_with_another_boards_settings(self, used: Bench):
        new = used.new_settings("board2")
        with used.board() as board:
            all_files = used.contents()
            before = ledger(all_files)
            assert "this board is board1 and the settings are board2's" in used.fails(board, new)
            assert "new device id" in used.fails(board, provision_again=True)
            assert used.contents() == all_files
            assert used.flash(board, new, provision_again=True).ledger == "made again"
            assert "privacy bound" in used.lines[-1]
            after = ledger(used.contents())
            assert all(after[path] != before[path] for path in before)
            assert "new device id" in used.fails(board, new, provision_again=True)


def quick(bench: Bench, **changes: str) -> Path:
    """Write the example application without its ten-second wait for Ctrl-C."""
    source = (ROOT / "device" / "main.py").read_text()
    for name, value in {"START_DELAY_S": "0", "START_SPREAD_S": "1", **changes}.items():
        source, count = re.subn(rf"(?m)^{name} = \d+", f"{name} = {value}", source)
        assert count == 1
    path = bench.folder / "quick.py"
    path.write_text(source)
    return path


WIRINGS = [
    ("SETTINGS = '/none.json'", "no /none.json: run `hushmote provision`, then `hushmote flash`"),
    ("SETTINGS = '/main.py'", "/main.py is damaged: run `hushmote flash` again"),
    ("settings['mqtt_host'] = ''", "mqtt_host is empty: fill it in and run `hushmote flash` again"),
    (
        "settings['key'] = 'abc'",
        "key must be 64 hex digits: flash the settings that `hushmote provision` wrote",
    ),
    ("LEDGER = '/none'", "locked: no ledger; provision this board (`hushmote flash`)"),
    (
        "POLICY['sum'] = 1.5",
        "policy must have int sum, squares, epsilon and tuple rules, experiments, [groups], no more",
    ),
    ("ldp_client.os = NoEntropy", "this firmware has no os.urandom"),
    ("ldp_client.os = StuckEntropy", "os.urandom is stuck: power-cycle the board"),
    ("network = None", "this firmware has no Wi-Fi: install the one for your board (Pico W, not Pico)"),
    ("READINGS = {}", "no sensor for room_temp: add a function that reads it to READINGS"),
    (
        "settings['wifi_ssid'] = 'other'",
        "Wi-Fi other: not found (boards support only 2.4 GHz): check wifi_ssid",
    ),
    ("settings['wifi_password'] = 'no'", "Wi-Fi home: wrong password or weak signal: check wifi_password"),
    ("set_clock()", "the clock says 2000 and pool.ntp.org did not answer: allow NTP, or set time_server"),
    ("vfs.umount('/')", "no file system: erase the flash, install MicroPython again, then `hushmote flash`"),
]

_WIRE = """
import json, os, time, vfs
import main
from main import POLICY, ldp_client, machine
class NoEntropy: pass
class StuckEntropy:
    def urandom(n): return bytes(n)
class Clock:
    gmtime = lambda: (2000, 1, 1)
    time = time.time
    sleep = lambda s: None
def sleep(ms): raise SystemExit
def set_clock():
    import station
    station.time = Clock
    raise main.Outage(station.set_clock(main.look_up, {}, {}))
class Awake:
    deepsleep = sleep
    reset_cause = lambda: 4
    DEEPSLEEP_RESET = 4
    ADC = machine.ADC
with open('/settings.json') as f: right = json.load(f)
for line in LINES:
    names = ('SETTINGS', 'LEDGER', 'POLICY', 'READINGS', 'Application', 'network', 'machine')
    names = {n: getattr(main, n) for n in names}
    client_os = ldp_client.os
    main.POLICY = dict(POLICY)
    main.time = Clock
    main.machine = Awake
    settings = dict(right)
    if line.startswith('settings'):
        exec(line)
        main.SETTINGS = '/edited.json'
        with open('/edited.json', 'w') as f: json.dump(settings, f)
    elif line == 'set_clock()': main.Application = set_clock
    elif line.startswith('vfs'):
        import memory, settings, station  # as if they were frozen into the firmware
        exec(line)
    else: exec('main.' + line)
    try: main.main()
    except (SystemExit, AttributeError): pass
    print('--')
    for n, v in names.items(): setattr(main, n, v)
    ldp_client.os = client_os
"""


class TestFlash:
    def test_fresh_board_gets_all_files_and_a_ledger(self, flashed_once: Bench):
        result, files = flashed_once.done, flashed_once.contents()
        assert result is not None
        assert result.ledger == "made"
        assert result.unchanged == ()
        assert set(result.copied) | {"/ldp/ledger0", "/ldp/ledger1"} == set(files)
        assert bytes.fromhex(files["/main.py"]) == (ROOT / "device" / "main.py").read_bytes()
        on_the_board = json.loads(bytes.fromhex(files["/settings.json"]))
        assert on_the_board["key"] == keys.device_key(MASTER, FLEET, "board1").hex()
        assert "ledger_made" not in on_the_board
        assert load_settings(flashed_once.settings).ledger_made
        for data in ledger(files).values():
            record = bytes.fromhex(data)
            # An empty ledger has no entries, nothing spent, and a matching CRC-32.
            assert record[:2] == b"\x50\0"  # an opt-in
            assert record[22:36] == bytes(14)
            assert struct.unpack(">I", record[-4:])[0] == zlib.crc32(record[:-4])
        assert flashed_once.lines[0].endswith("MicroPython " + result.firmware)
        assert "ledger: made, empty" in flashed_once.lines

    def test_again_keeps_ledger_and_removes_stale_copies(self, used: Bench):
        experiment = experiment_json(name="room_temp", window="all")
        script = (
            "import ldp_client, json, main\n"
            "c = main.make_client(dict(main.load_settings(), announce_key=None))\n"
            f"c.enroll({experiment!r})\n"
            "print(len(c.report('room_temp', True)), c.status()['sum'])"
        )
        with used.board() as board:
            assert on_board(board, script) == "18 1000000"
            before = used.contents()
            on_board(board, "with open('/ldp_client.py', 'w') as f: f.write('raise SystemExit')")
            result = used.flash(board)
            assert "--yes applies only to a new ledger: this board keeps its answer" in used.lines
            assert used.contents() == before
            assert result.ledger == "kept"
            assert result.copied == ()
            # A new application and .py instead of .mpy files change everything except the ledger.
            application = used.folder / "other.py"
            application.write_text("print('mine')\n")
            changed = used.flash(board, main=application, source=True)
            after = used.contents()
            assert ledger(after) == ledger(before)
            assert len(ledger(before)) == 2
            modules = {f"/lib/{m}.py" for m in flash_module.MODULES if m not in flash_module.OPTIONAL}
            assert set(changed.copied) == {*modules, "/lib/umqtt/simple.py", "/main.py"}
            assert "/lib/ldp_client.mpy" not in after  # the stale one
            assert bytes.fromhex(after["/lib/ldp_client.py"]) == (ROOT / "device/ldp_client.py").read_bytes()
            assert on_board(board, "import ldp_client; print(ldp_client.__file__)") == "/lib/ldp_client.py"

    def test_interrupts_and_replaces_running_application(self, used: Bench):
        endless = used.folder / "endless.py"
        endless.write_text("import time\nprint('endless runs')\nwhile True:\n    time.sleep(1)\n")
        short = used.folder / "short.py"
        short.write_text("print('short runs')\n")
        with used.board() as board:
            used.flash(board, main=endless, reset=True)
            assert board.wait_for(b"endless runs", HANGS_S)
            used.flash(board, main=short, reset=True)
            assert board.wait_for(b"short runs", HANGS_S)

    @pytest.mark.parametrize(
        ("module", "line"),
        [
            ("async_reporter", "import async_reporter"),
            ("health", "from health import Health"),
            ("health", 'import_sibling("health")'),
            ("export", "from export import export"),
        ],
    )
    def test_copies_optional_modules_only_if_imported(self, bench: Bench, module: str, line: str):
        custom = bench.folder / "own.py"
        custom.write_text(f"{line}\n")
        settings = load_settings(bench.settings)
        board = dataclasses.replace(FINE, files={f"/lib/umqtt/simple.{x}": None for x in ("py", "mpy")})
        plain = bench.folder / "plain.py"
        plain.write_text("print('mine')\n")
        for main, comes in ((custom, True), (plain, False)):
            wanted = flash_module._files_for(board, settings, flash_module.Load(main=main), {})
            assert (f"/lib/{module}.mpy" in [f.path for f in wanted]) is comes

    def test_copies_log_modules_only_if_policy_has_log(self):
        application = flash_module.EXAMPLE.read_bytes()
        assert not set(flash_module.LOG) & set(flash_module.sources(application, {}))
        for log in (b'POLICY["log"] = LOG', b"POLICY = dict(POLICY, log=LOG)", b'"log": {"origin": "a"}'):
            modules = flash_module.sources(application + b"\n" + log, {})
            assert set(flash_module.LOG) <= set(modules)

    def test_blank_board_sends_verifiable_reports(self, bench: Bench):
        budget = {"rule": "sum", "cap": 2_000_000}
        payload = number_json(4, name="room_temp", high=40_000, budget=budget, window="all")
        experiment = ldp_client.Experiment.parse(payload)
        topic = topics.experiment_topic(FLEET, "room_temp")
        signed = keys.sign_experiment(MASTER, topic, payload, serial=1)
        received: list[bytes] = []
        with MosquittoBroker() as broker:
            listener = paho.Client(CallbackAPIVersion.VERSION2)
            listener.on_message = lambda client, data, message: received.append(bytes(message.payload))
            listener.connect("127.0.0.1", broker.port)
            listener.subscribe(topics.report_topic(FLEET, "board1"), 1)
            listener.publish(topic, signed, qos=1, retain=True)
            listener.loop_start()
            settings = bench.new_settings("board9")
            settings.unlink()
            bench.settings.unlink()
            bench.settings = bench.new_settings("board1", mqtt_port=broker.port)
            # Three wake-ups, with each hour of sleep shortened to 0.4 s; the budget covers two reports.
            with bench.board(wifi=WIFI, sleep_scale=1e-4) as board:
                bench.flash(board, main=quick(bench), reset=True)
                spent = board.wait_for(b"silent: its budget is spent, after 2 reports\r\n", HANGS_S)
                text = board.output.decode(errors="replace")
            listener.loop_stop()
            listener.disconnect()
        assert spent, text[-2000:]
        assert "room_temp: 1 report made, 1 left" in text
        assert board.sleeps_ms[0] > 3_500_000
        decoded = [report.decode(r) for r in received]
        assert sorted({r.number for r in decoded}) == [1, 2]
        key = keys.device_key(MASTER, FLEET, "board1")
        for r in decoded:
            assert r.digest == experiment.digest
            assert report.verify(r, key, "board1", experiment.sha256)
            assert not report.verify(r, key[::-1], "board1", experiment.sha256)

    def test_board_opens_no_connection_before_opt_in_at_prompt(self, bench: Bench):
        with socket.create_server(("127.0.0.1", 0)) as broker:
            bench.settings.unlink()
            bench.settings = bench.new_settings("board1", mqtt_port=broker.getsockname()[1])
            with bench.board(wifi=WIFI, sleep_scale=1e-4) as board:
                bench.flash(board, yes=False, main=quick(bench), reset=True)
                silent = (
                    b"silent, as nobody has said yes yet; with a yes it answers room_temp: yes() says it\r\n"
                )
                assert board.wait_for(silent, HANGS_S), board.output[-2000:]
                assert bench.lines[-2] == (
                    "silent until someone at the board says yes: hold its button for 3 s, "
                    "or type yes() at its prompt"
                )
                broker.setblocking(False)
                with pytest.raises(BlockingIOError):
                    broker.accept()
                say_yes = ["resume", "exec", "yes()", "+", "reset"]
                subprocess.run(
                    [sys.executable, "-m", "mpremote", "connect", board.port, *say_yes], check=True
                )
                broker.settimeout(60)
                broker.accept()[0].close()

    def test_example_gives_one_line_of_advice_for_wrong_wiring(self, used: Bench):
        with used.board(wifi=WIFI) as board:
            output = on_board(board, f"LINES = {[w for w, _ in WIRINGS]!r}\n" + _WIRE)
        answers = [part.strip() for part in output.split("--\n")]
        answers[-1] = answers[-1].removesuffix("--").strip()
        assert [a.split("; next try in")[0] for a in answers] == ["hushmote: " + says for _, says in WIRINGS]
        assert all("\n" not in a for a in answers)


class TestParts:
    def test_manifest_freezes_existing_modules(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(ROOT / "device")  # as when a manifest is run
        calls: list[tuple[Any, ...]] = []

        def record(*args: Any, **options: Any) -> None:
            calls.append(args)

        source = (ROOT / "device" / "manifest.py").read_text()
        exec(source, {"include": record, "require": record, "module": record, "options": mock.MagicMock()})
        frozen = [a[0] for a in calls if a[0].endswith(".py") and "$" not in a[0]]
        further = [path.name for path in shipped_files().values()]
        assert sorted(frozen) == sorted([*(f"{m}.py" for m in flash_module.MODULES), *further])
        assert all((ROOT / "device" / name).exists() for name in frozen)

    @pytest.mark.parametrize(
        ("mpy", "name"),
        [(0x0706, "x86"), (0x1306, "armv6m"), (0x2B06, "xtensawin"), (0x0006, None), (0xFF06, None)],
    )
    def test_architecture_comes_from_boards_mpy_number(self, mpy: int, name: str | None):
        # RP2040: armv6m is 4, so 4 << 10 = 0x1000, with sub-version 3 << 8; ESP32: xtensawin is 10.
        assert architecture(mpy) == name

    def test_refused_mpy_version_suggests_source(self):
        with fails("--source", FlashError):
            compile_mpy(ROOT / "device" / "ldp_client.py", 5, "ldp_client.py")
