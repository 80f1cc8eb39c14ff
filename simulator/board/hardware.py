"""Hardware that is missing on MicroPython's unix port: a littlefs flash, `machine`, `network`.

Runs on the unix port, before repl.py. The flash is a file on the computer, mounted as the only file system,
so a program cannot see the computer's files, and a full flash fails as on a board.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false

import sys

import vfs

RESET_EXIT = 44  # machine.reset()
SLEEP_EXIT = 45  # machine.deepsleep(ms): board.py wakes the board
BLOCK_BYTES = 4096


class Reset(BaseException):
    """Raised to leave the running program, like a hardware reset."""

    def __init__(self, status, sleep_ms=0):
        super().__init__(status)
        self.status = status
        self.sleep_ms = sleep_ms


class ImageFlash:
    """NOR flash in a file: blocks of 4 KiB, pages of 128 bytes, as on an ESP32."""

    def __init__(self, image):
        self._image = image
        self._count = image.seek(0, 2) // BLOCK_BYTES

    def readblocks(self, block, buf, offset):
        self._image.seek(block * BLOCK_BYTES + offset)
        self._image.readinto(buf)

    def writeblocks(self, block, buf, offset):
        self._image.seek(block * BLOCK_BYTES + offset)
        self._image.write(buf)

    def ioctl(self, op, arg):
        if op == 4:
            return self._count
        if op == 5:
            return BLOCK_BYTES
        if op == 6:
            self._image.seek(arg * BLOCK_BYTES)
            self._image.write(b"\xff" * BLOCK_BYTES)
        return 0


def mount(path):
    """Mount the image at `path` as the root file system; format a blank one, as a board does."""
    flash = ImageFlash(open(path, "r+b"))  # noqa: SIM115 - open as long as the board runs
    try:
        lfs = vfs.VfsLfs2(flash, progsize=128, readsize=128)
    except OSError:
        vfs.VfsLfs2.mkfs(flash, progsize=128, readsize=128)
        lfs = vfs.VfsLfs2(flash, progsize=128, readsize=128)
    vfs.umount("/")
    vfs.mount(lfs, "/")
    sys.path[:] = ["", ".frozen", "/lib"]


class _ADC:
    CORE_TEMP = 4

    def __init__(self, channel):
        self.channel = channel

    def read_u16(self):
        return 14100  # 0.710 V: 24.6 °C by the RP2040's datasheet


class MachineModule:
    """The `machine` module of a board with the sensor and the clock of an RP2040."""

    PWRON_RESET = 1
    DEEPSLEEP_RESET = 4
    ADC = _ADC

    def __init__(self, woke):
        self._woke = woke

    def unique_id(self):
        return b"software-board"

    def reset_cause(self):
        return self.DEEPSLEEP_RESET if self._woke else self.PWRON_RESET

    def reset(self):
        raise Reset(RESET_EXIT)

    def deepsleep(self, time_ms=0):
        raise Reset(SLEEP_EXIT, time_ms)

    def bootloader(self, timeout=0):
        raise OSError(95)


class NetworkModule:
    """The `network` module of a board near one access point: "ssid:password", or "*" for any."""

    STA_IF = 0
    AP_IF = 1
    STAT_IDLE = 0
    STAT_CONNECTING = 1
    STAT_GOT_IP = 3
    STAT_WRONG_PASSWORD = -3
    STAT_NO_AP_FOUND = -2

    def __init__(self, access_point):
        self._access_point = access_point

    def country(self, code=None):
        return code

    def hostname(self, name=None):
        return name

    def WLAN(self, interface=0):
        return _Station(self, self._access_point)


class _Station:
    def __init__(self, network, access_point):
        self._network = network
        self._access_point = access_point
        self._state = network.STAT_IDLE

    def active(self, on=None):
        return True

    def connect(self, ssid, password=None):
        real_ssid, _, real_password = self._access_point.partition(":")
        if self._access_point == "*":
            self._state = self._network.STAT_GOT_IP
        elif ssid != real_ssid:
            self._state = self._network.STAT_NO_AP_FOUND
        elif password != real_password:
            self._state = self._network.STAT_WRONG_PASSWORD
        else:
            self._state = self._network.STAT_GOT_IP

    def disconnect(self):
        self._state = self._network.STAT_IDLE

    def isconnected(self):
        return self._state == self._network.STAT_GOT_IP

    def status(self, what=None):
        return self._state

    def config(self, *args, **kwargs):
        return None

    def ifconfig(self, *args):
        return ("127.0.0.1", "255.0.0.0", "127.0.0.1", "127.0.0.1")


class SysModule:
    """The `sys` module of a board: it names the software board and otherwise forwards to the real module."""

    def __init__(self):
        real = sys.implementation
        self.implementation = _Implementation(real.version, real._mpy, "board in software")

    def __getattr__(self, name):
        return getattr(sys, name)


class _Implementation:
    name = "micropython"

    def __init__(self, version, mpy, machine):
        self.version = version
        self._mpy = mpy
        self._machine = machine


def install(image, woke, access_point):
    """Turn this process into a board; access_point may be empty."""
    mount(image)
    sys.modules["machine"] = MachineModule(woke)
    if access_point:
        sys.modules["network"] = NetworkModule(access_point)
    sys.modules["sys"] = SysModule()
