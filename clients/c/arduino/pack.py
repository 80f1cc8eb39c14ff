"""Create Hushmote.zip for Arduino's "Add .ZIP Library", which requires sources in src/ and no programs.

python3 pack.py [ZIP]
"""

import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ("check.c", "fuzz.c")


def files() -> dict[str, Path]:
    """Return the library's files as {name in the archive: path}."""
    core = [path for kind in ("*.c", "*.h") for path in HERE.parent.glob(kind) if path.name not in PROGRAMS]
    source = [*core, *HERE.glob("*.h"), *HERE.glob("*.cpp")]
    packed = {f"src/{path.name}": path for path in sorted(source)}
    packed["library.properties"] = HERE / "library.properties"
    return packed | {str(path.relative_to(HERE)): path for path in sorted(HERE.glob("examples/*/*.ino"))}


if __name__ == "__main__":
    with zipfile.ZipFile(sys.argv[1] if len(sys.argv) > 1 else "Hushmote.zip", "w") as library:
        for name, path in files().items():
            library.writestr(f"Hushmote/{name}", path.read_bytes())
