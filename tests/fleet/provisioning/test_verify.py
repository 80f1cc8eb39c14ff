"""`hushmote flash --verify` with the real mpremote and real MicroPython, and images of firmware in C."""

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import hushmote
from flashing import Bench, on_board, runtimes
from refusals import fails
from running_aggregator import HANGS_S

from hushmote.cli import flash as cli_flash
from hushmote.fleet.provisioning import verify
from hushmote.fleet.provisioning.flash import OPTIONAL, Load
from hushmote.fleet.provisioning.release_files import release_files
from hushmote.fleet.provisioning.usb import FlashError, UsbLink
from hushmote.fleet.provisioning.verify import Manifest, read_manifest, verify_board, verify_image
from hushmote.server.log.entry import Entry, experiment_entry
from hushmote.server.log.note import COSIGNATURE, ED25519, Checkpoint, SecretKey
from hushmote.server.log.tiles import files
from hushmote.server.log.tree import Tree

FLIP = """
with open(PATH, 'r+b') as f:
    f.seek(30)
    byte = f.read(1)[0]
    f.seek(30)
    f.write(bytes([byte ^ 1]))
"""
# What someone would do to hide a change from a script that imports hashlib.
SHADOW = "class sha256:\n    def update(self, data): pass\n    def digest(self): return b''\n"


def sums(files: dict[str, bytes]) -> str:
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())


@pytest.fixture(scope="module")
def sums_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a release's SHA256SUMS."""
    path = tmp_path_factory.mktemp("dist") / "SHA256SUMS"
    files = {f"board{name}": content for name, content in release_files().items()}
    path.write_text(sums(files | {"hushmote-9.8.7-py3-none-any.whl": b"wheel"}))
    return path


@pytest.fixture(scope="module")
def manifest(sums_file: Path) -> Manifest:
    return read_manifest(sums_file)


class TestRelease:
    def test_lists_exactly_the_bytes_that_flash_copies(self, flashed_once: Bench, manifest: Manifest):
        listed = manifest.board_files()
        copied = {path: bytes.fromhex(data) for path, data in flashed_once.contents().items()}
        for path in ("/settings.json", "/ldp/ledger0", "/ldp/ledger1"):
            del copied[path]
        assert {
            path: hashlib.sha256(data).hexdigest() for path, data in copied.items()
        }.items() <= listed.items()
        assert "/lib/umqtt/simple.mpy" in copied

    @pytest.mark.parametrize("mpy", [0x0706, 0x1306, 0x2B06], ids=["x86", "armv6m", "xtensawin"])
    def test_files_are_the_same_for_every_board(self, mpy: int):
        assert release_files(mpy) == release_files()


