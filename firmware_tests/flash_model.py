"""Flash chips and disks in memory whose power fails at a chosen operation, and the file systems on them.

Runs on MicroPython with littlefs and FAT. An operation is an erase or a program operation on the chip, or a
sector write on the disk. arm() sets what happens at operation `cut` (and `blip`):

    share   of that operation: "none", "half" or "whole" is done
    mode    afterwards: "raise"   PowerCut stops the code at once
                        "silent"  the code runs on, nothing more reaches the chip
                        "eio"     every further operation fails
    blip    an earlier operation that fails once with an error, after its share; the chip then works again
"""

import vfs

EIO = 5
ERASED = b"\xff"


class PowerCut(BaseException):
    """A power cut. It is derived from BaseException, so that no handler of the code under test catches it."""


_CUT = PowerCut()  # allocated early: when the collector closes a file, there may be no heap left


class _Faulty:
    """A chip that counts operations and lets them pass, fail or stop."""

    def __init__(self):
        self.ops = 0
        self.arm()

    def arm(self, cut=-1, share="none", mode="raise", blip=-1, blip_share="none"):
        self.ops = 0
        self.cut = cut
        self.share = share
        self.mode = mode
        self.blip = blip
        self.blip_share = blip_share
        self.dead = False

    def stop(self):
        """Switch the board off: writes by a late close() have no effect."""
        self.dead = True
        self.mode = "eio"

    def _begin(self, size):
        """Return how many bytes of an operation are completed.

        It must not allocate, since the collector calls it without free heap when it closes files that a cut
        left open.
        """
        op = self.ops
        self.ops = op + 1
        if self.dead:
            return 0
        if op == self.cut:
            self.dead = True
            return _part(size, self.share)
        return _part(size, self.blip_share) if op == self.blip else size

    def _end(self):
        """Return the result of a started operation: 0 or an errno."""
        if self.dead:
            if self.mode == "raise":
                raise _CUT
            return EIO if self.mode == "eio" else 0
        return EIO if self.ops - 1 == self.blip else 0


def _part(size, share):
    return 0 if share == "none" else size if share == "whole" else size // 2


class Nor(_Faulty):
    """NOR flash: erasing sets a block to 0xff, programming only clears bits. Blocks are stored sparsely.

    Attributes:
        blocks: Number of blocks.
        block_bytes: Size of the erase block.
        image: {number: bytes} of an earlier chip.
        erases: {block number: times erased}.
    """

    def __init__(self, blocks, block_bytes=4096, image=None):
        super().__init__()
        self.count = blocks
        self.block_bytes = block_bytes
        self.blank = ERASED * block_bytes
        self.blocks = {}
        self.erases = {}
        self.programmed_bytes = 0
        for n, data in (image or {}).items():
            self.blocks[n] = bytearray(data)

    def image(self):
        return {n: bytes(data) for n, data in self.blocks.items()}

    def readblocks(self, n, buf, off=0):
        block = self.blocks.get(n, self.blank)
        try:
            buf[:] = memoryview(block)[off : off + len(buf)]
        except MemoryError:  # the collector finalises a file that a cut left open: no allocation is possible
            for i in range(len(buf)):
                buf[i] = block[off + i]

    def program(self, n, buf, off):
        done = self._begin(len(buf))
        if done:
            if n not in self.blocks:
                self.blocks[n] = bytearray(self.blank)
            block = self.blocks[n]
            self.programmed_bytes += done
            if block[off : off + done] == self.blank[:done]:
                block[off : off + done] = buf[:done]
            else:
                for i in range(done):
                    block[off + i] &= buf[i]
        return -self._end()

    def erase(self, n):
        done = self._begin(self.block_bytes)
        if done:
            self.erases[n] = self.erases.get(n, 0) + 1
            if n in self.blocks:
                if done == self.block_bytes:
                    del self.blocks[n]
                else:
                    self.blocks[n][:done] = ERASED * done
        return -self._end()

    # MicroPython's extended block protocol.

    def writeblocks(self, n, buf, off=0):
        return self.program(n, buf, off)

    def ioctl(self, op, arg):
        if op == 4:
            return self.count
        if op == 5:
            return self.block_bytes
        if op == 6:
            return self.erase(arg)
        return 0


