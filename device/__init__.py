"""The code that runs on boards. On CPython, importing it also imports every `ldp_*.py`, so all mechanisms."""

from importlib import import_module
from pathlib import Path

for _path in sorted(Path(__file__).parent.glob("ldp_*.py")):
    import_module(f".{_path.stem}", __name__)