class TestBoard:
    def test_flashed_board_has_the_releases_files(self, used: Bench, manifest: Manifest):
        before = used.contents()
        with used.board() as board:
            sent = len(board.output)
            result = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
            assert board.wait_for(b"hushmote: starts in 10 s", HANGS_S)  # its application runs again
            received = board.output[sent:]
        assert result.matches
        assert set(result.same) == set(before) - set(result.not_compared)
        assert result.not_compared == {
            "/ldp/ledger0": "ledger",
            "/ldp/ledger1": "ledger",
            "/settings.json": "settings",
        }
        assert result.proof == "The files that the board returned are those of Hushmote 9.8.7."
        assert used.contents() == before
        # Neither secrets nor the ledger leave the board.
        settings = json.loads(bytes.fromhex(before["/settings.json"]))
        assert settings["key"].encode() not in received
        assert settings["wifi_password"].encode() not in received

    def test_names_changed_missing_and_unknown_files(self, used: Bench, manifest: Manifest):
        with used.board() as board:
            on_board(board, "PATH = '/lib/gap.mpy'" + FLIP)
            on_board(board, "import os\nos.remove('/lib/consent.mpy')\nos.mkdir('/extra')")
            on_board(board, f"with open('/hashlib.py', 'w') as f: f.write({SHADOW!r})")
            on_board(board, "open('/extra/__init__.PY', 'w').close()\nopen('/notes.txt', 'w').close()")
            on_board(board, "import os\nos.mkdir('/experiments')\nopen('/experiments/door', 'w').close()")
            on_board(
                board, "with open('/boot.py', 'w') as f: f.write('# on every boot\\n\\n  #import webrepl')"
            )
            result = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
        assert not result.matches
        assert result.changed == ("/lib/gap.mpy",)
        assert result.missing == ("/lib/consent.mpy",)
        assert result.unknown == ("/extra/__init__.PY", "/hashlib.py")
        assert result.not_compared["/notes.txt"] == "data"
        assert result.not_compared["/experiments/door"] == "kept experiments"
        assert result.not_compared["/boot.py"] == "comments"
        assert result.proof == "The files that the board returned are not those of Hushmote 9.8.7."

    def test_boot_file_with_code_is_unknown(self, used: Bench, manifest: Manifest):
        with used.board() as board:
            on_board(board, "with open('/boot.py', 'w') as f: f.write('# harmless\\rimport os')")
            result = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
        assert result.unknown == ("/boot.py",)

    def test_blank_board_lacks_everything(self, bench: Bench, manifest: Manifest):
        with bench.board() as board:
            result = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
        assert {"/main.py", "/lib/ldp_client.mpy", "/lib/umqtt/simple.mpy"} < set(result.missing)
        assert not {f"/lib/{module}.mpy" for module in (*OPTIONAL, "ldp_sw")} & set(result.missing)
        assert result.same == ()

    def test_compares_own_application_and_modules(self, used: Bench, manifest: Manifest):
        own = used.folder / "own.py"
        own.write_text("from health import Health\n")
        channel = used.folder / "my_channel.py"
        channel.write_text("import ldp_client\nldp_client.MECHANISMS['mine'] = ldp_client.MECHANISMS['rr']\n")
        load = Load(main=own, further=(str(channel), "sw"))
        with used.board() as board:
            used.flash(board, main=own, further=load.further, source=True)
            result = verify_board(board.port, manifest, load, timeout_s=HANGS_S)
            assert result.matches, result
            assert {"/lib/my_channel.py", "/lib/ldp_sw.py", "/lib/health.py"} < set(result.same)
            assert result.release == f"Hushmote 9.8.7, with own.py, {channel}, sw"
            on_board(
                board, "import os\nfor n in ('my_channel', 'ldp_sw', 'health'): os.remove(f'/lib/{n}.py')"
            )
            result = verify_board(board.port, manifest, load, timeout_s=HANGS_S)
            assert result.missing == ("/lib/health.py", "/lib/ldp_sw.py", "/lib/my_channel.py")
            # Without --main, the application that the board has says which modules it needs.
            result = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
            assert (result.changed, result.missing) == (("/main.py",), ("/lib/health.py",))

    def test_names_modules_in_the_firmware(
        self, used: Bench, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
    ):
        # The software board has no module in its firmware, so it is told to look in a folder instead.
        monkeypatch.setattr(verify, "_READ", verify._READ.replace("'.frozen'", "'/frozen'"))
        with used.board() as board:
            on_board(board, "import os\nos.mkdir('/frozen')\nos.rename('/lib/gap.mpy', '/frozen/gap.mpy')")
            result = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
            # One that imports another from the board's flash is in the firmware, too.
            on_board(
                board,
                "import os\nos.mkdir('/frozen/umqtt')\nos.remove('/frozen/gap.mpy')\n"
                "with open('/frozen/gap.py', 'w') as f: f.write('import ldp_client')",
            )
            again = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
        assert (result.frozen, result.missing) == (("gap",), ())
        assert not result.matches
        assert (again.frozen, again.missing) == (("gap",), ())

    def test_finds_modules_in_the_firmware_without_running_them(self):
        found, _ = runtimes.find()
        argv = next((r.argv for r in found if run(r.argv, "import sys, asyncio", [".frozen"]) == ""), None)
        if argv is None:
            pytest.skip("no MicroPython with asyncio in its firmware here")
        read = verify._READ
        function = read[read.index("def starts") : read.index("\ni = ")]
        names = "starts('asyncio'), starts('main'), 'asyncio.core' in sys.modules"  # asyncio imports it
        script = f"import sys, micropython\n{function}\nprint({names})"
        assert run(argv, script, [".frozen"]) == "True False False\n"

    def test_looks_kept_experiments_up_in_the_log(self, used: Bench, manifest: Manifest):
        listed, other = (b'{"v":1,"name":"door","n":%d}\0' % n + bytes(68) for n in (1, 2))
        logged = [experiment_entry("garden", "door", listed), Entry("hushmote/release/1.0", b"x")]
        head, end, proven = bytes(4), bytes(4), bytes(12)
        kept = {
            "/experiments/door": head + listed + proven + end,
            "/experiments/door.ask": listed + proven + end,
            "/ldp/experiments/door": head
            + listed
            + end,  # of an application without a log, in its ledger's folder
            "/experiments/gone": head + b"\0" + bytes(68) + end,  # a withdrawal
            "/experiments/old": head + b"\0" + end,  # only a serial
            "/experiments/door.yes": bytes(16),
        }
        wrong = {
            "/experiments/hall": head + listed + proven + end,  # under another name
            "/experiments/attic": head + other + proven + end,
            "/experiments/attic.ask": other + proven + end,
        }
        with used.board() as board:
            on_board(board, "import os\nos.mkdir('/experiments')\nos.mkdir('/ldp/experiments')")
            for path, data in (kept | wrong).items():
                on_board(board, f"with open({path!r}, 'wb') as f: f.write({data!r})")
            result = verify_board(board.port, manifest, Load(), timeout_s=HANGS_S)
            assert result.matches
            assert {p for p, kind in result.not_compared.items() if kind == "kept experiments"} == {
                *kept,
                *wrong,
            }
            result = verify_board(board.port, manifest, Load(), logged=logged, timeout_s=HANGS_S)
        assert result.unlogged == tuple(sorted(wrong))
        assert not result.matches
        assert result.proof == "The files that the board returned are those of Hushmote 9.8.7."
        kinds = [kind for kind in result.not_compared.values() if kind == "kept experiments"]
        assert kinds == ["kept experiments"]  # the consent