class Disk(_Faulty):
    """Sectors for FAT.

    With erase_first it is on-chip flash (a sector is erased, then programmed: two operations), otherwise a
    memory card (a sector is overwritten in one operation).
    """

    def __init__(self, sectors, sector_bytes, erase_first, image=None):
        super().__init__()
        self.count = sectors
        self.sector_bytes = sector_bytes
        self.erase_first = erase_first
        self.blank = ERASED * sector_bytes
        self.sectors = {}
        for n, data in (image or {}).items():
            self.sectors[n] = bytearray(data)

    def image(self):
        return {n: bytes(data) for n, data in self.sectors.items()}

    def readblocks(self, n, buf):
        size = self.sector_bytes
        for i in range(len(buf) // size):
            buf[i * size : (i + 1) * size] = self.sectors.get(n + i, self.blank)

    def writeblocks(self, n, buf):
        size = self.sector_bytes
        for i in range(len(buf) // size):
            if self.erase_first:
                done = self._begin(size)
                self._put(n + i, ERASED, done)
                error = self._end()
                if error:
                    return error
            done = self._begin(size)
            if done:
                self._put(n + i, memoryview(buf)[i * size : i * size + done], 1)
            error = self._end()
            if error:
                return error
        return 0

    def _put(self, n, data, times):
        if times:
            if n not in self.sectors:
                self.sectors[n] = bytearray(self.blank)
            self.sectors[n][: len(data) * times] = data if times == 1 else data * times

    def ioctl(self, op, arg):
        if op == 4:
            return self.count
        if op == 5:
            return self.sector_bytes
        return 0


MOUNT = "/f"


class Littlefs:
    """littlefs on NOR flash, as a board's firmware mounts it."""

    def __init__(self, name, blocks, **geometry):
        self.name = name
        self.blocks = blocks
        self.geometry = geometry

    def chip(self, image=None):
        """Return a chip with an image, or a freshly formatted one."""
        chip = Nor(self.blocks, image=image)
        if image is None:
            vfs.VfsLfs2.mkfs(chip, **self.geometry)
        return chip

    def mount(self, chip):
        """Return the client's storage on it; raise OSError if it does not mount."""
        vfs.mount(vfs.VfsLfs2(chip, **self.geometry), MOUNT)
        return MOUNT + "/ldp"

    def umount(self):
        vfs.umount(MOUNT)


class Fat:
    """FAT on a memory card or in on-chip flash."""

    def __init__(self, name, sectors, sector_bytes, erase_first):
        self.name = name
        self.shape = (sectors, sector_bytes, erase_first)

    def chip(self, image=None):
        disk = Disk(*self.shape, image=image)
        if image is None:
            vfs.VfsFat.mkfs(disk)
        return disk

    def mount(self, chip):
        vfs.mount(vfs.VfsFat(chip), MOUNT)
        return MOUNT + "/ldp"

    def umount(self):
        vfs.umount(MOUNT)


class Slots:
    """The client's storage directly on NOR flash: a slot has two blocks, and is one record, old or new.

    A block has a mark, a count modulo 256, two bytes of length, and the record. The mark is programmed last.
    """

    def __init__(self, chip):
        self.chip = chip

    def _newest(self, slot):
        """Return the block in force, or None."""
        newest = None
        for block in (2 * slot, 2 * slot + 1):
            data = self.chip.blocks.get(block)
            if (
                data
                and data[0] == 0
                and (newest is None or data[1] - self.chip.blocks[newest][1] & 255 < 128)
            ):
                newest = block
        return newest

    def read(self, slot):
        block = self._newest(slot)
        if block is None:
            return None
        data = self.chip.blocks[block]
        return bytes(data[4 : 4 + (data[2] << 8 | data[3])])

    def write(self, slot, data):
        chip = self.chip
        old = self._newest(slot)
        block = 2 * slot if old is None else old ^ 1
        count = 0 if old is None else chip.blocks[old][1] + 1 & 255
        record = bytes((count, len(data) >> 8, len(data) & 255)) + data
        if chip.erase(block) or chip.program(block, record, 1) or chip.program(block, b"\x00", 0):
            raise OSError(EIO)


class SlotsInPlace:
    """The same without a second block: a write destroys the slot's old record. Boards do not do this."""

    def __init__(self, chip):
        self.chip = chip

    def read(self, slot):
        block = self.chip.blocks.get(slot, self.chip.blank)
        if block[0]:
            return None if block == self.chip.blank else b""
        return bytes(block[3 : 3 + (block[1] << 8 | block[2])])

    def write(self, slot, data):
        chip = self.chip
        record = bytes((len(data) >> 8, len(data) & 255)) + data
        if chip.erase(slot) or chip.program(slot, record, 1) or chip.program(slot, b"\x00", 0):
            raise OSError(EIO)


class RawFlash:
    """Without a file system: slots on a chip of four small blocks."""

    def __init__(self, name="raw NOR flash", slots=Slots):
        self.name = name
        self.slots = slots

    def chip(self, image=None):
        return Nor(4, 1024, image)

    def mount(self, chip):
        return self.slots(chip)

    def umount(self):
        pass


# The geometries of MicroPython's own mounts: esp32 uses VfsLfs2's defaults, rp2 sets progsize=256. The cache
# is four times the larger of readsize and progsize: 128 bytes, and 1,024.
def esp32(blocks):
    return Littlefs("littlefs, ESP32", blocks, readsize=32, progsize=32, lookahead=32)


def pico(blocks):
    return Littlefs("littlefs, Pico", blocks, readsize=32, progsize=256, lookahead=32)


def memory_card():
    return Fat("FAT, memory card", 128, 512, False)


def on_chip_fat():
    return Fat("FAT, on-chip flash", 64, 4096, True)
