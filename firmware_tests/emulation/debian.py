"""MicroPython from Debian's archive: the unix port built like a board's, and the 32-bit binary.

Both come from Debian 13 through a separate apt state, so that the machine's apt is not changed. The mirror is
taken from the machine's apt configuration. Downloads stay in the user's cache folder for other checkouts.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

SUITE = "trixie"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_BUILD_PACKAGES = ("gcc", "make", "pkg-config", "dpkg-dev")
# gcc-multilib would provide asm/ for -m32, but apt removes it if a cross compiler is installed.
_KERNEL_HEADERS = ("-idirafter", "/usr/include/x86_64-linux-gnu")
_I386_PACKAGES = (
    "micropython",
    "libc6",
    "libgcc-s1",
    "libffi8",
    "libmbedcrypto16",
    "libmbedtls21",
    "libmbedx509-7",
)


class CannotInstall(Exception):
    """A runtime cannot be installed here; `command` is the remedy."""

    def __init__(self, reason: str, command: str) -> None:
        super().__init__(reason)
        self.command = command


def run(arguments: list[str], cwd: Path, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        arguments,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        # apt's first error is the cause.
        cause = next((line for line in lines if line.startswith("E: ")), lines[-1])
        raise CannotInstall(f"{arguments[0]} failed: {cause}", " ".join(arguments))
    return result.stdout


def mirror() -> str:
    """Return the Debian mirror in the machine's apt configuration; raise CannotInstall if it has none."""
    if not shutil.which("apt-get"):
        raise CannotInstall("apt-get is missing, so this is not a Debian machine", "use Debian 12 or newer")
    listing = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    lines = run(listing, Path.cwd()).splitlines()
    for line in lines:
        if line.startswith("Debian "):
            return line.split()[1]
    for line in lines:  # apt was never updated, so it does not know the labels yet
        if line.rstrip("/").endswith("/debian"):
            return line.split()[-1]
    raise CannotInstall("apt is configured without a Debian mirror", "add one to /etc/apt/sources.list.d")


def _check_machine() -> None:
    if platform.machine() != "x86_64":
        raise CannotInstall("32-bit x86 runs only on x86-64", "use an x86-64 machine, or --port")
    if not KEYRING.exists():
        raise CannotInstall("Debian's archive keys are missing", "apt-get install debian-archive-keyring")


# One state per index, so that an unavailable index does not affect the others.
_INDEX = {
    "source": ("deb-src", ""),
    "i386": ("deb", "arch=i386"),
    "all": ("deb", "arch=amd64"),
}
_TRIES = 3
_PAUSE_S = 10.0


def _private_apt(folder: Path, index: str) -> dict[str, str]:
    """Make an apt state with one index in a folder, and update it; return the environment that selects it."""
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    kind, architecture = _INDEX[index]
    trust = f"signed-by={KEYRING} {architecture}".strip()
    (folder / "sources.list").write_text(f"{kind} [{trust}] {mirror()} {SUITE} main\n")
    (folder / "status").write_text("")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list";\n'
        'Dir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{folder}/lists";\n'
        f'Dir::State::status "{folder}/status";\n'
        f'Dir::Cache "{folder}/cache";\n'
        'APT::Architecture "amd64";\nAPT::Architectures { "amd64"; "i386"; };\n'
        + ('APT::Sandbox::User "root";\n' if os.geteuid() == 0 else "")
        + 'Acquire::Languages "none";\nAPT::Update::Post-Invoke "";\n'
    )
    environment = {"APT_CONFIG": str(folder / "apt.conf")}
    run(["apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update"], folder, environment)
    return environment


def packages(index: str, *names: str) -> Path:
    """Return a folder with packages from an index ("source", "i386" or "all"), downloaded once per user.

    The download is tried three times, since the mirror may be in the middle of a sync.

    Raises:
        CannotInstall: With the mirror's last error.
    """
    _check_machine()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hushmote" / SUITE / index
    target = cache / "+".join(name.partition(":")[0] for name in names)
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for attempts_left in range(_TRIES if not target.exists() else 0, 0, -1):
            try:
                _download(cache, target, index, names)
                break
            except CannotInstall:
                if attempts_left == 1:
                    raise
                time.sleep(_PAUSE_S)
    return target