class TestFailure:
    @pytest.mark.parametrize(
        "change",
        [
            lambda answer: [],
            lambda answer: answer | {"files": {"/main.py": ["cHJpbnQoKQ==", "00"]}},
            lambda answer: answer | {"files": {"/main.py": ["not base64!", "00"]}},
            lambda answer: answer | {"files": {"/main.py": 5}},
            lambda answer: answer | {"board": {"version": ["1"]}},
            lambda answer: answer | {"board": {"version": [1, 26, 0]}},
            lambda answer: answer | {"board": answer["board"] | {"frozen": 5}},
        ],
    )
    def test_nonsense_from_the_board_is_one_line(
        self, change: Callable, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
    ):
        board = {"version": [1, 26, 0], "mpy": 6, "name": "b", "network": True, "frozen": []}
        monkeypatch.setattr(UsbLink, "ask", lambda *_args, **_more: change({"files": {}, "board": board}))
        monkeypatch.setattr(UsbLink, "run", lambda *_args, **_more: "")
        with fails("^the board's answer is garbled: try another cable", FlashError):
            verify_board("/dev/ttyACM0", manifest, Load())

    @pytest.mark.parametrize("version", [[], [1, 22, 2]])
    def test_needs_micropython(self, version: list[int], manifest: Manifest, monkeypatch: pytest.MonkeyPatch):
        board = {"version": version, "mpy": 0, "name": "b"}
        monkeypatch.setattr(UsbLink, "ask", lambda *_args, **_more: {"files": {}, "board": board})
        monkeypatch.setattr(UsbLink, "run", lambda *_args, **_more: "")
        with fails("^the board does not run MicroPython 1.23 or later", FlashError):
            verify_board("/dev/ttyACM0", manifest, Load())

    def test_warns_of_flawed_micropython(self, manifest: Manifest, monkeypatch: pytest.MonkeyPatch):
        for version, words in (
            ([1, 23, 0], "1.23.0, which CVE-2024-8948 affects: install 1.24"),
            ([1, 24, 0], ""),
        ):
            board = {"version": version, "mpy": 6, "name": "b"}
            answer = {"files": {}, "board": board}
            monkeypatch.setattr(UsbLink, "ask", lambda *_args, _answer=answer, **_more: _answer)
            monkeypatch.setattr(UsbLink, "run", lambda *_args, **_more: "")
            result = verify_board("/dev/ttyACM0", manifest, Load())
            assert words in result.warning
            assert (result.warning in cli_flash._hints(result, has_main=True)) == bool(words)

    def test_silent_port_suggests_an_image(self, manifest: Manifest):
        host, port = os.openpty()
        try:
            with fails("no MicroPython answers at .*in C, compare the image with --image", FlashError):
                verify_board(os.ttyname(port), manifest, Load(), timeout_s=1)
        finally:
            os.close(host)
            os.close(port)

    def test_missing_own_application_is_named_before_reading(self, manifest: Manifest, tmp_path: Path):
        with fails("^cannot read .*none.py: No such file", FlashError):
            verify_board("/dev/ttyNONE", manifest, Load(main=tmp_path / "none.py"))


