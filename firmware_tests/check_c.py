"""Check the C client against all test vectors on every target that this machine can build for and run.

    python firmware_tests/check_c.py                  everything
    python firmware_tests/check_c.py --target RISC    targets whose name contains this

The last line is `N passed, N failed, N skipped`, counting targets.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import c_targets
import runtimes

_VERDICT = re.compile(r"^hushmote: (\d+) vectors, 0 wrong\s*$", re.MULTILINE)


def check_target(target: c_targets.Target, folder: Path) -> str | None:
    """Check a target against a folder's vectors.h; return the failure, or None."""
    sources = c_targets.core(without=("drbg.c",))  # check.c includes it
    sources += [c_targets.CORE / name for name in ("check.c", "log.c", "question.c")]
    try:
        flags = ("-DHUSHMOTE_ROOM_BYTES=1024", "-DHUSHMOTE_WITH_LOG=1", f"-I{folder}")
        program = target.build(folder / f"check{c_targets.TARGETS.index(target)}", sources, *flags)
    except subprocess.CalledProcessError:
        return "it does not compile"
    try:
        done = target.run(program)
    except subprocess.TimeoutExpired:
        return f"still running after {runtimes.TIMEOUT_S} s"
    output = done.stdout + done.stderr  # QEMU's semihosting writes to the latter
    if done.returncode or not _VERDICT.search(output):
        return f"exit status {done.returncode}\n{output}"
    return None


def run_target(target: c_targets.Target, folder: Path) -> tuple[c_targets.Target, str, str]:
    """Return the target, its result as a word, and the reason or duration."""
    start = time.monotonic()
    missing = target.missing()
    wrong = None if missing else check_target(target, folder)
    word = "skipped" if missing else "failed" if wrong else "passed"
    return target, word, missing or wrong or f"{time.monotonic() - start:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description="All test vectors, answered by the C client.")
    parser.add_argument("--target", default="", help="only targets whose name contains this")
    arguments = parser.parse_args()
    chosen = [t for t in c_targets.TARGETS if arguments.target in t.name]
    words = []
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        tables = [sys.executable, str(runtimes.ROOT / "tools/make_c_vectors.py")]
        subprocess.run([*tables, str(folder / "vectors.h")], check=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for target, word, note in pool.map(partial(run_target, folder=folder), chosen):
                words.append(word)
                print(f"{target.name}: {word}: {note}", flush=True)
    print(", ".join(f"{words.count(word)} {word}" for word in ("passed", "failed", "skipped")))
    return 1 if "failed" in words or "passed" not in words else 0


if __name__ == "__main__":
    sys.exit(main())
