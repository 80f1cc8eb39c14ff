"""Targets of the C client: this machine, emulated chips, a big-endian machine."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import runtimes
from emulation import debian
from emulation.pico import build as pico_build

CORE = runtimes.ROOT / "clients" / "c"
NOT_CORE = ("check.c", "fuzz.c", "reporter.c", "asking.c", "identity.c", "log.c", "preview.c", "question.c")
RIG = Path(__file__).resolve().parent / "emulation" / "c"
PICO = runtimes.RIG / "pico"
STRICT = (
    *("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes"),
    "-Werror",
)
SECTIONS = ("-ffunction-sections", "-fdata-sections")
_BARE = (*SECTIONS, "-Wl,--gc-sections", "--specs=nano.specs", "--specs=nosys.specs", "-nostartfiles")
_BARE += ("-T", str(RIG / "bare.ld"), str(RIG / "start.c"))
_QEMU = ("-nographic", "-monitor", "none", "-serial", "none", "-semihosting", "-kernel")
_RISCV_AT = {"__flash": 0x80000000, "__flash_size": 4 << 20, "__ram": 0x80400000, "__ram_size": 1 << 20}


@dataclass(frozen=True)
class Target:
    """A compiler, its options, and the command that runs its programs; `package` lists the Debian packages.

    Attributes:
        probe: A file that the compiler's -print-file-name must find, or None.
    """

    name: str
    compiler: str
    chip: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    runner: tuple[str, ...] = ()
    package: str = "gcc libc6-dev"
    probe: str | None = None

    def missing(self) -> str | None:
        """Return why the target cannot be used, with the remedy, or None if it can."""
        for tool in (self.compiler, *self.runner[:1]):
            if shutil.which(tool) is None:
                return f"{tool} is missing: apt-get install {self.package}"
        if (
            self.probe is not None
            and not Path(self._query_compiler(f"-print-file-name={self.probe}")).is_absolute()
        ):
            return f"{self.compiler} does not have {self.probe}: apt-get install {self.package}"
        if self is PICO_CHIP:
            try:
                pico_build.install_emulator(runtimes.RIG)
            except debian.CannotInstall as e:
                return str(e)
        return None

    def _query_compiler(self, question: str) -> str:
        command = [self.compiler, *self.chip, question]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def build(self, program: Path, sources: Sequence[Path], *flags: str) -> Path:
        """Compile and link; print messages to standard error and raise CalledProcessError on failure."""
        command = [self.compiler, *STRICT, *self.chip, f"-I{CORE}", *flags, *map(str, sources), *self.flags]
        subprocess.run([*command, "-lm", "-o", str(program)], check=True, timeout=runtimes.TIMEOUT_S)
        if self is PICO_CHIP:
            copy = ["arm-none-eabi-objcopy", "-O", "binary", str(program), str(program.with_suffix(".bin"))]
            subprocess.run(copy, check=True)
            return program.with_suffix(".bin")
        return program

    def run(self, program: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HUSHMOTE_PICO": str(PICO)}
        command = [*self.runner, str(program)]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=runtimes.TIMEOUT_S, check=False
        )


def core(without: Sequence[str] = ()) -> list[Path]:
    """Return the client's files, except for the given ones."""
    return [p for p in sorted(CORE.glob("*.c")) if p.name not in (*NOT_CORE, *without)]


PICO_CHIP = Target(
    "RP2040, emulated",
    "arm-none-eabi-gcc",
    ("-mcpu=cortex-m0plus", "-mthumb", "-DEMULATED_RP2040"),
    ("-Os", *_BARE, "-Wl,--defsym=FLASH_AT=0x10000000"),
    ("node", str(RIG.parent / "pico" / "run_bare.mjs")),
    "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "nano.specs",
)
CORTEX_M3 = Target(
    "Cortex-M3, QEMU",
    "arm-none-eabi-gcc",
    ("-mcpu=cortex-m3", "-mthumb"),
    ("-Os", *_BARE, "-Wl,--defsym=FLASH_AT=0"),
    ("qemu-system-arm", "-M", "mps2-an385", *_QEMU),
    "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm",
    "nano.specs",
)
RISCV = Target(
    "RISC-V rv32imac, QEMU",
    "riscv64-unknown-elf-gcc",
    ("-march=rv32imac", "-mabi=ilp32", "--specs=picolibc.specs"),
    (
        *("-Os", "--oslib=semihost", "--crt0=hosted"),
        *(f"-Wl,--defsym={name}={at:#x}" for name, at in _RISCV_AT.items()),
    ),
    ("qemu-system-riscv32", "-M", "virt", "-bios", "none", *_QEMU),
    "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc",
    "picolibc.specs",
)
TARGETS = (
    Target("this machine, -O0", "gcc", flags=("-O0",)),
    Target("this machine, -O2", "gcc", flags=("-O2",)),
    Target(
        "this machine, sanitized",
        "gcc",
        flags=("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    ),
    Target("this machine, clang", "clang", flags=("-O2",), package="clang"),
    Target(
        "this machine, 32 bits",
        "gcc",
        ("-m32",),
        ("-O2",),
        package="gcc-12-multilib",
        probe="libgcc.a",
    ),
    Target(
        "s390x (big-endian), QEMU",
        "s390x-linux-gnu-gcc",
        flags=("-O2", "-static"),
        runner=("qemu-s390x",),
        package="gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user",
    ),
    CORTEX_M3,
    RISCV,
    PICO_CHIP,
)
