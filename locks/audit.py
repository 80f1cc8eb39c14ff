"""Ask for known flaws of what the locks pin: `make audit`.

pip-audit asks the registry for each version. Ends with 1 where a flaw is known, with 2 where the registry has
no such data, which is not the same as no flaws: pip-audit itself calls that "no known vulnerabilities".
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOCKS = Path(__file__).parent


def verdict(lock: str, dependencies: Sequence[dict[str, Any]]) -> tuple[int, list[str]]:
    """Return the exit status and the lines that say why, from pip-audit's list of a lock."""
    unknown = [d["name"] for d in dependencies if "skip_reason" in d]
    flaws = [
        f"{lock}: {d['name']} {d['version']} has {v['id']}, mended in {' '.join(v['fix_versions']) or '?'}"
        for d in dependencies
        for v in d.get("vulns", ())
    ]
    if flaws:
        return 1, flaws
    if unknown or not dependencies:
        affected = f"{len(unknown)} of {len(dependencies)} packages"
        return 2, [f"{lock}: the registry has no data about flaws of {affected}"]
    return 0, [f"{lock}: no flaw is known in {len(dependencies)} packages"]


def main() -> None:
    status = 0
    for lock in ("container.txt", "test.txt", "build.txt", "tools.txt", "release.txt"):
        command = [Path(sys.executable).with_name("pip-audit"), "--format", "json", "--disable-pip"]
        command += ["--require-hashes", "--progress-spinner", "off", "--requirement", LOCKS / lock]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            dependencies = json.loads(run.stdout)["dependencies"]
        except ValueError:
            last = run.stderr.strip().rpartition("\n")[2]
            found, lines = 2, [f"{lock}: the data about flaws cannot be had: {last}"]
        else:
            found, lines = verdict(lock, dependencies)
        print(*lines, sep="\n")
        status = status if status == 1 else found or status
    sys.exit(status)


if __name__ == "__main__":
    main()