class TestManifest:
    def test_has_files_and_its_own_hash(self, sums_file: Path, manifest: Manifest):
        assert manifest.sha256 == hashlib.sha256(sums_file.read_bytes()).hexdigest()
        main = release_files()["/main.py"]
        assert manifest.files["board/main.py"] == hashlib.sha256(main).hexdigest()
        assert manifest.board_files()["/main.py"] == manifest.files["board/main.py"]
        assert manifest.release == "Hushmote 9.8.7"

    def test_reads_output_of_sha256sum(self, tmp_path: Path):
        (tmp_path / "app.bin").write_bytes(b"app")
        for mode in ("--binary", "--text"):
            command = ["sha256sum", mode, "app.bin"]
            output = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
            (tmp_path / "sums").write_bytes(output)
            assert read_manifest(tmp_path / "sums").files == {"app.bin": hashlib.sha256(b"app").hexdigest()}

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "is not a manifest: it is empty"),
            (b'{"_type": "https://in-toto.io/Statement/v1"}', "line 1 must be a SHA-256"),
            (b"0" * 64 + b"  a\n" + b"1" * 64 + b"  a\n", "line 2 must be .* each name only once"),
            (b"0" * 63 + b"  a\n", "line 1 must be"),
            (bytes(range(256)), "line 1 must be"),
        ],
    )
    def test_rejects_other_files(self, content: bytes, words: str, tmp_path: Path):
        (tmp_path / "sums").write_bytes(content)
        with fails(words, FlashError):
            read_manifest(tmp_path / "sums")

    def test_without_boards_files_cannot_verify_one(self):
        with fails("lists no files of boards, such as board/main.py", FlashError):
            verify_board("/dev/ttyNONE", Manifest({"app.bin": "0" * 64}, "1" * 64), Load())


def esp32_image(is_hashed: bool) -> bytes:
    """Return an image in the layout of `esptool elf2image`."""
    image = bytes((0xE9, 2, 2, 0x20)) + bytes(19) + bytes([is_hashed])
    for address, size in ((0x3F400020, 1000), (0x40080000, 332)):
        image += struct.pack("<II", address, size) + bytes(index % 251 for index in range(size))
    image += bytes(15 - len(image) % 16) + b"\x57"  # the checksum, which is not compared
    return image + hashlib.sha256(image).digest() if is_hashed else image


class TestImage:
    @pytest.mark.parametrize("after", [b"", b"\xff" * 5000, b"an older and longer image"])
    @pytest.mark.parametrize("is_hashed", [True, False])
    def test_esp32_image_ends_where_its_header_says(self, is_hashed: bool, after: bytes, tmp_path: Path):
        image = esp32_image(is_hashed)
        (tmp_path / "dump.bin").write_bytes(image + after)
        listed = Manifest({"app.bin": hashlib.sha256(image).hexdigest(), "x": "0" * 64}, "1" * 64)
        result = verify_image(tmp_path / "dump.bin", listed)
        assert (result.name, result.matches) == ("app.bin", True)
        assert result.sha256 == listed.files["app.bin"]
        assert result.proof == "The image is app.bin of the manifest."
        (tmp_path / "dump.bin").write_bytes(image.replace(b"abc", b"abd", 1) + after)
        if is_hashed:
            with fails("own SHA-256 does not match: read all of it", FlashError):
                verify_image(tmp_path / "dump.bin", listed)
        else:
            assert not verify_image(tmp_path / "dump.bin", listed).matches

    @pytest.mark.parametrize("image", [b"vectors\x00", b"ends erased\xff"])
    def test_other_image_ends_at_erased_flash(self, image: bytes, tmp_path: Path):
        listed = Manifest({"firmware.bin": hashlib.sha256(image).hexdigest()}, "1" * 64)
        (tmp_path / "dump.bin").write_bytes(image)
        assert verify_image(tmp_path / "dump.bin", listed).matches
        (tmp_path / "dump.bin").write_bytes(image + b"\xff" * 100)
        assert verify_image(tmp_path / "dump.bin", listed).matches is not image.endswith(b"\xff")
        (tmp_path / "dump.bin").write_bytes(b"?" + image)
        result = verify_image(tmp_path / "dump.bin", listed)
        assert result.proof == "The image is not in the manifest."

    def test_short_dump_is_no_esp32_image(self, tmp_path: Path):
        (tmp_path / "dump.bin").write_bytes(b"\xe9")
        assert not verify_image(tmp_path / "dump.bin", Manifest({"a": "0" * 64}, "1" * 64)).matches


