"""MicroPython's RPI_PICO firmware from Debian 13's source packages, and the emulator rp2040js from npm.

The plain firmware is as published, except for micropython-lib's modules, which Debian does not have. The
frozen firmware also has device/manifest.py. The build folder is kept, so that changed modules can be frozen
again within seconds.
"""

import os
import shutil
from pathlib import Path

from .. import debian

EMULATOR = "rp2040js@1.4.1"
PACKAGES = ("gcc", "make", "cmake", "dpkg-dev", "gcc-arm-none-eabi", "libnewlib-arm-none-eabi")
PACKAGES += ("libstdc++-arm-none-eabi-newlib", "nodejs", "npm")
_TOOLS = ("gcc", "make", "cmake", "dpkg-source", "arm-none-eabi-g++", "node", "npm")
_PLAIN = """freeze("$(PORT_DIR)/modules")
include("$(MPY_DIR)/extmod/asyncio")
"""
_FROZEN = (
    _PLAIN
    + """include("{device}/manifest.py", library=False)
"""
)


def install(rig: Path) -> None:
    """Build the plain firmware into rig/pico/firmware.bin, and install the emulator next to it."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise debian.CannotInstall(
            "the firmware's build lacks " + ", ".join(missing), "apt-get install " + " ".join(PACKAGES)
        )
    folder = rig / "pico"
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "src"
    source.mkdir(parents=True)
    install_emulator(rig)
    _unpack(source)
    debian.run(["make", "-s", "-C", str(source / "micropython" / "mpy-cross"), f"-j{os.cpu_count()}"], source)
    _build(rig, _PLAIN, folder / "firmware.bin")


def install_emulator(rig: Path) -> None:
    """Install rp2040js in rig/pico if it is missing; raise CannotInstall without npm."""
    folder = rig / "pico"
    if (folder / "node_modules" / "rp2040js").exists():
        return
    if shutil.which("npm") is None:
        raise debian.CannotInstall("neither the emulator nor npm is installed", "apt-get install nodejs npm")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    debian.run(["npm", "install", "--no-audit", "--no-fund", "--silent", EMULATOR], folder)


def freeze(rig: Path, device: Path) -> None:
    """Build the firmware with device/manifest.py's modules into rig/pico/frozen.bin."""
    _build(rig, _FROZEN.format(device=device), rig / "pico" / "frozen.bin")


def _unpack(source: Path) -> None:
    for name in ("micropython", "mbedtls"):
        debian.unpack_source(name, source)
    for package in debian.packages("all", "pico-sdk-source", "tinyusb-source").glob("*.deb"):
        debian.run(["dpkg", "-x", str(package), "debian"], source)
    library = source / "micropython" / "lib"
    for name, folder in (("tinyusb", source / "debian/usr/src/tinyusb"), ("mbedtls", source / "mbedtls")):
        (library / name).rmdir()
        (library / name).symlink_to(folder)
    (library / "micropython-lib").mkdir(exist_ok=True)
    (library / "micropython-lib" / "README.md").touch()


def _build(rig: Path, frozen: str, target: Path) -> None:
    folder = rig / "pico"
    manifest = target.with_suffix(".py")
    manifest.write_text(frozen)
    port = folder / "src" / "micropython" / "ports" / "rp2"
    configure = [
        "cmake",
        "-S",
        str(port),
        "-B",
        str(folder / "build"),
        "-DPICO_BUILD_DOCS=0",
        "-DPICO_NO_PICOTOOL=1",
    ]
    configure += ["-DMICROPY_BOARD=RPI_PICO", f"-DMICROPY_BOARD_DIR={port / 'boards' / 'RPI_PICO'}"]
    configure += [f"-DPICO_SDK_PATH_OVERRIDE={folder / 'src/debian/usr/src/pico-sdk'}"]
    configure += [f"-DMICROPY_FROZEN_MANIFEST={manifest}"]
    environment = {
        "MICROPY_MPYCROSS": str(folder / "src/micropython/mpy-cross/build/mpy-cross"),
        "GIT_CEILING_DIRECTORIES": str(rig),  # otherwise the firmware would have this checkout's version
        "SOURCE_DATE_EPOCH": "0",
    }
    debian.run(configure, folder, environment)
    debian.run(["make", "-s", "-C", str(folder / "build"), f"-j{os.cpu_count()}"], folder, environment)
    new = target.with_suffix(".new")
    shutil.copy(folder / "build" / "firmware.bin", new)
    new.replace(target)
