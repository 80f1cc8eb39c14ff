"""Put the tests' helpers and the rigs on the import path of a generator that is run as a script."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(_ROOT / "tests" / "support"), str(_ROOT / "rigs")]