def _download(cache: Path, target: Path, index: str, names: tuple[str, ...]) -> None:
    environment = _private_apt(cache / "apt", index)
    new = cache / "new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    get = ["source", "--download-only"] if index == "source" else ["download"]
    run(["apt-get", "-qq", *get, *names], new, environment)
    new.replace(target)


def unpack_source(name: str, parent: Path) -> Path:
    """Unpack a source package into parent/name; return that path."""
    description = next(packages("source", name).glob(f"{name}_*.dsc"))
    run(["dpkg-source", "--no-check", "-x", str(description), name], parent)
    return parent / name


def _missing_packages() -> tuple[str, ...]:
    """Return the packages that a 32-bit build needs; the multilib package is named after gcc's version."""
    if any(shutil.which(tool) is None for tool in ("gcc", "make", "pkg-config", "dpkg-source")):
        return _BUILD_PACKAGES
    probe = ["gcc", "-m32", *_KERNEL_HEADERS, "-xc", "-", "-o", os.devnull]
    program = "#include <errno.h>\nint main(void) { return 0; }\n"
    if subprocess.run(probe, input=program, capture_output=True, text=True, check=False).returncode == 0:
        return ()
    return (f"gcc-{run(['gcc', '-dumpversion'], Path.cwd()).strip().partition('.')[0]}-multilib",)


def _get_compiler() -> None:
    installed: tuple[str, ...] = ()
    while missing := _missing_packages():
        if missing == installed:
            raise CannotInstall(f"gcc -m32 fails with {missing[0]} installed", "gcc -m32 says why")
        installed = missing
        install = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-y", "-qq", "install", *missing]
        if os.geteuid() != 0:
            command = "sudo apt-get install " + " ".join(missing)
            raise CannotInstall("a 32-bit C compiler is missing, and installing it needs root", command)
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        try:
            run(install, Path.cwd(), quiet)
        except CannotInstall:
            run(["apt-get", "-qq", "update"], Path.cwd(), quiet)
            run(install, Path.cwd(), quiet)


def install_unix32f(rig: Path) -> None:
    """Build the unix port with 31-bit small integers and single floats into rig/unix32f."""
    _check_machine()
    _get_compiler()
    source = rig / "src"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    port = unpack_source("micropython", source) / "ports" / "unix"
    options = [f"-j{os.cpu_count()}", "MICROPY_FORCE_32BIT=1", "BUILD=build-32f", "FROZEN_MANIFEST="]
    options += [f"MICROPY_PY_{name}=0" for name in ("BTREE", "SSL", "FFI")]
    floats = ("-DMICROPY_FLOAT_IMPL=MICROPY_FLOAT_IMPL_FLOAT", "-DMICROPY_FLOAT_USE_NATIVE_FLT16=0")
    options.append("CFLAGS_EXTRA=" + " ".join((*floats, *_KERNEL_HEADERS)))
    run(["make", "-s", "-C", str(port), *options], source)
    target = rig / "unix32f"
    target.mkdir(exist_ok=True)
    shutil.copy(port / "build-32f" / "micropython", target / "new")
    (target / "new").replace(target / "micropython")
    shutil.rmtree(source)


_LAUNCHER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
lib=$here/usr/lib/i386-linux-gnu
exec "$lib/ld-linux.so.2" --library-path "$lib" "$here/usr/bin/micropython" "$@"
"""


def install_mp32(rig: Path) -> None:
    """Unpack Debian's i386 build and its libraries into rig/mp32, without a compiler or root."""
    archives = packages("i386", *(f"{name}:i386" for name in _I386_PACKAGES))
    target = rig / "mp32"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for package in sorted(archives.glob("*.deb")):
        run(["dpkg", "-x", str(package), str(target)], target)
    launcher = target / "new"
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)
    launcher.replace(target / "micropython")
