"""Install brokers by other people, measure what each grants, and write the table in docs/your-own-broker.md.

    python tools/make_own_brokers.py [NAME ...]

NAME restricts the run to these brokers: mosquitto, hivemq, artemis, moquette, mochi, rumqttd, aedes. A broker
whose installer is missing or fails is skipped with the reason and keeps its column.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import _paths  # noqa: F401
from broker_limits import ROWS, limits
from broker_table import columns_of_page, write_page
from real_brokers import OWN_BROKERS, RealBroker

PAGE = Path(__file__).parents[1] / "docs" / "your-own-broker.md"


def install(kind: type[RealBroker]) -> str:
    """Install a broker unless it is installed; return why it cannot be, or ""."""
    if not kind.missing() or not kind.tool:
        return kind.missing()
    if shutil.which(kind.tool) is None:
        return f"{kind.tool} is not installed"
    kind.home().mkdir(parents=True, exist_ok=True)
    try:
        kind.install()
    except subprocess.CalledProcessError as e:
        lines = [line for line in f"{e.stdout}{e.stderr}".splitlines() if "error" in line.lower()]
        return f"{kind.tool} failed: {lines[0].strip()[:200] if lines else e}"
    return kind.missing()


def main() -> None:
    cells = columns_of_page(PAGE, ROWS)
    for kind in OWN_BROKERS:
        if sys.argv[1:] and kind.name not in sys.argv[1:]:
            continue
        if reason := install(kind):
            print(f"{kind.title}: skipped, {reason}", flush=True)
            continue
        cells[kind.title] = limits(kind)
        print(f"{kind.title}: done", flush=True)
        write_page({k.title: cells[k.title] for k in OWN_BROKERS if k.title in cells}, PAGE, ROWS)


if __name__ == "__main__":
    main()
