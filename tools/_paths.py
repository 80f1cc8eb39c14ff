"""Put the test helpers and rigs on the import path of a generator that runs as a script."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(_ROOT / "tests" / "support"), str(_ROOT / "rigs")]
