"""What runs on boards. On CPython importing it imports every file `ldp_*.py`, so that all words are known."""

from importlib import import_module
from pathlib import Path

for _path in sorted(Path(__file__).parent.glob("ldp_*.py")):
    import_module(f".{_path.stem}", __name__)