class TestCommand:
    def test_prints_result_and_exits_with_it(self, used: Bench, sums_file: Path, tmp_path: Path):
        with used.board() as board:
            command = ("flash", "--verify", board.port)
            output = hushmote(*command, "--manifest", str(sums_file), cwd=tmp_path)
            assert "\nsame: 14 files\n" in output
            assert "\nnot compared (settings): /settings.json\n" in output
            assert hashlib.sha256(sums_file.read_bytes()).hexdigest() in output
            *_, proof, limit = output.splitlines()
            assert proof == "The files that the board returned are those of Hushmote 9.8.7."
            assert limit.endswith(
                "can return files that it does not run; only secure boot proves what it runs."
            )
            assert "as installed here." in hushmote(*command, cwd=tmp_path)  # without a manifest
            on_board(board, "PATH = '/lib/gap.mpy'" + FLIP + "open('/\x1b[2J.py', 'w').close()")
            status, output = different(*command, cwd=tmp_path)
            assert (status, "\nchanged: /lib/gap.mpy\n" in output) == (1, True)
            assert "unknown (the board could run it): /\\x1b[2J.py\n" in output
            assert "other versions of Hushmote and mpy-cross write other .mpy files" in output
            status, output = different(*command, "--json", "--manifest", str(sums_file), cwd=tmp_path)
            result = json.loads(output)
            assert (status, result["matches"], result["changed"]) == (1, False, ["/lib/gap.mpy"])
            assert result["proof"].startswith("The files that the board returned are not those of")

    def test_does_not_run_files_of_the_current_folder(self, used: Bench, sums_file: Path, tmp_path: Path):
        (tmp_path / "hashlib.py").write_text("raise SystemExit\n")
        with used.board() as board:
            command = ("flash", "--verify", board.port, "--manifest", str(sums_file))
            assert "\nsame: 14 files\n" in hushmote(*command, cwd=tmp_path)

    def test_image_is_compared_with_manifest(self, tmp_path: Path):
        (tmp_path / "app.bin").write_bytes(b"app")
        (tmp_path / "SHA256SUMS").write_text(sums({"build/app.bin": b"app"}))
        command = ("flash", "--verify", "--manifest", "SHA256SUMS", "--image")
        output = hushmote(*command, "app.bin", cwd=tmp_path)
        assert "The image is build/app.bin of the manifest.\n" in output
        assert (
            "\nnot compared: kept experiments, ledger and settings, which a board keeps beside its" in output
        )
        status, output = different(*command, "SHA256SUMS", "--json", cwd=tmp_path)
        answer = json.loads(output)
        assert (status, answer["name"]) == (1, None)
        assert answer["not_compared"] == ["kept experiments", "ledger", "settings"]

    def test_manifest_is_looked_up_in_a_log(self, tmp_path: Path):
        (tmp_path / "app.bin").write_bytes(b"app")
        content = sums({"build/app.bin": b"app"}).encode()
        (tmp_path / "SHA256SUMS").write_bytes(content)
        key = SecretKey("example.org/log", bytes([1] * 32), bytes([2] * 32))
        others = [Entry(f"hushmote/release/1.{i}", b"%d" % i) for i in range(3)]
        command = ["flash", "--verify", "--manifest", "SHA256SUMS", "--image", "app.bin", "--log", "log"]
        command += ["--log-key", str(key.public(ED25519))]
        export(tmp_path / "log", key, others)
        status, output = different(*command, cwd=tmp_path)
        assert status == 1
        assert "The log example.org/log does not have this manifest among its 3 entries. It may" in output
        export(tmp_path / "log", key, [*others, Entry("hushmote/release/1.3", content)])
        output = hushmote(*command, cwd=tmp_path)
        assert (
            "The log example.org/log has this manifest as release 1.3, entry 3. It may show others" in output
        )
        wrong = str(SecretKey("example.org/log", bytes([3] * 32), bytes([2] * 32)).public(ED25519))
        assert "has no signature of the key" in hushmote(*command[:-1], wrong, cwd=tmp_path, expect=1)
        export(
            tmp_path / "log",
            key,
            [Entry("hushmote/release/1.3", b"x"), Entry("hushmote/release/1.3", content)],
        )
        status, output = different(*command, cwd=tmp_path)
        assert (
            status,
            "It has 1 other manifest of this release, which others may have: entry 0." in output,
        ) == (1, True)

    def test_witnesses_of_the_log_must_have_signed(self, tmp_path: Path):
        content = sums({"build/app.bin": b"app"}).encode()
        (tmp_path / "app.bin").write_bytes(b"app")
        (tmp_path / "SHA256SUMS").write_bytes(content)
        key = SecretKey("example.org/log", bytes([1] * 32), bytes([2] * 32))
        one, two = (SecretKey(f"w{n}.example", bytes([n] * 32), bytes([n] * 32)) for n in (3, 4))
        export(tmp_path / "log", key, [Entry("hushmote/release/1.3", content)], one)
        command = ["flash", "--verify", "--manifest", "SHA256SUMS", "--image", "app.bin", "--log", "log"]
        command += ["--log-key", str(key.public(ED25519)), "--witness", str(one.public(COSIGNATURE))]
        output = hushmote(*command, cwd=tmp_path)
        assert "as release 1.3, entry 0. Signed by w3.example.\n" in output
        status, output = different(*command, "--witness", str(two.public(COSIGNATURE)), cwd=tmp_path)
        assert (status, "Signed by w3.example. Not signed by w4.example.\n" in output) == (1, True)

    @pytest.mark.parametrize(
        ("arguments", "words", "status"),
        [
            ("--verify /dev/ttyNONE", "no such port: /dev/ttyNONE", 1),
            ("--verify /dev/ttyNONE --manifest none", "cannot read none: No such file", 1),
            ("--verify /dev/ttyNONE desk.settings.json", "--verify changes nothing: leave out", 1),
            ("--verify /dev/ttyNONE --yes", "--verify changes nothing: leave out", 1),
            ("--verify --image app.bin", "--image takes no port, but the firmware's SHA256SUMS", 1),
            ("/dev/ttyNONE desk.settings.json --manifest x", "add --verify", 1),
            ("--verify", "Missing argument 'port'", 2),
            ("--verify /dev/ttyNONE --log log", "needs --manifest FILE, --log URL and --log-key KEY", 1),
            ("/dev/ttyNONE desk.settings.json --log-key x", "add --verify", 1),
            ("--verify --manifest x --log log --log-key x", "--log-key must be a public key of the form", 1),
        ],
    )
    def test_wrong_options_get_one_line(self, arguments: str, words: str, status: int, tmp_path: Path):
        assert words in hushmote("flash", *arguments.split(), cwd=tmp_path, expect=status)


def run(argv: Sequence[str], script: str, path: list[str]) -> str:
    """Run a script on MicroPython with this path, and return its output or its error."""
    command = [*argv, "-c", f"import sys\nsys.path[:] = {path!r}\n{script}"]
    return subprocess.run(command, stdout=-1, stderr=-2, text=True, check=False, timeout=HANGS_S).stdout


def export(folder: Path, key: SecretKey, entries: Sequence[Entry], *witnesses: SecretKey) -> None:
    """Write a log's files."""
    tree = Tree(entry.leaf for entry in entries)
    text = Checkpoint(key.name, tree.size, tree.root()).text
    lines = [line for witness in witnesses for line in witness.cosign(text, 1_800_000_000)]
    note = Checkpoint(key.name, tree.size, tree.root(), (*key.sign(text), *lines))
    for path, data in [*files(tree, list(map(bytes, entries))), ("checkpoint", str(note).encode())]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def different(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run a command that finds a difference; return its exit status and output."""
    command = [sys.executable, "-m", "hushmote", *arguments]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert result.stderr == ""
    return result.returncode, result.stdout
